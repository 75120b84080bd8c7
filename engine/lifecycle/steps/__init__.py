"""The step types: one file each, with all there is to know of it: members, facts needed, authority, decision, compensation.

registry            which types there are
step_type           what a type is: a record of functions
members             what steps of every type have

assign_role         grants a role
remove_role         revokes a role
group_steps         what the two steps about a group share
add_to_group        takes the subject into a group
remove_from_group   lets the subject go
remove_membership   ends a membership, with its groups and roles
suspend_user        suspends the account
notify              queues a notice
approval            parks until a person decides
wait                parks until a moment
call_webhook        a signed call to an endpoint
end                 ends the run
"""

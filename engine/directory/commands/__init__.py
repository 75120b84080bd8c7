"""What a person may do to the directory by hand: authority, facts under locks, a verb, its rows. One resource a file.

acting          the frame all of them share: who acts, with what authority, and what a taken name is called
users           create, change, suspend, reactivate
organizations   create; take in and let go of members
roles           create
service_principals  create, change, disable, enable
assignments     assign, extend, revoke
groups          create; members; the roles a group grants
"""

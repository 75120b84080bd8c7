"""The directory: what workflows act on. A verb is the same function whether a person or a workflow does it.

permissions     the catalogue, wildcards, built-in roles
facts           what a decision may know, under locks
load            loads facts, one statement a kind
authority       what a user may do, and the ceiling on what a user may give
effects         what a verb gives back, and the statements of its rows
acts            one act by hand, in the caller's transaction
realms          verbs on realms
users           verbs on users
organizations   verbs on organizations and memberships
roles           verbs on roles and assignments
groups          verbs on groups and their members
service_principals  verbs on machines that call the API
sweep           takes away what has expired
"""

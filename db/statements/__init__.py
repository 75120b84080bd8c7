"""The statements: one function, one statement, on the columns of the tables. Each is tried with EXPLAIN at a million rows.

bulk                   whole columns in, one statement out

    of the workers, for many runs at once
gates                  who changes a workflow waits in turn with those who rely on it
runs                   claim, renew, hand back, lock, save
facts                  what decisions may know of the directory, under locks
subscriptions          webhook subscriptions by key
triggers               who listens to an event; starting runs once
outbox                 undispatched events; NOTIFY
messages               mail that is due
schedules              schedules that are due
selectors              the populations of schedules
expiry                 what has expired
releases               runs that a workflow held back
retention              history that may go
shifts                 who hosts the engine's loops

    of people, one thing at a time
run_changes            cancellation, decisions
workflows              workflows and revisions
service_principals     machines and what they hold, under a lock
realms                 a realm's settings
idempotency            keys of callers
references             what a definition refers to
subscription_changes   webhook subscriptions by hand
readiness              whether the database can serve
metrics                what waits and what is stuck, of all realms
diagnostics            what the last runs of a workflow came to
reads_pages            a page behind a key
reads_audit            what the API shows of the audit trail
reads_authority        what a caller may do
reads_groups           what the API shows of groups
reads_organizations    what the API shows of organizations
reads_outbox           what the API shows of the outbox
reads_principals       what the API shows of service principals
reads_roles            what the API shows of roles and assignments
reads_runs             what the API shows of runs
reads_subscriptions    what the API shows of subscriptions
reads_users            what the API shows of users
reads_workflows        what the API shows of workflows
"""

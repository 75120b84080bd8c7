"""The engine: owns runs, leases and idempotent steps. Knows no HTTP framework and no Prefect.

core        leases, ledger, state tables, outcomes, retry, the trail: knows no users
directory   users, organizations, groups, roles and authority, as pure verbs over facts
egress      the one door out: HTTP, signatures, secrets, mail
outbox      what happened, given to whoever waits for it
lifecycle   definitions, steps, runs, triggers, approvals, the worker
"""

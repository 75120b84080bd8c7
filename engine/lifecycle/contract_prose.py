"""The words of the contract of definitions, for those who write definitions. Kept apart from docstrings, which are for us."""

from __future__ import annotations

from collections.abc import Mapping

DEFINITION = (
    "What starts runs of a workflow, and the steps that a run takes for one user, in their order. Every object is closed:"
    " a member that is not listed is refused, and so is null for one that is left out. Beyond what this schema can say:"
    " the ids of the steps differ from each other; durations keep the bounds in the descriptions; whole numbers are"
    " written without a fraction; the canonical form (RFC 8785) has at most 65536 bytes; and every id names something"
    " that exists in the realm."
)

DURATION = (
    "Hours, minutes, seconds and milliseconds, each at most once and in this order, with up to three decimals (none for"
    " milliseconds): 30s, 72h, 1h30m, 1.5h."
)

OBJECTS: Mapping[str, str] = {
    "retry_policy": "How often a step is tried when it fails in passing. Waits double per attempt, up to 6 hours.",
    # triggers
    "event": "Starts a run for the user of an event, once per event.",
    "schedule": "Starts a run for each selected user, once per slot. Slots are multiples of `every` from the first"
    " publication of the workflow, in UTC.",
    "manual": "Lets an administrator start a run for a user by name.",
    # selectors
    "role_holders": "Users who hold a role.",
    "group_members": "Users who are in a group.",
    "organization_members": "Users who are members of the organization or, without one, of any.",
    "inactive_users": "Users who were last active longer ago than an age.",
    "never_signed_in": "Users who were created longer ago than an age and have never been active.",
    "guests": "Users who are guests.",
    "suspended_users": "Users who are suspended. No other selector finds those.",
    # steps
    "assign_role": "Grants a role to the subject. Taken back when the run is undone.",
    "remove_role": "Revokes every assignment of a role that the subject holds in one scope. Not undone.",
    "add_to_group": "Puts the subject into a group; it must be a member of the group's organization. Taken back when the"
    " run is undone.",
    "remove_from_group": "Takes the subject out of a group. Not undone.",
    "remove_membership": "Ends the subject's membership of an organization, with the groups and roles held there. Not"
    " undone.",
    "suspend_user": "Suspends the subject's account. Not undone.",
    "notify": "Queues one notice a recipient, in the realm's wording. Cannot be undone.",
    "approval": "Parks the run until one approver decides. Rejected or expired, it fails the run. The subject is never an"
    " approver.",
    "wait": "Parks the run for a while.",
    "call_webhook": "Calls an endpoint with a signed POST, at least once: endpoints tell repeats by Idempotency-Key.",
    "end": "Ends the run as succeeded. Steps behind it are not taken.",
}
"""By `type`, but for the retry policy, which has none."""

MEMBERS: Mapping[str, str] = {
    "schema_version": "The version of this contract.",
    "triggers": "What starts runs.",
    "steps": "What a run does, first to last.",
    "retry": "The retry policy. That of a step replaces that of the definition as a whole.",
    "max_attempts": "Attempts in total, the first included.",
    "backoff": "The first wait; each one after it doubles.",
    "id": "The name of the step, unlike that of any other step of the definition.",
    "type": "Which of the kinds this is.",
    "event_types": "The events that start a run.",
    "organization_id": "Pins the organization. In a trigger: only what happens there, or who is there. In a step: instead"
    " of the organization of the run.",
    "every": "The length of a slot.",
    "select": "Which users.",
    "granted_before": "Only if granted longer ago than this.",
    "joined_before": "Only if joined longer ago than this.",
    "last_active_before": "Last active longer ago than this.",
    "created_before": "Created longer ago than this.",
    "suspended_before": "Only if suspended longer ago than this.",
    "role_id": "The role. In a step its boundary is the step's scope.",
    "scope": "Where the role is held: in the realm, which takes no organization_id, or in an organization.",
    "group_id": "The group. In a step with a pinned organization it is one of that organization.",
    "expires_in": "In an approval: the time to decide. Elsewhere: how long the grant lasts, for ever if left out.",
    "notice": "Which of the notices.",
    "recipients": "Who is written to.",
    "approvers": "Active users who are not guests, any one of whom may decide.",
    "for": "How long.",
    "subscription_id": "A webhook subscription that belongs to no organization.",
    "timeout_ms": "Milliseconds for the whole call. The operator's own limit holds if it is lower, or if this is left out.",
    "compensate": "Whether the endpoint is called again, with the action compensate, when the run is undone.",
}
"""By the name of a member, which means the same wherever it stands."""

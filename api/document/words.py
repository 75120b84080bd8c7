"""The words of the document, for those who call the API. Kept apart from docstrings, which are for us."""

from __future__ import annotations

from collections.abc import Mapping

INTRODUCTION = """\
Lifecycle workflows for the users of a realm.

**Callers.** Administration takes a token for the audience `admin`, of a session with a second factor (`amr` holds `mfa`), or
that of a service principal. Self-service takes a token for the audience `account`. Each operation says which permission it
needs.

**Realms are sealed.** What belongs to another realm is answered like what does not exist: 404.

**Requests.** JSON, and nothing extra: a member or query parameter that is not listed is refused. A moment is RFC 3339 with an
offset, from 1970 to 9998. `X-Request-Id` (1 to 64 of `A-Z a-z 0-9 . _ -`) is taken over if it is sent, and made otherwise;
every answer carries it.

**Lists** are paged: `next_cursor` of one page is the `cursor` of the next, with the same filters.

**Problems** are RFC 9457. `code` is stable, `errors` names the members at fault (`definition.steps[2].role_id`), and nothing
that was sent is repeated. After a 503 nothing is known to be done; read again before you send again.
"""

TAGS: Mapping[str, str] = {
    "workflows": "Workflows, their revisions, and runs started by hand.",
    "runs": "What runs did, attempt by attempt; and the approvals they wait for.",
    "self-service": "What a user does about themselves, with a token for the audience `account`.",
    "users": "The users of a realm.",
    "organizations": "Organizations and their members.",
    "groups": "Groups of organizations: their members, and the roles they grant.",
    "roles": "Roles, the permissions they hold, and who holds them.",
    "service-principals": "Machines that call with a token of their own, and the roles they hold.",
    "settings": "The policy of a realm, and the wording of its notices.",
    "webhooks": "Where the calls of workflows go.",
    "audit": "Who did what to whom.",
    "events": "What has happened here or in another directory, whether workflows were told, and what could not be told.",
    "health": "Whether the process lives, its figures, and what its tokens are verified with. Nobody needs a token for these.",
}

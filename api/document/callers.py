"""Who may call an operation, as a document says it."""

from __future__ import annotations

from typing import Any

from api.auth import Declared, Permitted

Schema = dict[str, Any]

SCHEMES: dict[str, Schema] = {
    "admin": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "A token of the issuer for the audience `admin`: of a user who has signed in with a second factor"
        " (`amr` holds `mfa`), or of a service principal.",
    },
    "account": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "A token of the issuer for the audience `account`.",
    },
}


def security(declared: Declared) -> list[Schema]:
    """Which of the schemes; none for what anybody may call."""
    if declared.declares == "public":
        return []
    return [{"admin" if isinstance(declared, Permitted) else "account": []}]


def told(declared: Declared) -> str:
    """The same in a sentence."""
    if declared.declares == "public":
        return "Anybody may call this."
    if not isinstance(declared, Permitted):
        return "For every user, about themselves."
    permissions = " or ".join(f"`{permission}`" for permission in declared.permissions)
    where = ", realm-wide or in the organization" if declared.organization or declared.somewhere else ""
    return f"Needs {permissions}{where}."

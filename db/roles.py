"""The role the application works as: tenure_app. It owns nothing, so it can neither drop nor alter what it works on.

A role belongs to the whole server, not to a database: it may be there already, for another database or made by an
administrator beforehand, and two processes may create it at the same moment. What it may do in a database, the
migrations grant."""

from __future__ import annotations

import psycopg
from psycopg import sql
from sqlalchemy import Connection, text
from sqlalchemy.exc import ProgrammingError

from db.errors import DatabaseUnavailable

APP_ROLE = "tenure_app"

CREATE = f"""
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{APP_ROLE}') THEN
        CREATE ROLE {APP_ROLE} NOLOGIN;
    END IF;
EXCEPTION WHEN duplicate_object OR unique_violation THEN
    NULL; -- another process was faster
END $$
"""

# Whether the current user may SET ROLE to it. Since 16 membership alone does not say so, and before 16 'SET' is no
# privilege.
MAY_BECOME = f"""
SELECT CASE WHEN current_setting('server_version_num')::int >= 160000
            THEN pg_has_role('{APP_ROLE}', 'SET') ELSE pg_has_role('{APP_ROLE}', 'MEMBER') END
"""

# XX000 is "tuple concurrently updated": another process grants the same thing at this moment. MAY_BECOME is asked
# again after.
BECOME = f"""
DO $$ BEGIN
    GRANT {APP_ROLE} TO CURRENT_USER;
EXCEPTION WHEN internal_error OR unique_violation THEN
    NULL;
END $$
"""

UNBOUND = f"SELECT rolsuper OR rolbypassrls OR rolcreaterole OR rolcreatedb FROM pg_roles WHERE rolname = '{APP_ROLE}'"


def ensure_app_role(connection: Connection) -> None:
    """Create tenure_app unless it exists, and let the current user become it. Run it as the migrating user.

    Raises DatabaseUnavailable, saying what an administrator has to run, where the current user may not do that, and
    where the existing role has powers that would make it more than the application's."""
    try:
        with connection.begin_nested():
            connection.execute(text(CREATE))
            if not connection.scalar(text(MAY_BECOME)):
                connection.execute(text(BECOME))
            if not connection.scalar(text(MAY_BECOME)):
                raise DatabaseUnavailable(f"Role {APP_ROLE} is being changed by another process: try again.")
    except ProgrammingError:  # insufficient privilege
        user = connection.scalar(text("SELECT quote_ident(current_user)"))
        raise DatabaseUnavailable(
            f"The database user {user} may not provide the role {APP_ROLE}. "
            f"Have an administrator run: CREATE ROLE {APP_ROLE} NOLOGIN; GRANT {APP_ROLE} TO {user};"
        ) from None
    if connection.scalar(text(UNBOUND)):
        raise DatabaseUnavailable(
            f"Role {APP_ROLE} has more power than the application may have: "
            f"ALTER ROLE {APP_ROLE} NOSUPERUSER NOBYPASSRLS NOCREATEROLE NOCREATEDB;"
        )


def ensure_app_login(connection: psycopg.Connection[tuple[object, ...]], password: str) -> None:
    """Let tenure_app log in by itself, with this password: the embedded server, where the role is ours alone. Then
    there is no other user behind it to get back to (SET ROLE NONE, RESET SESSION AUTHORIZATION)."""
    connection.execute(CREATE)
    logs_in = connection.execute("SELECT rolcanlogin FROM pg_roles WHERE rolname = %s", [APP_ROLE]).fetchone()
    if logs_in != (True,):
        change = sql.SQL("ALTER ROLE {} LOGIN PASSWORD {}")
        connection.execute(change.format(sql.Identifier(APP_ROLE), sql.Literal(password)))

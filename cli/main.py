"""The command line: `tenure`.

up             the whole stack until Ctrl-C
demo           the onboarding story on a stack of its own
db upgrade     bring the database to the tables of this version
db status      where the database is, and what it is at
realm create   a realm and its first administrator
token          a token of the local issuer
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from sqlalchemy.exc import SQLAlchemyError

from cli.folder import taken_folder
from cli.parts import StackFailed
from db import migrate
from db.embedded import ensure_server, stop_server
from db.errors import DatabaseUnavailable
from db.session import Database
from db.settings import DatabaseSettings
from engine.core.errors import TenureError
from engine.core.faults import message_of

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Identity lifecycle workflows that never do a thing twice."
)
db_app = typer.Typer(no_args_is_help=True, help="The database.")
realm_app = typer.Typer(no_args_is_help=True, help="Realms.")
app.add_typer(db_app, name="db")
app.add_typer(realm_app, name="realm")

console = Console(highlight=False)

DataDir = Annotated[Path | None, typer.Option(help="The data folder (default: TENURE_DATA_DIR, else .tenure).")]


def _settings(data_dir: Path | None) -> DatabaseSettings:
    return DatabaseSettings() if data_dir is None else DatabaseSettings(data_dir=data_dir)


@contextmanager
def _database(data_dir: Path | None) -> Iterator[Database]:
    """The database for one command. The embedded one is stopped again if the command had to start it."""
    settings = _settings(data_dir)
    embedded = settings.database_url is None and settings.app_database_url is None
    started = embedded and ensure_server(settings.data_dir).started
    database = Database.open(settings)
    try:
        yield database
    finally:
        database.close()
        if started:
            with suppress(StackFailed), taken_folder(settings.data_dir):  # unless a stack has come to use it meanwhile
                stop_server(settings.data_dir)


@app.command()
def up(
    data_dir: DataDir = None,
    api_port: Annotated[int, typer.Option(help="Port of the API; 0 for any that is free.")] = 8000,
    prefect_port: Annotated[
        int, typer.Option(help="Port of Prefect's server and pages; 0 for any that is free.")
    ] = 4200,
) -> None:
    """Start PostgreSQL, Prefect with its pages, the deployments, the workers and the API; stop them all on Ctrl-C."""
    from cli.stack import StackSettings
    from cli.up import run_up

    settings = StackSettings(_settings(data_dir).data_dir, api_port, prefect_port)
    raise typer.Exit(run_up(settings, console))


@app.command()
def demo(
    data_dir: Annotated[Path, typer.Option(help="Where the demo's stack lives; emptied first.")] = Path(".tenure-demo"),
    stay: Annotated[bool, typer.Option(help="Leave the stack running afterwards, until Ctrl-C, to look at.")] = False,
) -> None:
    """Play an onboarding on the whole stack: one that succeeds, and one that is undone. Status 1 if anything is not so."""
    from cli.demo.play import run_demo

    raise typer.Exit(run_demo(data_dir, console, stay=stay))


@db_app.command("upgrade")
def db_upgrade(data_dir: DataDir = None) -> None:
    """Bring the database to the tables of this version, from empty or from any version before."""
    with _database(data_dir) as database:
        applied = migrate.upgrade(database)
    console.print(f"applied {', '.join(applied)}" if applied else "nothing to apply")


@db_app.command("status")
def db_status(data_dir: DataDir = None) -> None:
    """Where the database is, what revision it is at, and what this version needs. Status 1 if they differ."""
    with _database(data_dir) as database:
        at, needed = migrate.current(database), migrate.head()
        console.print(f"database  {database.app_url.render_as_string(hide_password=True)}", soft_wrap=True)
    console.print(f"revision  {at or 'empty'}, this version needs {needed}")
    raise typer.Exit(0 if at == needed else 1)


@realm_app.command("create")
def realm_create(
    name: str,
    admin_email: Annotated[str, typer.Option(help="Address of the first administrator.")],
    admin_name: Annotated[str, typer.Option(help="Name of the first administrator.")] = "Administrator",
    data_dir: DataDir = None,
) -> None:
    """Make a realm with its built-in roles and its first administrator, and print their ids."""
    from cli.bootstrap import create_realm

    with _database(data_dir) as database:
        made = create_realm(database, name, admin_email, admin_name)
    console.print(f"realm          {made.realm_id}\nadministrator  {made.admin_id}")
    for role, role_id in made.roles.items():
        console.print(f"role           {role_id}  {role}")


@app.command()
def token(
    realm_id: str,
    subject_id: Annotated[str, typer.Argument(help="A user (usr_...) or a service principal (spn_...).")],
    audience: Annotated[
        Literal["admin", "account"], typer.Option(help="`admin` for administration, `account` for one's own approvals.")
    ] = "admin",
    hours: Annotated[float, typer.Option(min=0.01, max=24.0, help="How long it is valid.")] = 1.0,
    mfa: Annotated[
        bool, typer.Option(help="Whether it says that a user had a second factor; administration needs that.")
    ] = True,
    data_dir: DataDir = None,
) -> None:
    """Print a token of the local issuer, whose key is in the data folder."""
    from datetime import timedelta

    from cli.token import issue

    print(  # noqa: T201  a token is for a pipe: nothing may wrap or colour it
        issue(_settings(data_dir).data_dir, realm_id, subject_id, audience, timedelta(hours=hours), mfa)
    )


def main() -> None:
    """`tenure`, with failures of the product told in one sentence."""
    try:
        app()
    except (TenureError, DatabaseUnavailable) as failure:
        told = str(failure)
    except SQLAlchemyError as failure:
        told = f"The database refused ({message_of(failure)}). Is it at this version's tables? See: tenure db status"
    else:
        return
    Console(stderr=True, highlight=False).print(told, style="red", markup=False, soft_wrap=True)
    sys.exit(1)

"""Bringing a database to the head: from empty, twice at once, by a user who may little."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
from sqlalchemy import URL, create_engine, make_url, text

from db.errors import DatabaseUnavailable
from db.migrate import current, differences, head, upgrade
from db.roles import APP_ROLE, ensure_app_role
from db.session import Database
from db.settings import DatabaseSettings
from tests.database import SharedServer, plain


def test_an_empty_database_comes_to_the_head_and_then_has_nothing_left_to_do(empty_database: Database) -> None:
    assert current(empty_database) is None
    applied = upgrade(empty_database)
    assert current(empty_database) == head()
    assert applied[-1:] == ([head()] if head() else [])
    assert upgrade(empty_database) == []


def test_the_migrations_make_exactly_the_tables_of_the_code(database: Database) -> None:
    assert differences(database) == []


def upgrade_over(url: str) -> list[str]:
    database = Database.open(DatabaseSettings(database_url=url))
    try:
        return upgrade(database)
    finally:
        database.close()


def test_of_processes_that_migrate_at_once_one_does_the_work(empty_database: Database) -> None:
    assert empty_database.owner_url is not None
    url = plain(empty_database.owner_url)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as processes:
        applied = list(processes.map(upgrade_over, [url] * 2))
    assert current(empty_database) == head()
    revisions = [revision for each in applied for revision in each]
    assert len(revisions) == len(set(revisions)), "each revision was applied once"
    assert [] in applied


def test_every_table_belongs_to_the_migrating_user_and_none_to_the_application(database: Database) -> None:
    with database.owner_engine.connect() as connection:
        owners = connection.scalars(text("SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'public'")).all()
        me = connection.scalar(text("SELECT current_user"))
    assert set(owners) <= {me}


@pytest.fixture
def modest_user(postgres: SharedServer) -> Iterator[URL]:
    """A login that owns its database and may do nothing else: the usual one of a hosted PostgreSQL."""
    with postgres.fresh(empty=True) as database:
        assert database.owner_url is not None
        name = str(database.owner_url.database)
        with database.owner_engine.begin() as connection:
            connection.execute(text(f"CREATE ROLE {name}_owner LOGIN PASSWORD 'modest'"))
            connection.execute(text(f"ALTER DATABASE {name} OWNER TO {name}_owner"))
        yield database.owner_url.set(username=f"{name}_owner", password="modest")
    postgres.execute("DROP ROLE {}", f"{name}_owner")


def test_a_user_who_may_not_provide_the_role_is_told_what_an_administrator_has_to_run(modest_user: URL) -> None:
    database = Database.open(DatabaseSettings(database_url=plain(modest_user)))
    with pytest.raises(DatabaseUnavailable) as refused:
        upgrade(database)
    assert f"GRANT {APP_ROLE} TO {modest_user.username};" in str(refused.value)
    assert current(database) is None


def test_a_user_who_was_given_the_role_migrates_and_the_application_works_through_its_login(
    postgres: SharedServer, modest_user: URL
) -> None:
    postgres.execute("GRANT {} TO {}", APP_ROLE, str(modest_user.username))
    database = Database.open(DatabaseSettings(database_url=plain(modest_user)))
    upgrade(database)
    assert current(database) == head()
    with database.begin() as connection:
        assert connection.scalar(text("SELECT current_user")) == APP_ROLE
        assert connection.scalar(text("SELECT session_user")) == modest_user.username
    database.close()


def test_a_user_who_may_create_roles_provides_the_role_without_an_administrator(
    postgres: SharedServer, modest_user: URL
) -> None:
    postgres.execute("ALTER ROLE {} CREATEROLE", str(modest_user.username))
    if server_version(postgres) >= 160000:  # there, CREATEROLE alone does not reach a role somebody else made
        postgres.execute("GRANT {} TO {} WITH ADMIN TRUE, SET FALSE", APP_ROLE, str(modest_user.username))
    database = Database.open(DatabaseSettings(database_url=plain(modest_user)))
    upgrade(database)
    with database.begin() as connection:
        assert connection.scalar(text("SELECT current_user")) == APP_ROLE
    database.close()


def test_an_application_role_that_is_a_superuser_is_refused(postgres: SharedServer) -> None:
    engine = create_engine(postgres.owner_url)
    with engine.connect() as connection, connection.begin() as transaction:
        connection.execute(text(f"ALTER ROLE {APP_ROLE} SUPERUSER"))
        with pytest.raises(DatabaseUnavailable, match="NOSUPERUSER"):
            ensure_app_role(connection)
        transaction.rollback()
    engine.dispose()


def server_version(postgres: SharedServer) -> int:
    engine = create_engine(make_url(postgres.owner_url))
    with engine.connect() as connection:
        version = int(str(connection.scalar(text("SHOW server_version_num"))))
    engine.dispose()
    return version

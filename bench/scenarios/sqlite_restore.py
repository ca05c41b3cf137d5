"""A SQLite database shipped into its topic, and restored from it, beside a loop that only writes a file.

Half of each row is random, so the pages compress to about half their size. A restored file is synced before its time is
taken, and is compared with the database byte by byte. The topic is in the page cache, because it was just written.
"""

from __future__ import annotations

import filecmp
import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.brokers import STRANDLINE
from bench.figures import Figure, at_least
from bench.measure import MB
from bench.stage import ASYNC_FLUSH, Stage
from strandline.sqlite.records import PART_BYTES_MAX
from strandline.sqlite.restoring import plan, restore
from strandline.sqlite.running import ship
from strandline.sqlite.shipper import ShipSettings
from strandline.sqlite.topic import ShippedTopic

NAME = "sqlite-restore"
SUMMARY = "a SQLite file of 1 GB into its topic, and restored from it, beside a loop that only writes a file"
WRITE: Final = "write+fsync"
DATABASE_BYTES: Final = 1000 * MB
TIMEOUT_S: Final = 60.0
_ROWS_PER_TRANSACTION: Final = 20_000
_ROW: Final = "randomblob(500) || zeroblob(500)"


@dataclass
class Maker:
    """What takes turns: a function that makes the file."""

    name: str
    make: Callable[[Path], None]


def run(stage: Stage) -> list[Figure]:
    stage.put_shared_pair_away()
    database = stage.root / "bench.db"
    _fill(database, stage.scaled(DATABASE_BYTES, 40 * MB))
    size_mb = database.stat().st_size / MB
    broker = stage.start(STRANDLINE, settings=ASYNC_FLUSH)
    try:
        client = {"bootstrap.servers": broker.bootstrap}
        topic = ShippedTopic(client, "bench.db", TIMEOUT_S)
        began_s = time.monotonic()
        ship(database, topic, client, ShipSettings(), timeout_s=TIMEOUT_S, once=True)
        shipped_s = time.monotonic() - began_s

        def restored(out: Path) -> None:
            restore(topic, plan(topic), out)

        def written(out: Path) -> None:
            _write(database, out)

        taken = stage.take_turns(
            [Maker(STRANDLINE, restored), Maker(WRITE, written)],
            lambda maker: _round(stage, maker, database, size_mb),
            warm_rounds=stage.scaled(1, 0),
            rounds=stage.scaled(stage.rounds, 1),
        )
    finally:
        stage.discard(broker)
        database.unlink()
    name = f"{size_mb:,.0f} MB of SQLite"
    rates, beside = taken.of(STRANDLINE, "mb_s"), taken.of(WRITE, "mb_s")
    return [
        Figure(f"{name}, restored", "MB/s", rates, beside, WRITE, at_least(200.0), "fsync of the file included"),
        Figure(f"{name}, CPU of the restore", "MB per CPU-second", taken.of(STRANDLINE, "mb_cpu")),
        Figure(f"{name}, first snapshot shipped", "MB/s", [size_mb / shipped_s], note="once; flush.mode=async"),
    ]


def _fill(path: Path, size: int) -> None:
    """Make a database of about `size` bytes, all of it in the file."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = wal")
        connection.execute("PRAGMA synchronous = off")
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v BLOB)")
        numbers = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {_ROWS_PER_TRANSACTION})"
        while path.stat().st_size < size:
            connection.execute(f"INSERT INTO t (v) {numbers} SELECT {_ROW} FROM n")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()


def _round(stage: Stage, maker: Maker, database: Path, size_mb: float) -> dict[str, float]:
    # What the round before wrote must not be written out in this one.
    os.sync()
    out = stage.root / "restored.db"
    began_s, began_cpu_s = time.monotonic(), time.process_time()
    maker.make(out)
    seconds, cpu_s = time.monotonic() - began_s, time.process_time() - began_cpu_s
    assert filecmp.cmp(database, out, shallow=False), f"{maker.name} made another file"
    out.unlink()
    return {"mb_s": size_mb / seconds, "mb_cpu": size_mb / cpu_s}


def _write(database: Path, out: Path) -> None:
    """Copy the file in pieces as large as those of a restore, and sync it."""
    with database.open("rb", buffering=0) as source, out.open("wb", buffering=0) as target:
        while piece := source.read(PART_BYTES_MAX):
            target.write(piece)
        os.fsync(target.fileno())

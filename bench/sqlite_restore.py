"""`python -m bench.sqlite_restore`: ships a SQLite database into a node of its own, and restores it.

Half of each row is random, so the pages compress to about half their size. The restored file is compared with the
database. The file is on the disk of --directory and synced before its time is taken; the topic is in the page cache.
"""

from __future__ import annotations

import argparse
import filecmp
import os
import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Final

import strandline
from strandline.sqlite.restoring import plan, restore
from strandline.sqlite.running import ship
from strandline.sqlite.shipper import ShipSettings
from strandline.sqlite.topic import ShippedTopic

TARGET_MB_PER_S: Final = 200.0
_ROWS_PER_TRANSACTION: Final = 20_000
_ROW: Final = "randomblob(500) || zeroblob(500)"


def fill(path: Path, size: int) -> None:
    """Make a database of about `size` bytes, all of it in the file."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = wal")
        connection.execute("PRAGMA synchronous = off")
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v BLOB)")
        numbers = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {_ROWS_PER_TRANSACTION})"
        while path.stat().st_size < size:
            connection.execute(f"INSERT INTO t (v) {numbers} SELECT {_ROW} FROM n")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()


def main() -> int:
    """Measure, print a line for each step, and return 1 if the target is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.sqlite_restore", description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1000, help="size of the database (default 1000)")
    parser.add_argument("--rounds", type=int, default=3, help="restores (default 3)")
    parser.add_argument("--directory", help="where the files are (default: the directory of temporary files)")
    options = parser.parse_args()
    rates = []
    with tempfile.TemporaryDirectory(dir=options.directory) as name, strandline.embedded() as log:
        place = Path(name)
        database = place / "bench.db"
        fill(database, options.megabytes * 1_000_000)
        size = database.stat().st_size / 1e6
        client = {"bootstrap.servers": log.bootstrap}
        topic = ShippedTopic(client, "bench", 30.0)
        began_s = time.monotonic()
        ship(database, topic, client, ShipSettings(), timeout_s=30, once=True)
        shipped_s = time.monotonic() - began_s
        print(f"shipped {size:.0f} MB in {shipped_s:.2f} s: {size / shipped_s:.0f} MB/s, load {os.getloadavg()[0]:.1f}")
        for number in range(options.rounds):
            out = place / f"restored-{number}.db"
            began_s, began_cpu_s = time.monotonic(), time.process_time()
            restore(topic, plan(topic), out)
            wall_s, cpu_s = time.monotonic() - began_s, time.process_time() - began_cpu_s
            assert filecmp.cmp(database, out, shallow=False), "the restored file differs"
            out.unlink()
            rates.append(size / wall_s)
            print(
                f"restored in {wall_s:.2f} s: {rates[-1]:.0f} MB/s, {cpu_s:.2f} s of CPU, load {os.getloadavg()[0]:.1f}"
            )
    best = max(rates)
    print(f"best of {len(rates)}: {best:.0f} MB/s (target {TARGET_MB_PER_S:.0f})")
    return 0 if best >= TARGET_MB_PER_S else 1


if __name__ == "__main__":
    raise SystemExit(main())

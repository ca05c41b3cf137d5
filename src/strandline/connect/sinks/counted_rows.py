"""Rows that have no key, as lines of a file: a target has each as often as its topic, in whatever order.

A row is its own key, and its digest is how often it is there. Both counts are in an SQLite file that is deleted at the
end, because a topic may have more rows than fit into memory.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Final

from strandline.connect.records import SinkRecord, TopicPosition
from strandline.connect.sinks.document_id import key_text
from strandline.connect.sinks.verifiable import ANY_DIGEST, ExpectedRow, TargetKey

_SHOWN_MAX: Final = 200
"""Longer rows are named by their first characters and a digest."""
_SCHEMA: Final = """
create table expected (place text, row text, n integer, primary key (place, row)) without rowid;
create table found (place text, row text, source text, n integer, primary key (place, row, source)) without rowid;
"""
_ONE_MORE: Final = " on conflict do update set n = n + excluded.n"


class CountedRows:
    """Counts the rows that records make, and those that a target has."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="strandline-rows-")
        self._database = sqlite3.connect(
            Path(self._directory.name) / "rows.db", isolation_level=None, check_same_thread=False
        )
        self._database.executescript(f"pragma journal_mode = off; pragma synchronous = off; {_SCHEMA} begin;")
        self._is_whole: dict[TopicPosition, bool] = {}

    def close(self) -> None:
        """Delete the counts."""
        self._database.close()
        self._directory.cleanup()

    def expect(self, record: SinkRecord, place: str, row: bytes) -> ExpectedRow:
        """Count the row of a record. Of a topic that has lost its first records only the presence of a row is known."""
        key = _name(row)
        counted = f"insert into expected values (?, ?, 1){_ONE_MORE} returning n"
        ((times,),) = self._database.execute(counted, (place, key)).fetchall()
        partition = TopicPosition(record.original_topic, record.original_partition)
        is_whole = self._is_whole.setdefault(partition, record.offset == 0)
        return ExpectedRow(TargetKey(place, (key,)), _digest(times) if is_whole else ANY_DIGEST)

    def add(self, place: str, source: str, rows: Iterable[bytes]) -> None:
        """Count rows of a target. `source` is what they are forgotten by."""
        counted = f"insert into found values (?, ?, ?, 1){_ONE_MORE}"
        self._database.executemany(counted, ((place, _name(each), source) for each in rows))

    def forget(self, place: str, source: str) -> None:
        """Forget the rows of a source, which has changed or is gone."""
        self._database.execute("delete from found where place = ? and source = ?", (place, source))

    def digests(self, keys: Collection[TargetKey]) -> Mapping[TargetKey, bytes]:
        """Return the digests of the rows that the target has, of these."""
        asked = "select sum(n) from found where place = ? and row = ?"
        counts = {each: self._database.execute(asked, (each.place, each.key[0])).fetchone()[0] for each in keys}
        return {each: _digest(times) for each, times in counts.items() if times}

    def scan(self) -> Iterator[tuple[TargetKey, bytes]]:
        """Yield every row of the target."""
        for place, row, times in self._database.execute("select place, row, sum(n) from found group by place, row"):
            yield TargetKey(place, (row,)), _digest(times)


def _name(row: bytes) -> str:
    text = key_text(row)
    return (
        text if len(text) <= _SHOWN_MAX else f"{text[: _SHOWN_MAX // 2]}... {blake2b(row, digest_size=16).hexdigest()}"
    )


def _digest(times: int) -> bytes:
    return times.to_bytes(6, "big")

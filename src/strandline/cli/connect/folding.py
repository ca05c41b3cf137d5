"""What a topic says that a sink's target should hold, folded to the last record of each key.

A topic may have more keys than fit into memory, so the fold is an SQLite file that is deleted at the end. For each row
of the target it has the digest that the last record gives; null if that record deletes the row.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from strandline.connect.records import SinkRecord
    from strandline.connect.sinks.verifiable import TargetKey, VerifiableSink

KEYS_MAX: Final = 2000
"""Keys that a target is asked for at a time."""
_SCHEMA: Final = """
create table fold (place text, key text, digest blob, at text, primary key (place, key)) without rowid;
create table doubt (place text, key text, digest blob, at text, primary key (place, key)) without rowid;
create table later (place text, key text, topic text, part integer, offset integer, digest blob);
create index later_by_key on later (place, key);
create table seen (place text, key text, digest blob, primary key (place, key)) without rowid;
create table explained (place text, key text);
"""


class TopicFold:
    """The rows that a topic makes, on disk."""

    def __init__(self, sink: VerifiableSink) -> None:
        self._sink = sink
        self._directory = tempfile.TemporaryDirectory(prefix="strandline-verify-")
        self._database = sqlite3.connect(Path(self._directory.name) / "fold.db", isolation_level=None)
        # It is deleted at the end, so nothing of it has to survive.
        self._database.executescript(f"pragma journal_mode = off; pragma synchronous = off; {_SCHEMA}")
        self.records = 0
        self.left_out = 0
        """Records that the sink cannot write at all."""
        self.undecided = 0
        """Rows that changed while they were compared."""

    def close(self) -> None:
        self._database.close()
        self._directory.cleanup()

    def __enter__(self) -> TopicFold:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()

    # The topic

    def take(self, records: Iterable[SinkRecord]) -> None:
        """Add records in the order of their offsets."""
        rows = [(*_texts(key), digest, record.place) for record, key, digest in self._expected(records)]
        self._database.execute("begin")
        self._database.executemany("insert or replace into fold values (?, ?, ?, ?)", rows)
        self._database.execute("commit")

    def take_later(self, records: Iterable[SinkRecord]) -> None:
        """Add records behind the fold, if one of their keys is in doubt."""
        self._database.execute("begin")
        for record, key, digest in self._expected(records):
            place, text = _texts(key)
            if self._database.execute("select 1 from doubt where place = ? and key = ?", (place, text)).fetchone():
                where = record.original_topic, record.original_partition, record.offset
                self._database.execute("insert into later values (?, ?, ?, ?, ?, ?)", (place, text, *where, digest))
        self._database.execute("commit")

    def _expected(self, records: Iterable[SinkRecord]) -> Iterator[tuple[SinkRecord, TargetKey, bytes | None]]:
        from strandline.connect.failures import RecordFailed

        for record in records:
            self.records += 1
            try:
                key, digest = self._sink.expected(record)
            except RecordFailed:
                self.left_out += 1
                continue
            yield record, key, digest

    # The target

    @property
    def rows(self) -> int:
        """Rows that the target should have."""
        (found,) = self._database.execute("select count(*) from fold where digest is not null").fetchone()
        return int(found)

    def digest(self) -> str:
        """Return one digest of all rows that the target should have."""
        made = hashlib.sha256()
        for place, key, digest in self._database.execute(
            "select place, key, digest from fold where digest is not null order by place, key"
        ):
            made.update(f"{place}\0{key}\0".encode() + digest)
        return made.hexdigest()

    def compare(self) -> Iterator[int]:
        """Put each row into doubt that is not as the topic has it. Yield how many were looked at, as it goes on."""
        cursor = self._database.execute("select place, key, digest, at from fold")
        while found := cursor.fetchmany(KEYS_MAX):
            actual = self._digests([(place, key) for place, key, _, _ in found])
            self._doubt(row for row in found if not self._is_right(actual.get((row[0], row[1])), row[2]))
            yield len(found)
        surplus = []
        for number, (key, _) in enumerate(self._sink.scan(), 1):
            place, text = _texts(key)
            if not self._database.execute("select 1 from fold where place = ? and key = ?", (place, text)).fetchone():
                surplus.append((place, text, None, ""))
            if len(surplus) >= KEYS_MAX:
                self._doubt(surplus)
                surplus = []
            if not number % KEYS_MAX:
                yield KEYS_MAX
        self._doubt(surplus)

    def _is_right(self, actual: bytes | None, wanted: bytes | None) -> bool:
        is_right = _fits(actual, wanted)
        self.undecided += is_right and actual != wanted
        return is_right

    def _doubt(self, rows: Iterable[Sequence[Any]]) -> None:
        self._database.executemany("insert or replace into doubt values (?, ?, ?, ?)", list(rows))

    @property
    def has_doubts(self) -> bool:
        return self._database.execute("select 1 from doubt limit 1").fetchone() is not None

    def look_again(self) -> None:
        """Read rows in doubt again, and drop doubts about those that are right by now."""
        cursor = self._database.execute("select place, key, digest from doubt")
        while found := cursor.fetchmany(KEYS_MAX):
            actual = self._digests([(place, key) for place, key, _ in found])
            rows = [(place, key, actual.get((place, key))) for place, key, _ in found]
            self._database.executemany("insert into seen values (?, ?, ?)", rows)
            right = [each for each, (_, _, wanted) in zip(rows, found, strict=True) if _fits(each[2], wanted)]
            self._explained(right)
        self._drop_explained()

    def settle(self, committed: Mapping[tuple[str, int], int]) -> None:
        """Drop doubts that records behind the fold explain. `committed` are the offsets that the sink had stored.

        What was stored by then must be in the target; of records behind that any may be. A row that is none of these,
        but has records under way, is undecided: compaction may have removed the record that it is made of.
        """
        for place, key, actual in self._database.execute(
            "select place, key, seen.digest from doubt left join seen using (place, key)"
        ):
            later = self._database.execute(
                "select topic, part, offset, digest from later where place = ? and key = ? order by offset",
                (place, key),
            ).fetchall()
            stored = [each[3] for each in later if each[2] < committed.get((each[0], each[1]), 0)]
            under_way = [each[3] for each in later if each[2] >= committed.get((each[0], each[1]), 0)]
            is_last = bool(stored) and _fits(actual, stored[-1])
            if is_last or under_way:
                self.undecided += not is_last and not any(_fits(actual, each) for each in under_way)
                self._explained([(place, key)])
        self._drop_explained()

    def _explained(self, rows: Iterable[Sequence[Any]]) -> None:
        self._database.executemany("insert into explained values (?, ?)", [tuple(row[:2]) for row in rows])

    def _drop_explained(self) -> None:
        self._database.execute("delete from doubt where (place, key) in (select place, key from explained)")
        self._database.execute("delete from explained")

    def differences(self) -> Iterator[tuple[str, tuple[str, ...], str, bytes | None, bytes | None]]:
        """Yield place, key, the record that counts, and the digests in topic and target."""
        cursor = self._database.execute(
            "select doubt.place, doubt.key, doubt.at, doubt.digest, seen.digest from doubt"
            " left join seen on seen.place = doubt.place and seen.key = doubt.key order by 1, 2"
        )
        for place, key, at, wanted, actual in cursor:
            yield place, tuple(json.loads(key)), at, wanted, actual

    def _digests(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], bytes]:
        from strandline.connect.sinks.verifiable import TargetKey

        asked = [TargetKey(place, tuple(json.loads(key))) for place, key in keys]
        return {_texts(key): digest for key, digest in self._sink.digests(asked).items()}


def _fits(actual: bytes | None, wanted: bytes | None) -> bool:
    """Return whether a row is as a record wants it; one that does not have all values wants only that it exists."""
    return actual == wanted or (actual is not None and wanted == b"")


def _texts(key: TargetKey) -> tuple[str, str]:
    return key.place, json.dumps(key.key, ensure_ascii=True)

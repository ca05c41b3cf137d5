"""What the tests of sinks for tables share: a table that outlives its sinks, and crashes between their steps."""

from __future__ import annotations

import random
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.connect.sink_records import PLACE, batch, opened, record

from strandline.connect import schema as connect_schema
from strandline.connect.failures import ConnectFailed, FencedOut
from strandline.connect.records import SinkRecord, TopicPosition
from strandline.connect.sink import Sink
from strandline.connect.sinks.verifiable import VerifiableSink
from strandline.runtime.fault_points import VARIABLE, PlantedFault

POINTS = (pytest.param("before-commit", marks=pytest.mark.slow), "commit-sent", "after-commit")


class TableTarget:
    """Makes sinks with the same settings; `rows` reads a table as they left it."""

    def __init__(self, kind: type[Sink], properties: Mapping[str, str]) -> None:
        self._kind = kind
        self._properties = {"name": "lake", "commit.interval.ms": "0", **properties}

    def sink(self, **changes: str) -> Any:
        return opened(self._kind, self._properties | changes)

    def rows(self, table: str = "orders") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.sink()._table(table).read().to_pylist()
        return found

    def write(self, *records: SinkRecord, **changes: str) -> Mapping[TopicPosition, int]:
        """Write records through a new sink, and return the offsets of its flush."""
        sink = self.sink(**changes)
        sink.resume([PLACE])
        sink.write(batch(*records))
        found: Mapping[TopicPosition, int] = sink.flush()
        sink.close()
        return found


def crash_everywhere(
    target: TableTarget, records: list[SinkRecord], point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> int:
    """Write records of two partitions with sinks that fail at a point or lose what they hold. Return how many failed.

    Only the table knows where to go on: nothing is remembered from one sink to the next.
    """
    places = [PLACE, TopicPosition(PLACE.topic, 1)]
    dice = random.Random(5)
    crashes = 0
    for attempt in range(100):
        sink = target.sink()
        begin = sink.resume(places)
        left = [
            each for each in records if each.offset >= begin.get(TopicPosition(each.topic, each.original_partition), 0)
        ]
        if not left:
            return crashes
        monkeypatch.setenv(VARIABLE, f"{point}:fail:{tmp_path / str(attempt)}" if attempt % 2 == 0 else "")
        try:
            for _ in range(2):
                size = dice.randrange(1, 15)
                sink.write(batch(*left[:size]))
                left = left[size:]
                if dice.random() < 0.7:
                    sink.flush()
        except PlantedFault:
            crashes += 1
    raise AssertionError("the records were not written in 100 attempts")


def numbered(count: int) -> list[SinkRecord]:
    """Return records of two partitions, each with a number of its own."""
    return [record(each // 2, {"id": each, "text": f"t{each}"}, each % 2, each % 2) for each in range(count)]


def compare_with_topic(target: TableTarget) -> None:
    """Check that a table tells rows that are right, wrong, missing and surplus from each other."""
    keyed = {"upsert": "true", "key.fields": "id", "topics": "orders"}
    schema = connect_schema.struct({"v": connect_schema.OPTIONAL_STRING, "price": connect_schema.decimal_schema(2)})
    records = [
        record(at, {"v": f"ü{at}" if at else None, "price": Decimal(at)}, at, value_schema=schema) for at in range(4)
    ]
    target.write(*records[:3], record(3, None, 7), **keyed)
    target.write(record(4, {"w": 1}, 8), **keyed)
    sink: VerifiableSink = target.sink(**keyed)
    right, other, missing, gone = (
        sink.expected(each) for each in (records[0], record(5, {"v": "changed"}, 1), records[3], record(6, None, 2))
    )
    found = sink.digests([each.key for each in (right, other, missing, gone)])
    assert found[right.key] == right.digest
    assert found[other.key] != other.digest
    assert missing.key not in found
    assert (gone.digest, gone.key in found) == (None, True)
    assert {key.key for key, _ in sink.scan()} == {("0",), ("1",), ("2",), ("8",)}
    with pytest.raises(ConnectFailed, match="upsert=true"):
        target.sink().expected(records[0])


def set_offsets_of(target: TableTarget) -> None:
    """Check that an administrator's offsets hold for the next task, and fence out the one before."""
    other = TopicPosition(PLACE.topic, 1)
    target.sink().set_offsets({PLACE: 5})
    assert target.rows() == []
    late = target.sink()
    late.write(batch(record(0, {"id": 0}), record(1, {"id": 1})))
    late.flush()
    target.sink().set_offsets({PLACE: 1, other: 40})
    assert target.sink().resume([PLACE, other]) == {PLACE: 1, other: 40}
    late.write(batch(record(2, {"id": 2})))
    with pytest.raises(FencedOut):
        late.flush()
    target.write(record(0, {"id": 0}), record(1, {"id": 10}))
    assert sorted(each["id"] for each in target.rows()) == [0, 1, 10]
    target.sink().set_offsets({PLACE: None, other: 0})
    assert target.sink().resume([PLACE, other]) == {other: 0}


def build_again(target: TableTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a fresh table replaces an old one with other columns, also when that fails in between."""
    keyed = {"upsert": "true", "key.fields": "id", "topics": "orders"}
    target.write(record(0, {"id": 1, "v": 1, "gone": True}), record(1, {"id": 9, "v": 9}), **keyed)
    late = target.sink(**keyed)
    assert late.resume([PLACE]) == {PLACE: 2}
    late.write(batch(record(2, {"id": 3, "v": 3})))
    right = [{"id": each, "v": f"v{each}", "more": [each]} for each in range(3)]
    for point in ("switch-copied", "switch-committed", ""):
        fresh = target.sink(**keyed).fresh_target()
        fresh.open()
        begin = fresh.resume([PLACE])
        assert begin == ({} if point == "switch-copied" else {PLACE: 4})
        if not begin:
            fresh.write(batch(*(record(at, each) for at, each in enumerate(right)), record(3, None, {"id": 9})))
            fresh.flush()
        monkeypatch.setenv(VARIABLE, f"{point}:fail:{tmp_path / point}" if point else "")
        if point:
            with pytest.raises(PlantedFault):
                fresh.swap()
        else:
            fresh.swap()
        if point == "switch-copied":
            assert {each["id"] for each in target.rows()} == {1, 9}
        else:
            assert sorted(target.rows(), key=lambda row: int(row["id"])) == right
    assert {each["id"]: each["v"] for each in target.rows("orders__old_1")} == {1: 1, 9: 9}
    assert sorted(target.rows("orders__old_3"), key=lambda row: int(row["id"])) == right
    with pytest.raises(ConnectFailed):
        late.flush()
    goes_on = target.sink(**keyed)
    assert goes_on.resume([PLACE]) == {PLACE: 4}
    goes_on.write(batch(record(4, {"id": 2, "v": "new"})))
    goes_on.flush()
    assert {each["id"]: each["v"] for each in target.rows()} == {0: "v0", 1: "v1", 2: "new"}
    goes_on.drop_old()
    assert [target.rows(f"orders__old_{each}") for each in (1, 2, 3)] == [[], [], []]


def give_up_a_fresh_target(target: TableTarget) -> None:
    """Check that a fresh target is removed and can be begun again, and that nothing is swapped by mistake."""
    keyed = {"upsert": "true", "key.fields": "id", "topics": "orders"}
    target.write(record(0, {"id": 1}), **keyed)
    for _ in range(2):
        fresh = target.sink(**keyed).fresh_target()
        fresh.open()
        fresh.discard()
        assert fresh.resume([PLACE]) == {}
        with pytest.raises(ConnectFailed, match="no fresh table"):
            fresh.swap()
        fresh.write(batch(record(0, {"id": 2})))
        fresh.flush()
        fresh.discard()
    assert target.rows() == [{"id": 1}]
    with pytest.raises(ConnectFailed, match="no fresh target"):
        target.sink(**keyed).swap()
    with pytest.raises(ConnectFailed, match="upsert=true"):
        target.sink().fresh_target()
    with pytest.raises(ConnectFailed, match=r"topics\.regex"):
        target.sink(**keyed | {"topics": ""}).fresh_target()


def read_again_when_it_changed(target: TableTarget) -> None:
    """Check that a comparison sees what a task writes meanwhile."""
    keyed = {"upsert": "true", "key.fields": "id", "topics": "orders"}
    first, second = record(0, {"id": 1, "v": "a"}), record(1, {"id": 1, "v": "b"})
    target.write(first, **keyed)
    sink = target.sink(**keyed)
    before, after = sink.expected(first), sink.expected(second)
    assert sink.digests([before.key]) == {before.key: before.digest}
    target.write(second, **keyed)
    assert sink.digests([before.key]) == {before.key: after.digest}

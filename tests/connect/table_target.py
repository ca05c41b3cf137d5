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
from strandline.connect.failures import ConnectFailed
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

"""The generator: the same records for the same seed, wherever it is killed."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import pytest

from strandline.connect.failures import InvalidConnectorConfig
from strandline.connect.records import Batch
from strandline.connect.schema import TIMESTAMP, ConnectType
from strandline.connect.sources.generator import QUICKSTARTS, GeneratorSource

Offset = Mapping[str, Any]


class OneOffset:
    """The offset of one partition."""

    def __init__(self, offset: Offset | None = None) -> None:
        self.offset = offset

    def get(self, partition: Mapping[str, Any]) -> Offset | None:
        return self.offset

    def all(self) -> Sequence[tuple[Mapping[str, Any], Offset]]:
        return []


async def batches(offset: Offset | None = None, count: int | None = None, **settings: str) -> list[Batch]:
    properties = {"topic": "t", "rate": "0", **{name.replace("_", "."): value for name, value in settings.items()}}
    assert GeneratorSource.Config.errors_of(properties) == {}
    found: list[Batch] = []
    reading = GeneratorSource(GeneratorSource.Config(properties)).read(OneOffset(offset))
    async for batch in reading:
        assert isinstance(batch, Batch)
        found.append(batch)
        if len(found) == count:
            break
    await reading.aclose()  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize("quickstart", sorted(QUICKSTARTS))
async def test_a_template_goes_on_where_it_was_killed(quickstart: str) -> None:
    start = {"position": 0, "time_ms": 1_700_000_000_000}
    whole = await batches(start, quickstart=quickstart, iterations="1200", seed="7")
    assert [len(each.records) for each in whole] == [500, 500, 200]
    rest = await batches(whole[0].offset, quickstart=quickstart, iterations="1200", seed="7")
    assert [each.records for each in rest] == [each.records for each in whole[1:]]
    record = whole[0].records[0]
    assert record.value_schema is not None
    assert record.value_schema.kind == ConnectType.STRUCT
    assert [each.name for each in record.value_schema.fields] == list(record.value)
    assert record.key == record.value[QUICKSTARTS[quickstart][0]]
    assert record.value["address" if quickstart == "orders" else QUICKSTARTS[quickstart][0]]
    other = await batches(start, quickstart=quickstart, iterations="1200", seed="8")
    assert [each.value for each in other[0].records] != [each.value for each in whole[0].records]


async def test_tasks_have_sequences_of_their_own() -> None:
    config = GeneratorSource.Config({"topic": "t", "quickstart": "payments"})
    first, second = GeneratorSource.tasks(config, 2)
    (one,) = await batches(quickstart="payments", iterations="10", **first)
    (two,) = await batches(quickstart="payments", iterations="10", **second)
    assert one.partition != two.partition
    assert not {each.key for each in one.records} & {each.key for each in two.records}


async def test_fields_of_ones_own() -> None:
    schema = {
        "id": {"kind": "sequence", "start": 100},
        "n": {"kind": "int", "low": -2, "high": 2},
        "walk": {"kind": "walk", "low": 10, "high": 20, "digits": 3},
        "color": ["red", "green"],
        "code": {"kind": "pattern", "of": "A-##-??"},
        "at": {"kind": "timestamp"},
    }
    (batch,) = await batches(None, 1, schema=json.dumps(schema), key_field="id")
    values = [each.value for each in batch.records]
    assert [each["id"] for each in values] == list(range(100, 600)) == [each.key for each in batch.records]
    assert {each["n"] for each in values} == {-2, -1, 0, 1, 2}
    assert {each["color"] for each in values} == {"red", "green"}
    assert all(10 <= each["walk"] <= 20 for each in values)
    steps = [abs(first["walk"] - second["walk"]) for first, second in pairwise(values)]
    assert 0 < max(steps) < 2
    assert len({each["code"] for each in values}) > 450
    assert abs(values[0]["at"].timestamp() - time.time()) < 60
    assert batch.records[0].value_schema is not None
    assert batch.records[0].value_schema.fields[-1].schema.name == TIMESTAMP


async def test_the_rate_is_kept() -> None:
    begun = time.monotonic()
    found = await batches(quickstart="users", rate="1000", iterations="300")
    assert sum(len(each.records) for each in found) == 300
    assert 0.2 <= time.monotonic() - begun < 60
    last = found[-1].offset
    assert last is not None
    assert found[0].records[0].timestamp_ms is not None
    assert last["time_ms"] - found[0].records[0].timestamp_ms == pytest.approx(300, abs=2)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({}, "quickstart"),
        ({"quickstart": "nothing"}, "quickstart"),
        ({"quickstart": "users", "schema": "{}"}, "quickstart"),
        ({"schema": "{"}, "schema"),
        ({"schema": '{"a": {"kind": "unheard"}}'}, "schema"),
        ({"schema": '{"a": {"kind": "int", "top": 1}}'}, "schema"),
        ({"schema": '{"a": {"kind": "int", "low": 2, "high": 1}}'}, "schema"),
        ({"schema": '{"a": []}'}, "schema"),
        ({"quickstart": "users", "key.field": "x"}, "key.field"),
    ],
)
def test_wrong_settings_are_named(settings: Mapping[str, str], name: str) -> None:
    assert set(GeneratorSource.Config.errors_of({"topic": "t", **settings})) == {name}


def test_offsets_are_checked() -> None:
    GeneratorSource.check_offsets(None, [({"generator": 0}, {"position": 1, "time_ms": 1.5}), ({"generator": 1}, None)])
    for partition, offset in (({"x": 0}, {"position": 1}), ({"generator": 0}, {"position": -1, "time_ms": 0})):
        with pytest.raises(InvalidConnectorConfig):
            GeneratorSource.check_offsets(None, [(partition, offset)])

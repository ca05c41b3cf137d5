"""Change events through the converters with a registry: the row before and the row after have one name, two shapes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cdc.change_records import change, maker
from tests.clients.broker import shared_broker
from tests.registry.running_registry import RunningRegistry, running_registry

from strandline.cdc.model import UNKNOWN
from strandline.connect.convert.avro_schemas import AvroSchemas
from strandline.connect.convert.choosing import converter_of
from strandline.connect.convert.protobuf_schemas import ProtobufText
from strandline.connect.schema import INT32, STRING, array, struct


@pytest.fixture(scope="module")
def registry() -> Iterator[RunningRegistry]:
    with shared_broker() as bootstrap, running_registry(bootstrap) as found:
        yield found


@pytest.mark.parametrize("name", ["Avro", "JsonSchema", "Protobuf"])
def test_events_come_back_through_a_registry(name: str, registry: RunningRegistry) -> None:
    settings = {"schema.registry.url": registry.url}
    writer, reader = (converter_of(name, settings, False) for _ in range(2))
    topic = f"events-{name}"
    made = maker()
    events = [
        *made.change(change("c", after=(1, b"one", None, b"new"))),
        *made.change(change("d", (1, UNKNOWN, UNKNOWN, UNKNOWN)))[:1],
    ]
    for each in events:
        data = writer.from_connect(topic, each.value_schema, each.value)
        schema, found = reader.to_connect(topic, data)
        assert schema is not None
        for side in ("before", "after"):
            assert _present(found[side]) == _present(each.value[side])
        assert found["source"]["lsn"] == 8
        if name != "Protobuf":
            before, after = (schema.field(side) for side in ("before", "after"))
            assert before is not None
            assert after is not None
            assert before.schema.name == after.schema.name == "shop.public.customers.Value"
    status, versions = registry.ask("GET", f"/subjects/{topic}-value/versions")
    assert (status, versions) == (200, [1])
    writer.close()
    reader.close()


def _present(row: Any) -> Any:
    return None if row is None else {name: each for name, each in row.items() if each is not None}


def test_the_last_shape_of_a_name_keeps_it() -> None:
    (event,) = maker().change(change("c", after=(1, b"one", None, b"new")))
    assert event.value_schema is not None
    made = AvroSchemas().of(event.value_schema)
    before, after = (each["type"][1] for each in made["fields"][:2])
    assert (before["name"], after["name"]) == ("Value_before", "Value")
    assert before["namespace"] == after["namespace"] == "shop.public.customers"
    assert before["connect.name"] == after["connect.name"] == "shop.public.customers.Value"
    assert json.dumps(made) == json.dumps(AvroSchemas().of(event.value_schema)), "always the same"
    text = ProtobufText(event.value_schema).text
    assert "optional Value_before before = 1;" in text
    assert "optional Value after = 2;" in text


def test_shapes_of_a_name_are_told_apart_wherever_they_are() -> None:
    one, two, three = (struct({f"f{n}": STRING}, name="a.S") for n in range(3))
    taken = struct({"x": INT32}, name="a.S_p")
    schema = struct({"p": one, "q": array(two), "r": taken, "s": three, "t": one, "u": two}, name="a.Root")
    made = {each["name"]: each["type"] for each in AvroSchemas().of(schema)["fields"]}
    assert [made["p"]["name"], made["q"]["items"]["name"], made["r"]["name"], made["s"]["name"]] == [
        "S_p2",
        "S_q",
        "S_p",
        "S",
    ]
    assert (made["t"], made["u"]) == ("a.S_p2", "a.S_q")
    text = ProtobufText(schema).text
    for line in ("S_p2 p = 1;", "repeated S_q q = 2;", "S_p r = 3;", "S s = 4;", "S_p2 t = 5;", "S_q u = 6;"):
        assert line in text

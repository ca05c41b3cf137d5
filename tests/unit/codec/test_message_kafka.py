"""Records as Apache Kafka 4.3.1 writes them: the same bytes and the same values as its own classes.

kio, the oracle for requests and responses, does not know the records of the internal topics. `kafka_records.txt` holds
what Kafka's classes made of random values, with the values as Kafka's JSON converters print them.
"""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.unit.codec.message_values import message_classes, versions_of

from strandline.codec.message import Field, Message
from strandline.codec.message_codec import decode_exact, encode

CLASSES = {cls.__name__: cls for cls in message_classes()}


def recorded() -> list[Any]:
    lines = Path(__file__).with_name("kafka_records.txt").read_text().splitlines()
    cases = []
    for number, line in enumerate(lines, start=1):
        if not line.startswith("#"):
            name, version, text, values = line.split(" ", 3)
            raw = b"" if text == "-" else bytes.fromhex(text)
            cases.append(pytest.param(name, int(version), raw, values, id=f"{name}-{version}-line{number}"))
    return cases


CASES = recorded()


@pytest.mark.parametrize(("name", "version", "raw", "values"), CASES)
def test_same_bytes_and_values_as_kafka(name: str, version: int, raw: bytes, values: str) -> None:
    message = decode_exact(CLASSES[name], version, raw)
    assert_values(message, json.loads(values))
    assert encode(message, version) == raw


OUR_OWN = {"SinkDecisionKey", "SinkDecisionValue"}
"""Records that Kafka does not have."""


def test_every_record_in_every_version_was_recorded() -> None:
    expected = {
        (name, version)
        for name, cls in CLASSES.items()
        if not name.endswith(("Request", "Response")) and name not in OUR_OWN
        for version in versions_of(cls)
    }
    assert {(case.values[0], case.values[1]) for case in CASES} == expected


def assert_values(message: Message, values: dict[str, Any]) -> None:
    """Kafka prints every field of the version, but not the tagged ones that are at their default."""
    fields = {field.name: field for field in message.FIELDS}
    for camel, value in values.items():
        name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", camel.replace("kRaft", "kraft").replace("KRaft", "Kraft")).lower()
        assert_value(fields[name], fields[name].kafka_type, getattr(message, name), value)


def assert_value(field: Field, kafka_type: str, ours: Any, theirs: Any) -> None:
    if ours is None or theirs is None:
        assert ours is theirs, field.name
    elif kafka_type.startswith("[]"):
        assert len(ours) == len(theirs), field.name
        for our_item, their_item in zip(ours, theirs, strict=True):
            assert_value(field, kafka_type[2:], our_item, their_item)
    elif kafka_type == "struct":
        assert_values(ours, theirs)
    elif kafka_type == "uuid":
        assert ours.bytes == base64.urlsafe_b64decode(theirs + "=="), field.name
    elif kafka_type == "bytes":
        assert ours == base64.b64decode(theirs), field.name
    else:
        assert ours == theirs, field.name

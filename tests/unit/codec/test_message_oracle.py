"""Our codec beside kio's, an independent one: the same bytes for every message, in every version that kio has.

kio reads some numbers as error codes, durations and points in time, and refuses values that these cannot hold (Kafka's
own -1 among them). Our messages are fitted to that before they are compared; the wire knows only integers.
"""

from __future__ import annotations

import dataclasses
import io
import random
import re
import typing
from typing import Any

import pytest
from kio.index import load_entity_schema
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType
from tests.unit.codec.message_values import every_class_and_version, random_message

from strandline.codec.message import Message
from strandline.codec.message_codec import decode_exact, encode

SEED = 20_240_613
MESSAGES_PER_VERSION = 6
TIME_MAX_MS = 4_000_000_000_000


def kio_name(cls: type[Message]) -> tuple[str, EntityType] | None:
    """The name and type under which kio knows `cls`, if it does."""
    for suffix, entity_type in (("Request", EntityType.request), ("Response", EntityType.response)):
        if cls.__name__.endswith(suffix):
            name = re.sub(r"(?<=.)(?=[A-Z])", "_", cls.__name__.removesuffix(suffix)).lower()
            return (name, entity_type) if name in schema_name_map else None
    name = re.sub(r"(?<=.)(?=[A-Z])", "_", cls.__name__).lower()
    if name in schema_name_map:
        return name, EntityType.header if cls.__name__.endswith("Header") else EntityType.data
    return None


CASES = [
    pytest.param(cls, version, *named, id=f"{cls.__name__}-{version}")
    for cls, version in every_class_and_version()
    if (named := kio_name(cls)) is not None and version in schema_name_map[named[0]]
]


def fit(message: Message, version: int, theirs: Any) -> None:
    """Move numbers that kio gives a narrower meaning into what that meaning can hold."""
    fields = [field for field in message.FIELDS if field.present(version)]
    hints = typing.get_type_hints(theirs)
    their_fields = dataclasses.fields(theirs)
    assert len(fields) == len(their_fields), f"{type(message).__name__} has other fields than kio's"
    for field, their_field in zip(fields, their_fields, strict=True):
        value = getattr(message, field.name)
        kind = their_field.metadata.get("kafka_type")
        if kind == "error_code":
            value = [code % 100 for code in value] if isinstance(value, list) else value % 100
        elif kind in ("timedelta_i64", "datetime_i64"):
            value %= TIME_MAX_MS
        elif field.struct is not None and value is not None:
            inner = inner_entity(hints[their_field.name])
            for part in value if isinstance(value, list) else [value]:
                fit(part, version, inner)
        setattr(message, field.name, value)


def inner_entity(hint: Any) -> Any:
    if dataclasses.is_dataclass(hint):
        return hint
    found = [inner for part in typing.get_args(hint) if (inner := inner_entity(part)) is not None]
    return found[0] if found else None


OUR_OWN = {
    f"{name}{kind}"
    for name in (
        *("CommitBatch", "GroupHistory", "GroupLag", "TransactionProgress", "ListSinks", "DeleteSink", "RecordCounts"),
        *("DescribeStorage", "CompactPartitions", "ScrubPartitions", "ResignLeadership", "AppendAudit", "FindAnchors"),
        *("ShareDelivery", "MetricsHistory"),
    )
    for kind in ("Request", "Response")
}
"""Kafka has nothing of the kind."""


def test_every_request_and_response_has_an_oracle() -> None:
    compared = {case.values[0] for case in CASES}
    alone = {cls.__name__ for cls, _ in every_class_and_version() if cls not in compared} - OUR_OWN
    assert not [name for name in alone if name.endswith(("Request", "Response"))]
    assert {"RequestHeader", "ResponseHeader", "VotersRecord", "LeaderChangeMessage"}.isdisjoint(alone)


@pytest.mark.lengthy("thousands of cases beside another implementation")
@pytest.mark.parametrize(("cls", "version", "name", "entity_type"), CASES)
def test_same_bytes_as_kio(cls: type[Message], version: int, name: str, entity_type: EntityType) -> None:
    theirs = load_entity_schema(name, version, entity_type)
    rng = random.Random(f"{SEED} {cls.__name__} {version}")
    for number in range(MESSAGES_PER_VERSION):
        message = cls() if number == 0 else random_message(cls, version, rng)
        fit(message, version, theirs)
        ours = encode(message, version)
        parsed, size = entity_reader(theirs)(ours, 0)
        assert size == len(ours), f"kio reads {size} of {len(ours)} bytes, seed {SEED}"
        written = io.BytesIO()
        entity_writer(theirs)(written, parsed)
        assert written.getvalue() == ours, f"seed {SEED}"
        assert decode_exact(cls, version, written.getvalue()) == message, f"seed {SEED}"

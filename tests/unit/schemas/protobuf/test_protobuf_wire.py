"""What is called compatible is: bytes written by the old schema are read by the new one, field by field."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from google.protobuf import message_factory
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet
from tests.unit.schemas.protobuf.test_protobuf_verdicts import KIND_OF, parse

from strandline.schemas.protobuf.engine import ParsedProtobufSchema

NUMBERS = range(1, 7)
KEYS = ("int32", "string", "uint64", "bool")


def schema(random: Random) -> dict[int, dict[str, Any]]:
    """Return the fields of a random message by number."""
    return {number: _field(random) for number in NUMBERS if random.random() < 0.7}


def _field(random: Random) -> dict[str, Any]:
    shape = random.choices(("singular", "optional", "repeated", "map", "oneof"), (4, 1, 2, 1, 3))[0]
    return {
        "type": random.choice((*KIND_OF, "Inner", "Other")),
        "shape": shape,
        "key": random.choice(KEYS),
        "oneof": random.choice("po"),
    }


def edited(random: Random, fields: dict[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
    new = {number: dict(field) for number, field in fields.items()}
    for _ in range(random.randint(1, 3)):
        number = random.choice(NUMBERS)
        other = _field(random)
        if number not in new:
            new[number] = other
        elif random.random() < 0.2:
            del new[number]
        else:
            what = random.choice(("type", "type", "shape", "key", "oneof"))
            new[number][what] = other[what]
    return new


def text(fields: dict[int, dict[str, Any]], inner: str) -> str:
    lines = []
    oneofs: dict[str, list[str]] = {}
    for number, field in fields.items():
        match field["shape"]:
            case "map":
                lines.append(f"map<{field['key']}, {field['type']}> f{number} = {number};")
            case "oneof":
                oneofs.setdefault(field["oneof"], []).append(f"{field['type']} f{number} = {number};")
            case "singular":
                lines.append(f"{field['type']} f{number} = {number};")
            case label:
                lines.append(f"{label} {field['type']} f{number} = {number};")
    lines += [f"oneof {name} {{ {' '.join(members)} }}" for name, members in oneofs.items()]
    rest = f"enum E {{ ZERO = 0; ONE = 1; }} message Inner {{ {inner} x = 1; }} message Other {{ {inner} x = 1; }}"
    return f'syntax = "proto3"; message M {{ {" ".join(lines)} }} {rest}'


def message_class(parsed: ParsedProtobufSchema) -> Any:
    return message_factory.GetMessageClass(parsed.linked.pool().FindMessageTypeByName("M"))


def value(random: Random, field: Any) -> Any:
    match field.cpp_type:
        case field.CPPTYPE_STRING:
            made = random.choice(("", "a", "é", "xyz"))
            return made.encode() if field.type == field.TYPE_BYTES else made
        case field.CPPTYPE_BOOL:
            return random.random() < 0.5
        case field.CPPTYPE_DOUBLE | field.CPPTYPE_FLOAT:
            return random.choice((0.0, 1.5, -2.0))
        case field.CPPTYPE_INT32 | field.CPPTYPE_INT64:
            return random.choice((0, 1, -1, 127, 300, -(2**31)))
    return random.choice((0, 1, 127, 300)) if field.cpp_type != field.CPPTYPE_ENUM else random.choice((0, 1))


def fill(random: Random, message: Any) -> None:
    for field in message.DESCRIPTOR.fields:
        if random.random() < 0.2:
            continue
        holder = getattr(message, field.name)
        if is_map(field):
            key, inner = (field.message_type.fields_by_name[name] for name in ("key", "value"))
            if inner.message_type is None:
                holder[value(random, key)] = value(random, inner)
            else:
                fill(random, holder[value(random, key)])
        elif field.message_type is not None:
            fill(random, holder.add() if field.is_repeated else holder)
        elif field.is_repeated:
            holder.extend(value(random, field) for _ in range(random.randint(0, 3)))
        else:
            setattr(message, field.name, value(random, field))


def is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def meanings(values: list[Any], *types: Any) -> list[Any]:
    """Return values as far as all of `types` can hold them."""
    if any(each.type == each.TYPE_BOOL for each in types):
        return [bool(each) for each in values]
    if types[0].cpp_type == types[0].CPPTYPE_STRING:
        return [each.encode() if isinstance(each, str) else each for each in values]
    return [each if isinstance(each, float) else each & 0xFFFFFFFF for each in values]


def lost(written: Message, read: Message) -> list[str]:
    """Return the fields that the reader declares and did not get."""
    declared = {field.number for field in read.DESCRIPTOR.fields}
    wrong = [f"{each.field_number} is unknown" for each in UnknownFieldSet(read) if each.field_number in declared]
    new = read.DESCRIPTOR.fields_by_number
    for field, content in written.ListFields():
        other = new.get(field.number)
        if other is None or field.is_repeated != other.is_repeated:
            continue
        got = getattr(read, other.name)
        if field.message_type is not None and not field.is_repeated:
            wrong += lost(content, got)
        elif field.message_type is None:
            before, after = ([each] if not field.is_repeated else list(each) for each in (content, got))
            if meanings(before, field, other) != meanings(after, field, other):
                wrong.append(f"{field.number} is {got!r}, and was {content!r}")
        # A map with keys of a narrower type may join entries.
        elif not is_map(field) and len(content) != len(got):
            wrong.append(f"{field.number} has {len(got)} items, and had {len(content)}")
    return wrong


def check(seed: int, count: int) -> Counter[str]:
    random = Random(seed)
    counted = Counter[str]()
    for _ in range(count):
        inner = random.choice(("int32", "string"))
        fields = schema(random)
        old_text = text(fields, inner)
        new_text = text(edited(random, fields), inner if random.random() < 0.9 else "double")
        old, new = parse(old_text), parse(new_text)
        counted["pairs"] += 1
        if new.differences(old):
            continue
        counted["compatible"] += 1
        writer, reader = message_class(old), message_class(new)
        for _ in range(4):
            written = writer()
            fill(random, written)
            wrong = lost(written, reader.FromString(written.SerializeToString()))
            assert not wrong, f"seed {seed}: {wrong}\n{old_text}\n{new_text}"
            counted["messages"] += 1
    return counted


@pytest.mark.lengthy("hundreds of random changes")
def test_bytes_of_the_old_schema_are_read_by_a_compatible_one() -> None:
    counted = check(seed=20261117, count=700)
    assert counted["compatible"] > counted["pairs"] / 5


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_bytes_of_many_seeds(seed: int) -> None:
    check(seed, count=5_000)

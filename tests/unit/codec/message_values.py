"""Random messages for the codec's tests: every field of a version gets a value, edges come often."""

from __future__ import annotations

import importlib
import pkgutil
import random
import uuid
from typing import Any

import strandline.codec.messages
from strandline.codec.message import Field, Message

_BITS = {"int8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "int64": 64}


def message_classes() -> list[type[Message]]:
    """Every generated message, without the structs inside them."""
    classes: list[type[Message]] = []
    for module in pkgutil.iter_modules(strandline.codec.messages.__path__):
        if module.name == "index":
            continue
        loaded = importlib.import_module(f"strandline.codec.messages.{module.name}")
        named = [thing for thing in vars(loaded).values() if isinstance(thing, type) and issubclass(thing, Message)]
        # The message itself stands last, after the structs it is made of.
        classes.append(named[-1])
    return classes


def versions_of(cls: type[Message]) -> range:
    return range(cls.VERSION_MIN, cls.VERSION_MAX + 1)


def every_class_and_version() -> list[tuple[type[Message], int]]:
    return [(cls, version) for cls in message_classes() for version in versions_of(cls)]


def random_message(cls: type[Message], version: int, rng: random.Random, depth: int = 0) -> Any:
    """A message whose fields of `version` are random and whose other fields are at their defaults."""
    message = cls()
    for field in cls.FIELDS:
        if field.present(version):
            setattr(message, field.name, random_field(field, version, rng, depth))
    return message


def random_field(field: Field, version: int, rng: random.Random, depth: int) -> Any:
    if field.nullable(version) and rng.random() < 0.25:
        return None
    if field.tag is not None and rng.random() < 0.25:
        return default_of(field)
    if field.kafka_type.startswith("[]"):
        element = field.kafka_type[2:]
        lengths = [0, 1, 2, 3, 40, 130] if element != "struct" else ([0, 1, 2, 3] if depth else [0, 1, 2, 130])
        weights = [2, 6, 4, 2, 1, 1] if element != "struct" else ([2, 6, 2, 1] if depth else [2, 9, 4, 0.2])
        count = rng.choices(lengths, weights)[0]
        return [random_value(element, field, version, rng, depth + 1) for _ in range(count)]
    return random_value(field.kafka_type, field, version, rng, depth + 1)


def default_of(field: Field) -> Any:
    """The default of a field as a fresh value."""
    if field.default != ():
        return field.default
    if field.kafka_type.startswith("[]"):
        return []
    assert field.struct is not None
    return field.struct()


def random_value(kafka_type: str, field: Field, version: int, rng: random.Random, depth: int) -> Any:
    if kafka_type == "struct":
        assert field.struct is not None
        return random_message(field.struct, version, rng, depth)
    if kafka_type == "string":
        length = rng.choices([0, 5, 126, 127, 128, 300], [2, 10, 1, 1, 1, 1])[0]
        return "".join(rng.choice("abcxyz0189._-äß漢🜁") for _ in range(length))
    if kafka_type in ("bytes", "records"):
        return rng.randbytes(rng.choices([0, 5, 126, 127, 300], [2, 8, 1, 1, 1])[0])
    if kafka_type == "bool":
        return rng.random() < 0.5
    if kafka_type == "uuid":
        return uuid.UUID(int=rng.choice([0, 1, rng.getrandbits(128)]))
    if kafka_type == "float64":
        return rng.choice([0.0, -1.5, 1e300, rng.random()])
    return random_integer(kafka_type, rng)


def random_integer(kafka_type: str, rng: random.Random) -> int:
    bits = _BITS[kafka_type]
    low, high = (0, 2**bits - 1) if kafka_type.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return rng.choice([0, 1, low, high, rng.randint(low, high), rng.randint(0, min(high, 1000))])

"""Kinds of generated fields: each is a function of the seed and the record's number, so a restart gives the same ones.

    {"id": {"kind": "sequence"}, "price": {"kind": "walk", "low": 10, "high": 20}, "color": ["red", "green"]}

A list is short for a choice.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from zlib import crc32

from strandline.connect.failures import InvalidConnectorConfig
from strandline.connect.schema import (
    BOOLEAN,
    FLOAT64,
    INT64,
    STRING,
    TIMESTAMP_SCHEMA,
    Schema,
    struct,
)

_MASK: Final = 2**64 - 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_WALK_STEPS: Final = (4, 16, 64, 256)
"""Lengths of the waves that a walk is the sum of, in records."""
_FIRST_NAMES: Final = (
    *("Ada", "Amara", "Ben", "Carla", "Chen", "David", "Elif", "Emma", "Farid", "Grace", "Hana", "Ivan", "Jonas"),
    *("Kwame", "Lea", "Luis", "Maria", "Mehmet", "Nina", "Noor", "Olga", "Paul", "Priya", "Sofia", "Tom", "Yuki"),
)
_LAST_NAMES: Final = (
    *("Adeyemi", "Alvarez", "Bauer", "Chen", "Costa", "Demir", "Fischer", "Garcia", "Haddad", "Ivanova", "Jansen"),
    *("Khan", "Kim", "Lopez", "Martin", "Nowak", "Okafor", "Patel", "Rossi", "Sato", "Schmidt", "Silva", "Smith"),
)


@dataclass(frozen=True)
class Moment:
    """What a field is made of: the number of the record, its random bits, its time, and the fields before it."""

    index: int
    seed: int
    time_ms: int
    record: Mapping[str, Any]


Maker = Callable[[Moment], Any]


def mixed(*numbers: int) -> int:
    """Return 64 random-looking bits of some numbers (SplitMix64)."""
    state = 0
    for each in numbers:
        state = (state + each + 0x9E3779B97F4A7C15) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        state ^= state >> 31
    return state


class GeneratedField:
    """A field of generated records."""

    def __init__(self, name: str, spec: Any) -> None:
        """Raise InvalidConnectorConfig if the description is not understood."""
        self.name = name
        self._salt = crc32(name.encode())
        described = {"kind": "choice", "of": spec} if isinstance(spec, list) else spec
        kind = described.get("kind") if isinstance(described, dict) else None
        if not isinstance(kind, str) or kind not in _KINDS:
            raise self.wrong(f"the kind is one of {', '.join(_KINDS)}")
        self._spec: Mapping[str, Any] = described
        names, make = _KINDS[kind]
        unknown = set(described) - {"kind", *names}
        if unknown:
            raise self.wrong(f"{kind} has no {', '.join(sorted(unknown))}")
        self.schema, self._make = make(self)

    def value(self, moment: Moment) -> Any:
        """Return the value of one record."""
        return self._make(moment)

    def bits(self, moment: Moment, *more: int) -> int:
        """Return random bits of this field in one record."""
        return mixed(moment.seed, self._salt, moment.index, *more)

    def part(self, moment: Moment) -> float:
        """Return a random number from 0 to below 1."""
        return (self.bits(moment) >> 11) / 2**53

    def option(self, name: str, default: Any, kind: type | tuple[type, ...]) -> Any:
        """Return a part of the description."""
        value = self._spec.get(name, default)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.wrong(f"{name} has the wrong type")
        return value

    def bounds(self, kind: type | tuple[type, ...], high: float) -> tuple[Any, Any]:
        """Return the lowest and the highest value."""
        found = self.option("low", 0, kind), self.option("high", high, kind)
        if found[0] > found[1]:
            raise self.wrong("low is more than high")
        return found

    def noise(self, moment: Moment, by: str | None) -> float:
        """Return a number from 0 to 1 that is near that of the record before."""
        thread = 0 if by is None else crc32(str(moment.record.get(by)).encode())
        total = weight = 0.0
        for step in _WALK_STEPS:
            cell, within = divmod(moment.index, step)
            first = mixed(moment.seed, self._salt, thread, step, cell) / _MASK
            second = mixed(moment.seed, self._salt, thread, step, cell + 1) / _MASK
            smooth = (1 - math.cos(math.pi * within / step)) / 2
            total += step * (first + (second - first) * smooth)
            weight += step
        return total / weight

    def wrong(self, why: str) -> InvalidConnectorConfig:
        """Return an error that names the field."""
        return InvalidConnectorConfig(f"Invalid value for configuration schema: the field {self.name}: {why}")


def _int(field: GeneratedField) -> tuple[Schema, Maker]:
    low, high = field.bounds(int, 1000)
    return INT64, lambda moment: low + field.bits(moment) % (high - low + 1)


def _float(field: GeneratedField) -> tuple[Schema, Maker]:
    low, high = field.bounds((int, float), 1)
    digits = field.option("digits", 2, int)
    return FLOAT64, lambda moment: round(low + (high - low) * field.part(moment), digits)


def _walk(field: GeneratedField) -> tuple[Schema, Maker]:
    low, high = field.bounds((int, float), 100)
    digits = field.option("digits", 2, int)
    by = field.option("by", None, (str, type(None)))
    return FLOAT64, lambda moment: round(low + (high - low) * field.noise(moment, by), digits)


def _boolean(field: GeneratedField) -> tuple[Schema, Maker]:
    share = field.option("share", 0.5, (int, float))
    return BOOLEAN, lambda moment: field.part(moment) < share


def _choice(field: GeneratedField) -> tuple[Schema, Maker]:
    values: Sequence[Any] = field.option("of", None, list)
    if not values or len({type(each) for each in values}) > 1 or not isinstance(values[0], str | int | float):
        raise field.wrong("of is a list of texts, or of numbers")
    schema = {str: STRING, bool: BOOLEAN, int: INT64, float: FLOAT64}[type(values[0])]
    return schema, lambda moment: values[field.bits(moment) % len(values)]


def _sequence(field: GeneratedField) -> tuple[Schema, Maker]:
    start = field.option("start", 1, int)
    return INT64, lambda moment: start + moment.index


def _name(field: GeneratedField) -> tuple[Schema, Maker]:
    return STRING, lambda moment: " ".join(_name_parts(field.bits(moment)))


def _email(field: GeneratedField) -> tuple[Schema, Maker]:
    return STRING, lambda moment: ".".join(_name_parts(field.bits(moment))).lower() + "@example.com"


def _name_parts(bits: int) -> tuple[str, str]:
    last, first = divmod(bits, len(_FIRST_NAMES))
    return _FIRST_NAMES[first], _LAST_NAMES[last % len(_LAST_NAMES)]


def _uuid(field: GeneratedField) -> tuple[Schema, Maker]:
    return STRING, lambda moment: str(uuid.UUID(int=field.bits(moment, 0) << 64 | field.bits(moment, 1), version=4))


def _timestamp(field: GeneratedField) -> tuple[Schema, Maker]:
    late = field.option("late_ms", 0, int)
    return (
        TIMESTAMP_SCHEMA,
        lambda moment: (
            _EPOCH + timedelta(milliseconds=moment.time_ms - (field.bits(moment) % (late + 1) if late else 0))
        ),
    )


def _pattern(field: GeneratedField) -> tuple[Schema, Maker]:
    pattern = field.option("of", None, str)

    def make(moment: Moment) -> str:
        bits, text = field.bits(moment), []
        for position, each in enumerate(pattern):
            base = {"#": 10, "?": 26}.get(each)
            if base is None:
                text.append(each)
                continue
            if position % 8 == 7:
                bits = mixed(bits)
            bits, digit = divmod(bits, base)
            text.append(str(digit) if base == 10 else chr(ord("A") + digit))
        return "".join(text)

    return STRING, make


def _nested(field: GeneratedField) -> tuple[Schema, Maker]:
    fields = fields_of(field.option("fields", None, dict), prefix=f"{field.name}.")
    schema = struct({each.name.rpartition(".")[2]: each.schema for each in fields})
    return schema, lambda moment: {each.name.rpartition(".")[2]: each.value(moment) for each in fields}


_Make = Callable[[GeneratedField], tuple[Schema, Maker]]
_KINDS: Final[Mapping[str, tuple[tuple[str, ...], _Make]]] = {
    "int": (("low", "high"), _int),
    "float": (("low", "high", "digits"), _float),
    "walk": (("low", "high", "digits", "by"), _walk),
    "boolean": (("share",), _boolean),
    "choice": (("of",), _choice),
    "sequence": (("start",), _sequence),
    "name": ((), _name),
    "email": ((), _email),
    "uuid": ((), _uuid),
    "timestamp": (("late_ms",), _timestamp),
    "pattern": (("of",), _pattern),
    "struct": (("fields",), _nested),
}


def fields_of(schema: Any, *, prefix: str = "") -> list[GeneratedField]:
    """Return the fields of a description. Raise InvalidConnectorConfig if it is not understood."""
    if not isinstance(schema, dict) or not schema:
        raise InvalidConnectorConfig("Invalid value for configuration schema: it is an object of fields")
    return [GeneratedField(f"{prefix}{name}", spec) for name, spec in schema.items()]

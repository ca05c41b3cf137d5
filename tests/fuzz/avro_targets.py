"""Avro values of strangers, as a source reads them: all fields, some of them, and through a newer schema."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tests.fuzz.engine import Target
from tests.unit.schemas.arrow.decoder_cases import COMPILED, PLAIN, program_of, read, record, using, written

INNER = record(("x", ["null", "double"]), ("y", {"type": "map", "values": "bytes"}), name="Inner")
WRITER = record(
    ("id", "long"),
    ("name", "string"),
    ("kind", {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}),
    ("price", {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}),
    ("items", {"type": "array", "items": INNER}),
    ("next", ["null", "R"]),
)
NEWER = record(("x", ["null", "double"]), {"name": "z", "type": "int", "default": 7}, name="Inner")
READER = record(
    ("items", {"type": "array", "items": NEWER}),
    ("kind", {"type": "enum", "name": "Kind", "symbols": ["B"], "default": "B"}),
    ("name", "bytes"),
    ("price", {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}),
    {"name": "added", "type": {"type": "array", "items": "string"}, "default": ["a"]},
)


def some_value(rng: random.Random) -> bytes:
    def row(depth: int) -> dict[str, Any]:
        return {
            "id": rng.randrange(-(2**63), 2**63),
            "name": "é" * rng.randrange(20),
            "kind": rng.choice("AB"),
            "price": rng.randbytes(rng.randrange(1, 8)),
            "items": [{"x": rng.choice((None, 0.5)), "y": {"k": b"v"}} for _ in range(rng.randrange(4))],
            "next": row(depth - 1) if depth else None,
        }

    plain = record(*((each["name"], "bytes" if each["name"] == "price" else each["type"]) for each in WRITER["fields"]))
    return written(plain, row(rng.randrange(3)))


def reads(twin: ModuleType) -> Callable[[bytes], None]:
    program = program_of(WRITER, READER)

    def read_one(data: bytes) -> None:
        with using(twin):
            rows, reasons = read(program, [data, b"", data])
        # Not by ==, because a number may be NaN.
        assert repr(rows[0]) == repr(rows[2])
        assert (rows[0] is None) == (reasons[0] is not None)
        assert reasons[1] is not None

    return read_one


def avro_targets() -> list[Target]:
    targets = [Target("Avro value, plain twin", reads(PLAIN), (), some_value)]
    return targets if COMPILED is None else [*targets, Target("Avro value", reads(COMPILED), (), some_value)]

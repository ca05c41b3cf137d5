"""Avro values to an Arrow table: our decoder beside fastavro's `schemaless_reader` with `Table.from_pylist`.

Both read the same values by the same schemas in turn, in this process; what counts is CPU time. No broker takes part.
"""

from __future__ import annotations

import io
import json
import random
import time
from collections.abc import Callable
from typing import Any

from bench.figures import Figure, Samples, ratio_at_least
from bench.stage import Stage

NAME = "avro-arrow"
SUMMARY = "Avro values to Arrow columns, beside fastavro and Table.from_pylist, rows per CPU second"
ROWS = 100_000
ROUNDS = 5
OURS, THEIRS = "strandline", "fastavro"


def run(stage: Stage) -> list[Figure]:
    rows = stage.scaled(ROWS, 2_000)
    figures = []
    for name, writer, reader, make in SHAPES:
        samples = Samples()
        ours, theirs = _contenders(writer, reader, [make(random.Random(number), number) for number in range(rows)])
        assert ours().to_pylist()[:100] == theirs().to_pylist()[:100]
        for number in range(1 + stage.scaled(ROUNDS, 1)):
            for contender, read in ((OURS, ours), (THEIRS, theirs)):
                began = time.process_time()
                found = read()
                spent = time.process_time() - began
                assert len(found) == rows
                if number:  # The first round warms up.
                    samples.add(contender, {"rows": rows / spent})
        figures.append(
            Figure(
                name,
                "rows/CPU-s",
                samples.of(OURS, "rows"),
                beside=samples.of(THEIRS, "rows"),
                beside_name=THEIRS,
                target=ratio_at_least(5.0),
                note=f"{rows:,} values, in one process",
            )
        )
    return figures


def _contenders(writer: Any, reader: Any, rows: list[Any]) -> tuple[Callable[[], Any], Callable[[], Any]]:
    import fastavro
    import pyarrow as pa

    from strandline.schemas.engines import SchemaSource
    from strandline.spark.registry.reader_schema import ReaderSchema
    from strandline.spark.registry.values import AvroValues

    class OneSchema:
        def writers(self, context: str, ids: Any) -> dict[int, SchemaSource]:
            return {each: SchemaSource("AVRO", json.dumps(writer)) for each in ids}

    written_by, read_by = fastavro.parse_schema(writer), fastavro.parse_schema(reader)
    values = []
    for row in rows:
        out = io.BytesIO(b"\0\0\0\0\1")
        out.seek(5)
        fastavro.schemaless_writer(out, written_by, row)
        values.append(out.getvalue())
    column = pa.array(values, pa.binary())
    parser = AvroValues(ReaderSchema(SchemaSource("AVRO", json.dumps(reader))), OneSchema())  # type: ignore[arg-type]
    schema = pa.schema(list(parser.type))

    def ours() -> Any:
        structs, reasons = parser.parsed(column)
        assert reasons.null_count == len(reasons)
        return pa.Table.from_batches([pa.RecordBatch.from_struct_array(structs)])

    def theirs() -> Any:
        read = fastavro.schemaless_reader
        objects = []
        for value in values:
            source = io.BytesIO(value)
            source.seek(5)
            objects.append(read(source, written_by, read_by))
        return pa.Table.from_pylist(objects, schema=schema)

    return ours, theirs


def _record(name: str, *fields: tuple[Any, ...]) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [
            {"name": each[0], "type": each[1]} | ({"default": each[2]} if len(each) > 2 else {}) for each in fields
        ],
    }


_TIME = {"type": "long", "logicalType": "timestamp-millis"}
_FLAT = (
    ("id", "long"),
    ("customer", "string"),
    ("amount", "double"),
    ("quantity", "int"),
    ("paid", "boolean"),
    ("at", _TIME),
    ("note", ["null", "string"]),
    ("state", {"type": "enum", "name": "State", "symbols": ["new", "paid", "sent"]}),
)


def _flat(rng: random.Random, number: int) -> dict[str, Any]:
    return {
        "id": number,
        "customer": f"customer-{rng.randrange(10_000)}",
        "amount": rng.random() * 100,
        "quantity": rng.randrange(100),
        "paid": rng.random() < 0.5,
        "at": 1_767_225_600_000 + number,
        "note": None if number % 3 else "leave it at the door",
        "state": ("new", "paid", "sent")[number % 3],
    }


def _nested(rng: random.Random, number: int) -> dict[str, Any]:
    lines = [{"sku": f"sku-{rng.randrange(1000)}", "count": rng.randrange(9), "price": 9.5} for _ in range(number % 6)]
    return {"id": number, "lines": lines, "labels": ["a", "bc"], "address": {"city": "Bern", "zip": 3000}}


_LINE = _record("Line", ("sku", "string"), ("count", "int"), ("price", "double"))
_NESTED = _record(
    "Order",
    ("id", "long"),
    ("lines", {"type": "array", "items": _LINE}),
    ("labels", {"type": "array", "items": "string"}),
    ("address", ["null", _record("Address", ("city", "string"), ("zip", "int"))]),
)
_EVOLVED = _record(
    "Order",
    ("state", {"type": "enum", "name": "State", "symbols": ["sent", "new", "paid"]}),
    ("quantity", "long"),
    ("id", "long"),
    ("channel", "string", "web"),
    ("discount", ["null", "double"], None),
    ("at", _TIME),
    ("customer", "string"),
)

SHAPES: tuple[tuple[str, Any, Any, Callable[[random.Random, int], dict[str, Any]]], ...] = (
    ("orders of eight fields", _record("Order", *_FLAT), _record("Order", *_FLAT), _flat),
    ("orders, resolved to a newer schema", _record("Order", *_FLAT), _EVOLVED, _flat),
    ("orders with lists of lines", _NESTED, _NESTED, _nested),
)

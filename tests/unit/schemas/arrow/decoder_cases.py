"""Both twins of the Avro decoder, and a short way through the whole of it."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import fastavro
import numpy as np
from tests.unit.twins import as_parameters, load_plain

from strandline.schemas.arrow import _decode, decoding
from strandline.schemas.arrow.columns import ColumnTree
from strandline.schemas.arrow.program import Program, compile_program
from strandline.schemas.avro.engine import AvroType

PLAIN = load_plain(Path(decoding.__file__).with_name("_decode.py"))
COMPILED = _decode if _decode.is_compiled() else None
TWINS = as_parameters(PLAIN, COMPILED)


@contextmanager
def using(twin: ModuleType) -> Iterator[None]:
    """Decode with this twin, whichever the installation has chosen."""
    chosen = decoding._decode
    decoding._decode = twin
    try:
        yield
    finally:
        decoding._decode = chosen


def program_of(writer: Any, reader: Any) -> Program:
    engine = AvroType()
    node = engine.parse(json.dumps(writer), {}).node
    return compile_program(node, ColumnTree(engine.parse(json.dumps(reader), {}).node))


def read(program: Program, payloads: Sequence[bytes]) -> tuple[list[Any], list[str | None]]:
    """Return rows, and for each why it is null."""
    bounds = np.cumsum([0, *(len(each) for each in payloads)], dtype=np.int64)
    data = np.frombuffer(b"".join(payloads), np.uint8)
    rows, codes = decoding.decode(program, data, bounds[:-1], bounds[1:])
    rows.validate(full=True)
    return rows.to_pylist(), [program.reason(code) if code else None for code in codes.tolist()]


def written(schema: Any, value: Any) -> bytes:
    """Return a value as fastavro writes it."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return out.getvalue()


def record(*fields: Any, name: str = "R") -> dict[str, Any]:
    """Return a record of fields, each (name, type) or a whole field."""
    return {
        "type": "record",
        "name": name,
        "fields": [each if isinstance(each, dict) else {"name": each[0], "type": each[1]} for each in fields],
    }


def resolved(twin: ModuleType, writer: Any, reader: Any, *values: Any) -> list[Any]:
    """Write values with one schema, read them with another, and return the rows; none may fail."""
    with using(twin):
        rows, reasons = read(program_of(writer, reader), [written(writer, each) for each in values])
    assert reasons == [None] * len(values)
    return rows

"""A column of values with schema ids to columns: grouped by id, each group by the program of its writer's schema.

A value that can not be read is null, and has a reason. Null values are null and have none.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from strandline.schemas.arrow.buffers import gathered, indices, texts
from strandline.schemas.arrow.columns import ColumnTree
from strandline.schemas.arrow.decoding import decode
from strandline.schemas.arrow.framing import NO_FRAME, FramedValues, framed
from strandline.schemas.arrow.program import Program, compile_program
from strandline.schemas.avro.engine import AvroSchema, AvroType
from strandline.schemas.engines import SchemaSource
from strandline.schemas.records import AVRO
from strandline.schemas.subjects import context_of
from strandline.schemas.types import InvalidSchema
from strandline.spark.error_translation import SparkFailed
from strandline.spark.registry.catalog import SchemaCatalog
from strandline.spark.registry.reader_schema import JSON_SCHEMA, ReaderSchema

PROGRAMS_MAX: Final = 1000
"""Writers' schemas whose programs one task keeps."""
BAD_JSON: Final = "the value does not fit the schema"

Parsed = tuple[pa.Array, pa.Array]
"""Structs, and texts that say why a value can not be read."""
ParseJson = Callable[[pa.Array], tuple[pa.Array, Any]]
"""Takes payloads, and returns structs and which payloads do not fit."""


class RegistryValues(Protocol):
    """A parser of values that have the ids of their schemas."""

    def parsed(self, values: pa.Array) -> Parsed:
        """Return the structs of values, and why some are null."""


def avro_node(source: SchemaSource) -> AvroSchema:
    """Parse an Avro schema with its references. Raise InvalidSchema."""
    return AvroType().parse(source.text, dict(source.references))


class AvroValues:
    """Avro values, by the schema of a reader."""

    def __init__(self, reader: ReaderSchema, catalog: SchemaCatalog) -> None:
        """Raise SparkFailed if the reader's schema has no columns."""
        try:
            self.tree = ColumnTree(avro_node(reader.source).node)
        except InvalidSchema as error:
            raise SparkFailed(f"{reader.words} can not be read as columns: {error}") from None
        self._context = context_of(reader.subject)
        self._catalog = catalog
        self._programs: OrderedDict[int, Program | str] = OrderedDict()

    @property
    def type(self) -> pa.DataType:
        return self.tree.root.type

    def parsed(self, values: pa.Array) -> Parsed:
        found = framed(values)
        reasons = _Reasons(len(values))
        groups = _groups(found, reasons)
        programs = self._programs_of(list(groups))
        parts: list[pa.Array] = []
        rows_of_parts: list[Any] = []
        for schema_id, rows in groups.items():
            program = programs[schema_id]
            if isinstance(program, str):
                reasons.note(rows, program)
                continue
            part, codes = decode(program, found.data, found.starts[rows], found.ends[rows])
            reasons.note_codes(rows, codes, program)
            if len(rows) == len(values):
                return part, reasons.texts()
            parts.append(part)
            rows_of_parts.append(rows)
        return _united(parts, rows_of_parts, len(values), self.type), reasons.texts()

    def _programs_of(self, ids: list[int]) -> dict[int, Program | str]:
        """Return the programs of writers, or why one can not be had. What is not known now may be known later."""
        missing = [each for each in ids if each not in self._programs]
        found: dict[int, Program | str] = {each: self._programs[each] for each in ids if each in self._programs}
        if missing:
            for schema_id, writer in self._catalog.writers(self._context, missing).items():
                found[schema_id] = writer if isinstance(writer, str) else self._keep(schema_id, writer)
        return found

    def _keep(self, schema_id: int, writer: SchemaSource) -> Program | str:
        self._programs[schema_id] = made = self._program(schema_id, writer)
        if len(self._programs) > PROGRAMS_MAX:
            self._programs.popitem(last=False)
        return made

    def _program(self, schema_id: int, writer: SchemaSource) -> Program | str:
        if writer.type != AVRO:
            return f"the schema with the id {schema_id} is of the type {writer.type}, and the reader's is Avro"
        try:
            return compile_program(avro_node(writer).node, self.tree)
        except InvalidSchema as error:
            return f"the schema with the id {schema_id} can not be used: {error}"


class JsonValues:
    """JSON values behind the ids of JSON schemas; `parse` makes structs of their payloads."""

    def __init__(self, reader: ReaderSchema, catalog: SchemaCatalog, parse: ParseJson) -> None:
        self._context = context_of(reader.subject)
        self._catalog = catalog
        self._parse = parse

    def parsed(self, values: pa.Array) -> Parsed:
        found = framed(values)
        reasons = _Reasons(len(values))
        groups = _groups(found, reasons)
        writers = self._catalog.writers(self._context, list(groups)) if groups else {}
        for schema_id, rows in groups.items():
            writer = writers[schema_id]
            if isinstance(writer, str):
                reasons.note(rows, writer)
            elif writer.type != JSON_SCHEMA:
                reasons.note(
                    rows, f"the schema with the id {schema_id} is of the type {writer.type}, and the reader's is JSON"
                )
        is_read = (found.ids >= 0) & (reasons.numbers < 0)
        lengths = np.where(is_read, found.ends - found.starts, 0)
        payloads = gathered(found.data, np.where(is_read, found.starts, 0), lengths, is_read)
        structs, corrupt = self._parse(payloads)
        reasons.note(np.flatnonzero(corrupt), BAD_JSON)
        return structs, reasons.texts()


class _Reasons:
    """Why rows are null."""

    def __init__(self, count: int) -> None:
        self.numbers: Any = np.full(count, -1, np.int32)
        self._texts: dict[str, int] = {}

    def note(self, rows: Any, text: str) -> None:
        if len(rows):
            self.numbers[rows] = self._texts.setdefault(text, len(self._texts))

    def note_codes(self, rows: Any, codes: Any, program: Program) -> None:
        if codes.any():
            for code in np.unique(codes[codes != 0]).tolist():
                self.note(rows[codes == code], program.reason(code))

    def texts(self) -> pa.Array:
        if not self._texts:
            return pa.nulls(len(self.numbers), pa.string())
        return texts(list(self._texts)).take(indices(self.numbers))


def _groups(found: FramedValues, reasons: _Reasons) -> dict[int, Any]:
    """Return the rows of each schema id, in order."""
    ids = found.ids
    if not len(ids):
        return {}
    if ids[0] >= 0 and (ids == ids[0]).all():
        return {int(ids[0]): np.arange(len(ids))}
    order = np.argsort(ids, kind="stable")
    distinct, first = np.unique(ids[order], return_index=True)
    parts = np.split(order, first[1:])
    groups = {int(each): rows for each, rows in zip(distinct, parts, strict=True)}
    reasons.note(groups.pop(-2, ()), NO_FRAME)
    groups.pop(-1, None)
    return groups


def _united(parts: list[pa.Array], rows_of_parts: list[Any], count: int, type_: pa.DataType) -> pa.Array:
    """Return the rows of all parts in their order; rows that are in none are null."""
    if not parts:
        return pa.nulls(count, type_)
    places = np.full(count, -1, np.int64)
    at = 0
    for rows in rows_of_parts:
        places[rows] = np.arange(at, at + len(rows))
        at += len(rows)
    return pa.concat_arrays(parts).take(indices(places))

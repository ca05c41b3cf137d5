"""Structs as Avro values with the id of their schema: what `to_registry` and pipelines write."""

from __future__ import annotations

import pyarrow as pa

from strandline.schemas.arrow.encoding import DoesNotFit, writer_of
from strandline.schemas.payloads.wire_format import with_prefix
from strandline.schemas.records import AVRO
from strandline.schemas.types import InvalidSchema
from strandline.spark.error_translation import SparkFailed
from strandline.spark.registry.reader_schema import ReaderSchema
from strandline.spark.registry.values import avro_node


class RowDoesNotFit(SparkFailed):
    """A row that is no value of the schema that it is to be written by."""


class RowEncoder:
    """Writes rows by one version of a subject."""

    def __init__(self, reader: ReaderSchema) -> None:
        """Raise SparkFailed if rows can not be written by it."""
        if reader.type != AVRO:
            raise SparkFailed(f"{reader.words} is of the type {reader.type}, and rows are written by Avro schemas only")
        try:
            node = avro_node(reader.source).node
        except InvalidSchema as error:
            raise SparkFailed(f"{reader.words} can not be used: {error}") from None
        if node.kind not in ("record", "error"):
            raise SparkFailed(f"{reader.words} is no record, and a row is one")
        self._words = reader.words
        self.names = [each.name for each in node.fields]
        self.needed = [each.name for each in node.fields if not each.has_default]
        """Fields that a row must have."""
        self._write = writer_of(node)
        self._frame = with_prefix(reader.id, b"")

    def check_names(self, names: list[str]) -> None:
        """Raise SparkFailed if the columns of rows are not those of the schema."""
        if unknown := [each for each in names if each not in self.names]:
            raise RowDoesNotFit(
                f"the column {unknown[0]} is no field of {self._words} ({', '.join(self.names)}): leave it out, or "
                "register a version that has it"
            )
        if missing := [each for each in self.needed if each not in names]:
            raise RowDoesNotFit(f"the field {missing[0]} of {self._words} has no default, and no column has its name")

    def encoded(self, structs: pa.Array) -> pa.Array:
        """Return a value for each struct; null for a null."""
        self.check_names([each.name for each in structs.type])
        values: list[bytes | None] = []
        for row in structs.to_pylist():
            if row is None:
                values.append(None)
                continue
            out = bytearray(self._frame)
            try:
                self._write(out, row)
            except DoesNotFit as error:
                raise RowDoesNotFit(f"a row does not fit {self._words}: {error}") from None
            values.append(bytes(out))
        return pa.array(values, pa.binary())

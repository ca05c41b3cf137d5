"""Values with schema ids of a registry to columns: `valueSchema=registry` of the source.

A value that can not be read is nulls, and `_corrupt` says why; with `mode=failfast` it ends the query with a sentence.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from strandline.client.cluster_client import ClientSettings
from strandline.schemas.records import AVRO
from strandline.spark.registry.catalog import worker_catalog
from strandline.spark.registry.reader_schema import ReaderSchema
from strandline.spark.registry.values import AvroValues, JsonValues, RegistryValues
from strandline.spark.source.json_columns import JsonColumns
from strandline.spark.source.json_parsing import ValueDoesNotFit

KEPT_MAX: Final = 32
"""Readers of Avro values that one worker keeps."""


class RegistryColumns(JsonColumns):
    """Turns batches as `JsonColumns` does, by the schemas of a registry."""

    def __init__(self, reader_schema: str, client: ClientSettings, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._place = f"{more['topic']}-{more['partition']}"
        self._fails = more["fails"]
        reader = ReaderSchema.of_option(reader_schema)
        self._offsets: pa.Array | None = None
        self._registry: RegistryValues = (
            avro_values(os.getpid(), client, reader_schema)
            if reader.type == AVRO
            else JsonValues(reader, worker_catalog(client), self._parse_json)
        )

    def _parse_json(self, payloads: pa.Array) -> tuple[pa.Array, Any]:
        return self._values.parsed(payloads, self._offsets)

    def _parsed(self, values: pa.Array, offsets: pa.Array) -> tuple[pa.Array, pa.Array]:
        self._offsets = offsets
        structs, reasons = self._registry.parsed(values)
        if self._fails and reasons.null_count < len(reasons):
            at = pc.index(pc.is_valid(reasons), True).as_py()
            raise ValueDoesNotFit(
                f"the value of {self._place} at offset {offsets[at].as_py()} can not be read: {reasons[at].as_py()}; "
                'correct its producer, or say option("mode", "permissive") for nulls'
            )
        return _selected(structs, self._of_value), reasons


@lru_cache(maxsize=KEPT_MAX)
def avro_values(process: int, client: ClientSettings, reader_schema: str) -> AvroValues:
    """Return the reader of Avro values that a worker keeps from task to task with its programs, never across a fork."""
    return AvroValues(ReaderSchema.of_option(reader_schema), worker_catalog(client))


def _selected(structs: pa.Array, wanted: pa.StructType) -> pa.Array:
    """Return the fields that are wanted, by their names."""
    if structs.type == wanted:
        return structs
    fields = [pc.struct_field(structs, [structs.type.get_field_index(each.name)]) for each in wanted]
    return pa.StructArray.from_arrays(fields, fields=list(wanted), mask=structs.is_null())

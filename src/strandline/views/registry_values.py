"""Values with schema ids of a registry, for SQL: a function of DuckDB that makes structs of them.

A value that can not be read is null, as one that is no JSON is in other views. Values of Avro schemas are read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import duckdb
import pyarrow as pa

from strandline.client.cluster_client import ClusterClient
from strandline.schemas.arrow.columns import ColumnTree, columns_ddl
from strandline.schemas.records import AVRO
from strandline.schemas.types import InvalidSchema
from strandline.spark.error_translation import SparkFailed
from strandline.spark.registry.catalog import SchemaCatalog
from strandline.spark.registry.reader_schema import ReaderSchema
from strandline.spark.registry.values import AvroValues, avro_node
from strandline.views.columns import function_of
from strandline.views.definition import ViewDefinition, define
from strandline.views.failures import ViewFailed
from strandline.views.schema import quoted

_WORDS = {
    pa.bool_(): "BOOLEAN",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR",
    pa.binary(): "BLOB",
    pa.date32(): "DATE",
    pa.timestamp("us", tz="UTC"): "TIMESTAMPTZ",
    pa.timestamp("us"): "TIMESTAMP",
}


class RegistryFunctions:
    """The functions of one database, and the schemas of its cluster."""

    def __init__(self, client: ClusterClient, connection: duckdb.DuckDBPyConnection) -> None:
        self._catalog = SchemaCatalog(client)
        self._connection = connection
        self._made: set[str] = set()

    def resolved(self, definition: ViewDefinition) -> ViewDefinition:
        """Return the definition with the columns of the newest version, if it names a registry instead of columns."""
        if not definition.is_of_registry:
            return definition
        try:
            reader = self._catalog.versions(f"{definition.topic}-value")[0]
            if reader.type != AVRO:
                raise ViewFailed(
                    f"{reader.words} is of the type {reader.type}, and views read values of Avro schemas: say columns"
                )
            ddl = columns_ddl(ColumnTree(avro_node(reader.source).node))
        except (SparkFailed, InvalidSchema) as error:
            raise ViewFailed(f"the view {definition.name} has no columns: {error}") from error
        found = define(definition.name, definition.topic, schema=ddl, key=definition.key)
        return replace(found, reader_schema=reader.option())

    def make(self, definition: ViewDefinition) -> None:
        """Make the function that the rows of a definition need."""
        name = function_of(definition)
        if not definition.reader_schema or name in self._made:
            return
        values = AvroValues(ReaderSchema.of_option(definition.reader_schema), self._catalog)

        def decode(column: Any) -> pa.Array:
            parts = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
            found = [values.parsed(each.cast(pa.binary()))[0] for each in parts]
            return pa.concat_arrays(found) if found else pa.nulls(0, values.type)

        # DuckDB takes words where its types say enumerations.
        create: Any = self._connection.create_function
        create(name, decode, ["BLOB"], _type_words(values.type), type="arrow", null_handling="special")
        self._made.add(name)


def _type_words(of: pa.DataType) -> str:
    """Return a type of Arrow in DuckDB's words."""
    if pa.types.is_struct(of):
        return f"STRUCT({', '.join(f'{quoted(each.name)} {_type_words(each.type)}' for each in of)})"
    if pa.types.is_map(of):
        return f"MAP(VARCHAR, {_type_words(of.item_type)})"
    if pa.types.is_list(of):
        return f"{_type_words(of.value_type)}[]"
    if pa.types.is_decimal(of):
        return f"DECIMAL({of.precision},{of.scale})"
    return _WORDS[of]

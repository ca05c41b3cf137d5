"""Which version of a subject a query reads by: chosen once, when its columns are.

Spark asks for columns when a frame is made and for a reader when it runs, in two processes. In between a version may be
registered. So a reader takes the newest version that has the columns of the frame.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.pandas.types import to_arrow_schema

from strandline.client.cluster_client import ClientSettings, ClusterClient
from strandline.schemas.arrow.columns import ColumnTree
from strandline.schemas.records import AVRO
from strandline.schemas.types import InvalidSchema
from strandline.spark.registry.catalog import SchemaCatalog
from strandline.spark.registry.reader_schema import ReaderSchema
from strandline.spark.registry.values import avro_node
from strandline.spark.source.source_spec import MADE_COLUMNS, OptionRefused, RowShape

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


def newest_version(settings: ClientSettings, subject: str) -> ReaderSchema:
    """Return the newest version of a subject. Raise SparkFailed if there is none."""
    with closing(SchemaCatalog(ClusterClient(settings))) as catalog:
        return catalog.versions(subject)[0]


def with_reader(shape: RowShape, settings: ClientSettings, schema: StructType | None = None) -> RowShape:
    """Return the shape with the version that values are read by: the newest, or the newest with the frame's columns."""
    if shape.subject is None or shape.reader_schema is not None:
        return shape
    with closing(SchemaCatalog(ClusterClient(settings))) as catalog:
        versions = catalog.versions(shape.subject)
    columns = None if schema is None else to_arrow_schema(schema, timezone="UTC")
    for each in versions:
        if columns is None or _has(each, shape, columns):
            return replace(shape, reader_schema=each.option())
    raise OptionRefused(
        f"no version of {shape.subject} has the columns of this frame any more: make the frame again with load()"
    )


def _has(version: ReaderSchema, shape: RowShape, columns: pa.Schema) -> bool:
    if version.type != AVRO:
        # Values are parsed by the columns of the frame.
        return True
    try:
        root = ColumnTree(avro_node(version.source).node).root
    except InvalidSchema:
        return False
    if shape.value_column is not None:
        return bool(columns.field(shape.value_column).type == root.type)
    types = {each.name: each.type for each in root.children}
    of_value = [each for each in columns if not shape.is_of_record(each.name) and each.name not in MADE_COLUMNS]
    return all(types.get(each.name) == each.type for each in of_value)

"""`from_registry` and `to_registry`: columns of a data frame, by the newest version of a subject.

The version is chosen when the function is called, in the driver, and stays what it was while the frame is used. Values
of other versions are resolved to it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructType

from strandline.client.cluster_client import ClientSettings
from strandline.schemas.records import AVRO
from strandline.spark.registry.catalog import worker_catalog
from strandline.spark.registry.choosing import newest_version
from strandline.spark.registry.reader_schema import ReaderSchema
from strandline.spark.registry.row_encoding import RowEncoder
from strandline.spark.registry.values import JsonValues, RegistryValues
from strandline.spark.source.columns import reader_ddl
from strandline.spark.source.json_parsing import JsonParser, ValueDoesNotFit
from strandline.spark.source.options import parse_client_settings
from strandline.spark.source.registry_columns import avro_values

if TYPE_CHECKING:
    from pyspark.sql import Column

MODES: Final = ("failfast", "permissive")


def from_registry(values: Column | str, subject: str, options: Mapping[str, str], *, mode: str = "failfast") -> Column:
    """Return a struct of the columns that the newest version of `subject` has, for values with ids of their schemas.

    `options` are those of the source that name the cluster (`kafka.bootstrap.servers` ...). A value that can not be
    read ends the query with a sentence; with `mode="permissive"` it is null.
    """
    if mode not in MODES:
        raise ValueError(f"mode is {mode!r}: say {' or '.join(MODES)}")
    client = parse_client_settings(options)
    reader = newest_version(client, subject)
    ddl = reader_ddl(reader)
    decoded = _decoding(client, reader.option(), _arrow_type(ddl), fails=mode == "failfast")
    return _applied(decoded, f"STRUCT<{ddl}>", _column(values))


def to_registry(rows: Column | str, subject: str, options: Mapping[str, str]) -> Column:
    """Return structs as values of the newest version of `subject`, with its id before them.

    Each field is taken by its name. One that the struct does not have gets its default. A row that is no value of the
    schema ends the query with a sentence. A null is null.
    """
    return encoding_column(_column(rows), newest_version(parse_client_settings(options), subject))


def encoding_column(rows: Column, reader: ReaderSchema) -> Column:
    """Return structs as values of a schema."""
    option = reader.option()
    # Raises here, in the driver, what would else fail in each task.
    RowEncoder(reader)

    def encode(structs: pa.Array) -> pa.Array:
        return RowEncoder(ReaderSchema.of_option(option)).encoded(structs)

    return _applied(encode, "binary", rows)


def _decoding(client: ClientSettings, reader_schema: str, struct: pa.StructType, *, fails: bool) -> Any:
    def decode(values: pa.Array) -> pa.Array:
        structs, reasons = _parser(client, reader_schema, struct).parsed(values)
        if fails and reasons.null_count < len(reasons):
            at = pc.index(pc.is_valid(reasons), True).as_py()
            raise ValueDoesNotFit(f"a value can not be read: {reasons[at].as_py()}")
        return structs

    return decode


def _parser(client: ClientSettings, reader_schema: str, struct: pa.StructType) -> RegistryValues:
    reader = ReaderSchema.of_option(reader_schema)
    if reader.type == AVRO:
        return avro_values(os.getpid(), client, reader_schema)
    json = JsonParser(struct, part="value", place="", fails=False)

    def parse(payloads: pa.Array) -> tuple[pa.Array, np.ndarray]:
        return json.parsed(payloads, payloads)

    return JsonValues(reader, worker_catalog(client), parse)


def _applied(function: Any, to: str, column: Column) -> Column:
    """Return what a function of Arrow arrays makes of a column. PySpark reads its kind from real types as hints."""
    function.__annotations__ = dict.fromkeys(function.__annotations__, pa.Array)
    made: Any = arrow_udf
    found: Column = made(function, to)(column)
    return found


def _arrow_type(ddl: str) -> pa.StructType:
    return to_arrow_type(StructType.fromDDL(ddl), timezone="UTC")


def _column(of: Column | str) -> Column:
    return F.col(of) if isinstance(of, str) else of

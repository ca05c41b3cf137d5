"""The format "strandline": what Spark loads for `spark.read`, `readStream`, `df.write` and `writeStream`.

Options are looked at as soon as Spark asks for a schema, a reader or a writer, so a mistake is told before anything
runs. Readers and writers are made where they are needed: a process that only writes loads nothing of the source.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from strandline.spark.source.source_spec import SourceOptions

FORMAT: Final = "strandline"
_PUSHING_PROCESS: Final = "data_source_pushdown_filters.py"


class StrandlineDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        from strandline.spark.source.columns import ddl
        from strandline.spark.source.options import parse_shape

        shape = parse_shape(self.options)
        if shape.is_of_registry:
            from strandline.spark.registry.choosing import with_reader
            from strandline.spark.source.options import parse_client_settings

            shape = with_reader(shape, parse_client_settings(self.options))
        return ddl(shape)

    def reader(self, schema: StructType) -> DataSourceReader:
        from strandline.spark.source.batch import BatchReader, FilteringBatchReader

        caller = os.path.basename(sys._getframe(1).f_code.co_filename)
        reader_class = FilteringBatchReader if caller == _PUSHING_PROCESS else BatchReader
        return reader_class(self._source_options(schema, streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from strandline.spark.source.stream import StreamReader

        return StreamReader(self._source_options(schema, streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from strandline.spark.sink.writers import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from strandline.spark.sink.writers import stream_writer

        return stream_writer(self.options, schema, overwrite)

    def _source_options(self, schema: StructType, *, streaming: bool) -> SourceOptions:
        from strandline.spark.source.options import parse_options

        options = parse_options(self.options, streaming=streaming)
        if options.shape.is_of_registry:
            from strandline.spark.registry.choosing import with_reader

            options = replace(options, shape=with_reader(options.shape, options.client, schema))
        return options

"""The formats that Spark finds by the packages `pyspark_strandline_iceberg` and `pyspark_strandline_delta`."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceStreamWriter
from pyspark.sql.types import StructType


class LakeFormat(DataSource):
    """A format that streams are written to. Tables are read by what reads Iceberg and Delta."""

    kind = ""

    @classmethod
    def name(cls) -> str:
        return f"strandline_{cls.kind}"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from strandline.spark.lake.writers import stream_writer

        return stream_writer(self.kind, self.options, overwrite)


class IcebergFormat(LakeFormat):
    """`writeStream.format("strandline_iceberg")`."""

    kind = "iceberg"


class DeltaFormat(LakeFormat):
    """`writeStream.format("strandline_delta")`."""

    kind = "delta"

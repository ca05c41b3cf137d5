"""Makes `writeStream.format("strandline_iceberg")` work without `register()`.

Spark looks for packages named `pyspark_<format>` and takes their `DefaultSource`. Everything is in `strandline.spark`.
"""

from strandline.spark.lake.formats import IcebergFormat

DefaultSource = IcebergFormat

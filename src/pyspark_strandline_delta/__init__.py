"""Makes `writeStream.format("strandline_delta")` work without `register()`.

Spark looks for packages named `pyspark_<format>` and takes their `DefaultSource`. Everything is in `strandline.spark`.
"""

from strandline.spark.lake.formats import DeltaFormat

DefaultSource = DeltaFormat

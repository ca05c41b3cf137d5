"""Makes `spark.read.format("strandline")` work without `register()`.

Spark looks for packages named `pyspark_<format>` and takes their `DefaultSource`. Everything is in `strandline.spark`.
"""

from strandline.spark.data_source import StrandlineDataSource


class DefaultSource(StrandlineDataSource):
    pass

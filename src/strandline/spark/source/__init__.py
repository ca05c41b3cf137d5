"""Out of a log into data frames: the format "strandline" of `spark.read` and `spark.readStream`.

`options` reads what the user said into what is `wanted`, `planning` turns that into ranges of offsets with the
cluster's help, `batch` and `stream` are what Spark calls. A task reads its range with `spark.fetching`, and
`json_columns` makes columns of JSON values.
"""

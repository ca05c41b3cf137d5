"""The source: a log into data frames, as the format "strandline" of `spark.read` and `spark.readStream`.

`options` parses the user's options into a `source_spec`. `planning` turns that into ranges of offsets, with metadata of
the cluster. `batch` and `stream` are what Spark calls. A task reads its range with `client.fetcher`, and `json_columns`
makes columns of JSON values.
"""

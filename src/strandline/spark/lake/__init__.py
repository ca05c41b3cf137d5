"""Streams of Spark into tables of Iceberg and Delta, without a jar: the formats `strandline_iceberg` and
`strandline_delta` of `writeStream`.

Tasks write data files in Python. When all have ended, the driver adds the files to the table in one commit, which holds
the number of the batch: a batch that Spark runs again is not added again. `strandline.connect` has the tables and how
files get into them. The connectors' `engine=spark` runs here, too: `connector_process` is its process.
"""

"""Materialised views: the newest state of every key of a compacted topic, queried with SQL, now or as of a moment.

Served from Parquet snapshots plus the tail of the log; a snapshot is made from the log and can be made again. DuckDB
runs the queries: needs `pip install 'strandline[spark]'`.
"""

"""Sinks for analysis: objects of Parquet or JSON in a store, and tables of Iceberg and Delta.

`columns` turns Connect's values into Arrow. `chunks` cuts a partition into objects by its records alone, so a retry
writes the same objects again. `table_sink` collects rows and commits them with their offsets; `iceberg` and `delta` do
the commits.
"""

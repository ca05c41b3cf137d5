"""Sinks into SQL databases: rows and offsets are written in one transaction, so each record counts once.

`sink` is what the three have in common; `postgres`, `sqlite` and `duckdb` know their databases. A record becomes a row
in `rows`, values become those of column types in `columns`, and `fitting` finds what a table lacks for a batch.
"""

"""Shipping of SQLite databases: a topic that follows a database, from which the file is rebuilt to any moment.

`shipper` follows the WAL of a database (`database`, `wal`) and writes snapshots and transactions to a topic of one
partition (`records`, `topic`), exactly once. `restoring` reads them back and checks the sum of all pages
(`page_sums`) at each transaction boundary. `docs/sqlite.md` describes the records.
"""

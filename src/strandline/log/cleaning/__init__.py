"""Compaction of a log: sealed segments in, cleaned ones out, each key's last record kept at its own offset.

`job` says what is to be done and what came of it, `clean` does it: it reads the dirty part to learn each key's last
offset (`offset_map`), then copies what stays of one group of segments after the other into `.cleaned` files. Nothing
here knows a live log or a loop: sealed files never change, so a worker process can read them, and the owner of the log
swaps the outcome in. All files go through `Disk`.
"""

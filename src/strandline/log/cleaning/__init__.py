"""Compaction of a log: sealed segments in, cleaned segments out; each key's last record keeps its offset.

`job` describes the work and its result. `clean` does it: it reads the dirty part to find each key's last offset
(`mapping`), then copies the kept records of one group of segments after the other into `.cleaned` files. Sealed files
never change, so a worker process can read them without the live log; the owner of the log swaps the result in.
`stepwise` does the same for a log whose segments are on the disk one after the other. All files go through `Disk`.
"""

"""One partition on this node: what its log holds, up to where it is committed, and which requests wait for that.

Plain methods and functions on ints and bytes, called by the loop that owns all partitions. They reach files only
through the log, and the clock and threads only through the `Runtime`, that they are given. `partition` is the state;
`leading`, `following`, `trimming`, `epochs` and `transaction_appends` work on it.
"""

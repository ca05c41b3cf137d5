"""One partition's truth, pure: its leader, epoch and high watermark, its producers, who waits for what.

`partition` is the front: append, fetch and high-watermark moves are plain methods on ints and bytes, called by the
one loop that owns all partitions. `producers` holds the sequences of idempotent producers; `waiting` the produces
that wait to be committed and the fetches that wait for data. Bytes are kept by `strandline.log`.
"""

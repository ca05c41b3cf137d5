"""Cluster metadata, pure: the Raft core, the controller and the image.

`raft/` agrees with the other voters on the log of `__cluster_metadata-0` (KRaft's pull protocol). `controller/` turns
commands into metadata records, or rejects them. `image/` folds the records into brokers, topics, partitions, configs
and features.

Nothing here opens a file. The driver in `broker/kraft` appends the records, flushes, applies them to the image when
they are committed, and only then sends the response.
"""

"""Cluster metadata, pure: what the cluster is, and who may change it.

`cluster_image` folds the records of `__cluster_metadata-0` into brokers, topics, partitions, configs and features.
`controller` turns commands into such records, or refuses them. `producer_ids` hands out ids from recorded blocks.
`quorum_state` knows the small files beside the log. `raft` agrees with the other voters on what the log holds: KRaft's
pull protocol, in `raft_state` (roles), `raft_elections`, `raft_epochs`, `raft_leading`, `raft_following`.

Nothing here opens a file: the driver in `broker/` appends the records, flushes, applies them to the image when they are
committed, and only then lets the answer go.
"""

"""Remote log storage: sealed segments of tiered topics in an object store.

All but `store` is pure: which segments are in the store and in which state (`segment_states`, `remote_segments`), which
of them belong to a leader's log (`lineage`), what is copied next (`copying`), what leaves (`expiry`), what is
compacted (`compaction`), the records of `__remote_log_metadata` (`records`) and the names and bytes of objects
(`objects`). `broker/tiering` does the work.
"""

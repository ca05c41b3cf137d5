"""The storage engine: an append-only log of record batches in the files of Apache Kafka, without a network.

`partition_log` is one partition's log: segments (`segment`) with sparse indexes (`index`), cut and rebuilt after a
crash by `recovery`. `flusher` is group commit: many waiting appends, one fdatasync, off the loop. `log_directory`
owns a data directory with its lock and checkpoints (`checkpoints`). All files go through `disk`.
"""

"""The storage engine: an append-only log of record batches in the files of Apache Kafka, without a network.

`partition_log` is the state of one partition's log. `run_appends`, `truncation`, `trimming` and `log_replay` are
functions over it, not parts with a reference back: so a deleted log is freed at once, without the garbage collector.
`log_loader` opens it, and `recovery` cuts a torn tail after a crash. `flusher` is group commit: one fdatasync, in a
thread, for many waiting appends. `log_directory` owns a data directory with its lock and checkpoints. `segment/` is one
segment and its indexes, `maintenance/` retention, scrub and replacement, `cleaning/` compaction. `library` is
`strandline.Log`. All files go through `disk`.
"""

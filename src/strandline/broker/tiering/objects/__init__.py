"""Object topics of a node: writes batches to the object store, commits them, and merges them into segments.

`object_topics` knows the partitions and their roles, `object_writer` writes, `commit_topic` is the commit log,
`range_reading` reads what is not merged yet, `range_merging` merges, and `object_sweeper` deletes.
"""

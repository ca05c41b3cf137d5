"""Object topics: what the commit log says, without the world.

Leaders write batches of many partitions into one object, and then one commit into `__strandline_object_commits`. The
order of that topic decides. `events` are its records, `commit_fold` what they say together, `producer_notes` what a new
leader must know of producers, `wal_objects` the objects. `broker/tiering/objects` does the work.
"""

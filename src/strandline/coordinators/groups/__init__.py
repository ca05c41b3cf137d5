"""Group coordination: the shard of one `__consumer_offsets` partition, and what both protocols share."""

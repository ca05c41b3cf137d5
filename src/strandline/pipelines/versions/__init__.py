"""What a cluster remembers of its pipelines and their versions: a compacted topic of one partition."""

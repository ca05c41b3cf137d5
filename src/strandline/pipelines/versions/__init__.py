"""The store of pipelines and their versions in a cluster: a compacted topic of one partition."""

"""`strandline contract`: topics, rights, quotas and lag objectives as files, compared with a cluster and applied."""

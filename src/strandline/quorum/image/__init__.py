"""The cluster as of one offset of the metadata log, and its snapshots as bytes."""

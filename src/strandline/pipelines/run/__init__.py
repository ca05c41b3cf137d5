"""Runs one version of a pipeline on Spark: from the file to queries, with offsets, checkpoints and recovery."""

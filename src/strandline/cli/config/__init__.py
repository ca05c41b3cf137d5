"""`strandline config`: reads, changes and explains settings."""

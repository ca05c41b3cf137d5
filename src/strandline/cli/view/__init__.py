"""`strandline view`."""

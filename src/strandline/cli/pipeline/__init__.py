"""`strandline pipeline` and `strandline spark`."""

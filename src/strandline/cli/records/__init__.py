"""`strandline produce` and `strandline consume`."""

"""`strandline topic`, and what it reads of storage."""

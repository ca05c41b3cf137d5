"""`strandline cdc`: looks at change data capture, and compares a database with its replica."""

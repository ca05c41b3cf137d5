"""`strandline queue`: share groups as queues: what waits, what became of one task, and their dead letters."""

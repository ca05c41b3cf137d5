"""`strandline queue`: share groups as queues."""

"""`strandline outbox`: moves events of an outbox table to their topics, and shows what waits."""

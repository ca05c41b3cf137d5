"""Single-message transforms and predicates, by the names of Kafka Connect."""

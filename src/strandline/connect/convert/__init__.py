"""Converters: bytes of records to values with schemas, and back, by the names of Kafka Connect."""

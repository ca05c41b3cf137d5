"""Debezium's transforms of change events, by their names and settings."""

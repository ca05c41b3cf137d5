"""`strandline sqlite`: ships SQLite databases into topics, and restores them to a moment."""

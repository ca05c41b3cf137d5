"""`strandline view`: create, list and query views."""

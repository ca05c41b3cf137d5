"""`strandline schema`: schemas in a registry, over its REST API."""

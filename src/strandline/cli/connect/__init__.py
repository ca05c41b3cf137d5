"""`strandline connect`: runs connectors, and looks at those of a worker."""

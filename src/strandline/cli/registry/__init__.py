"""`strandline registry`: runs the schema registry beside a cluster."""

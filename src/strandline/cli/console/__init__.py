"""`strandline console`: runs the web console beside clusters."""

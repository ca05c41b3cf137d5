"""A worker of connectors as a process beside the nodes."""

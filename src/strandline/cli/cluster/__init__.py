"""`strandline cluster`: nodes, quorum, health, elections and moves of replicas."""

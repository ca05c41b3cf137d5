"""`strandline storage`: the object store of tiered topics."""

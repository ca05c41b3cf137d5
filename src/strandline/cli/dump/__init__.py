"""`strandline log dump`: the files of a log in readable form."""

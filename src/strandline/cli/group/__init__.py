"""`strandline group`: members, positions, lag and history of groups."""

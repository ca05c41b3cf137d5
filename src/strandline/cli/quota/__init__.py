"""`strandline quota`: what users, client ids and addresses may use."""

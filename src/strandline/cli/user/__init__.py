"""`strandline user`: create, list, rotate and delete users, who log in with SCRAM."""

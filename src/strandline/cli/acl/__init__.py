"""`strandline acl`: access rules granted, revoked, listed, explained, and suggested from what clients do."""

"""Members of share groups: consumer, membership, share session and the records that they take."""

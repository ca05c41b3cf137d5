"""Change data capture of PostgreSQL: a logical replication slot, read with the output plugin pgoutput."""

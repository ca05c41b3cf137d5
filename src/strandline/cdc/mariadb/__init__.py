"""Change data capture of MariaDB: the row binlog by GTID, with full metadata, so that no DDL has to be parsed."""

"""`strandline txn`: open transactions, the records that they hold back, and sinks."""

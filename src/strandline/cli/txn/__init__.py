"""`strandline txn`: transactions, and what they hold back."""

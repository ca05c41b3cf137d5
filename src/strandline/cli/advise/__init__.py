"""`strandline advise`: is a workload log-shaped, what does it need, and what do running topics show."""

"""Quotas: what a client may send, read, ask for and change, and how long it waits when it takes more.

Pure: limits come from the records of the metadata log, and the time is an argument. `limits` finds the quota of a
client, `rate_bucket` and `token_bucket` count its use, and `bucket_table` bounds how many of them are kept.
`broker/network/throttling` charges requests and mutes connections.
"""

"""Coordinators of groups and transactions, pure: state machines on compacted internal topics.

`groups/group_shard` holds every group of one `__consumer_offsets` partition behind `step(event, now_ms) -> effects`.
`groups/classic` and `groups/consumer` (KIP-848) are its two protocols, and `groups/migration` converts a live group.
`offsets/` holds committed offsets. `transactions/` is the coordinator on `__transaction_state`. Everything durable is a
record, and `load` folds the records back into the state.
"""

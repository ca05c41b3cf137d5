"""The coordinator of transactions: a state machine on the compacted topic `__transaction_state`, pure.

`TransactionShard` holds every transactional id of one partition behind `step(event, now_ms) -> effects`. A decision
(`ending.decide`) is a record. Markers are sent when it is committed, and a last record says that all of them are
written. Everything durable is in the records (`transaction_records`), and `load` folds them back into the state.
"""

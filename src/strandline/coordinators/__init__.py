"""Groups and their committed offsets: state machines on the compacted topic `__consumer_offsets`, pure.

`GroupShard` holds every group of one partition behind one door, `step(event, now_ms) -> effects`. The classic protocol
is `classic_group` with `join`, `rebalance` and `membership`; the consumer protocol (KIP-848) is `consumer_group` with
`consumer_heartbeat`, `consumer_target` and `consumer_reconciliation`; `migration` leads from one to the other. All that
must survive is a record (`group_records`, `consumer_records`), and `load` folds the records back into the state.
"""

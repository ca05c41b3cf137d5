"""Groups and their committed offsets: state machines on the compacted topic `__consumer_offsets`, pure.

`GroupShard` holds every group of one partition behind one door, `step(event, now_ms) -> effects`. `classic_group` is
the state of a group; `join`, `rebalance` and `membership` are the classic protocol; `offsets` the committed positions.
All that must survive is a record (`group_records`), and `load` folds the records back into the state.
"""

"""Dead letters of share groups (KIP-1191), each copied exactly once, pure.

`dead_letter_queue` is the state machine beside a share partition: one transaction at a time writes copies and commits
which source offsets they cover (`covered_offsets`). `dead_letter_records` makes the copies. `dead_letter_rules` says
which topic may take them. Decision 0053 has the reasons.
"""

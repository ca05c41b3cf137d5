"""Delivery of one partition to the members of a share group, pure: which records are available, acquired or done.

`share_partition` is the state machine beside the leader of the data partition, on `offset_ranges`. `acquisition`
chooses what a member gets, `acknowledgements` has what it may say of that. `held_back` has what must wait: `due_times`
until when, `key_order` behind which record. `record_locks` ends what members hold too long. `dead_ranges` are records
that no member gets any more. `share_sessions` keeps the sessions of members, `delivery_history` what happened lately.
"""

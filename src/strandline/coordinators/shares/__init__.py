"""The share coordinator: the durable state of share partitions on `__share_group_state`, pure."""

"""The replicas of this node: opening and recovery, fetching from leaders, and changes of in-sync sets."""

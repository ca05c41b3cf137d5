"""Why groups rebalanced: a bounded history in memory, and its sentences for users."""

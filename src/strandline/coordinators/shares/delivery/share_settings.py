"""Settings of a share group, as its share partitions use them. The values here are Kafka's defaults, or ours."""

from __future__ import annotations

from typing import NamedTuple

from strandline.coordinators.shares.delivery.offset_ranges import ARCHIVED, ARCHIVING


class ShareSettings(NamedTuple):
    """The settings of one share group at one moment."""

    delivery_count_limit: int = 5
    lock_duration_ms: int = 30_000
    record_locks_max: int = 2_000
    """Records between the start offset and the last one that was acquired."""
    auto_offset_reset: str = "latest"
    is_read_committed: bool = False
    renews_locks: bool = True
    dead_letter_topic: str = ""
    """Where records go that no member gets any more; empty if nowhere."""
    copies_dead_letters: bool = False
    """Whether dead letters have the key, the value and the headers of the record."""
    is_key_ordered: bool = False
    """Whether records of one key are delivered one at a time."""
    backoff_ms: int = 0
    """How long a record waits after its first delivery failed; after each further one twice as long."""
    backoff_max_ms: int = 60_000
    waiting_records_max: int = 1_000_000
    """Records of a partition that are held back; new ones are not looked at while there are so many."""

    @property
    def shrinks_from(self) -> int:
        """Return the number of deliveries from which on records are delivered in ever smaller parts."""
        return max(2, (self.delivery_count_limit + 1) // 2)

    @property
    def undelivered_state(self) -> int:
        """Return the state of records that are rejected, or were delivered too often."""
        return ARCHIVING if self.dead_letter_topic else ARCHIVED

    def backoff_after_ms(self, deliveries: int) -> int:
        """Return how long a record waits that was delivered so often, without success."""
        return min(self.backoff_ms << (deliveries - 1), self.backoff_max_ms) if deliveries else 0

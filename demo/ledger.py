"""What the shop was promised, and whether the log kept it (pure)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

Place = tuple[str, int, int]
"""Topic, partition, offset."""


@dataclass
class Ledger:
    """Every acknowledged record: where it is -> value."""

    acknowledged: dict[Place, bytes] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    orders: int = 0
    """How many of them are orders."""

    def note(self, topic: str, partition: int, offset: int, value: bytes) -> None:
        place = (topic, partition, offset)
        if place in self.acknowledged:
            self.failures.append(f"offset {offset} of partition {partition} of {topic} was given twice")
        self.acknowledged[place] = value
        self.orders += topic == "orders"

    def compare(self, found: list[tuple[str, int, int, bytes]]) -> Comparison:
        """Hold a full read of the topics against what was acknowledged."""
        present = {(topic, partition, offset): value for topic, partition, offset, value in found}
        times = Counter(value for *_, value in found)
        return Comparison(
            acknowledged=len(self.acknowledged),
            read=len(found),
            lost=sum(place not in present for place in self.acknowledged),
            changed=sum(present.get(place, value) != value for place, value in self.acknowledged.items()),
            doubled=sum(count - 1 for count in times.values()),
            failed=len(self.failures),
        )


@dataclass(frozen=True)
class Comparison:
    acknowledged: int
    read: int
    lost: int
    changed: int
    doubled: int
    failed: int

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.changed or self.doubled or self.failed)

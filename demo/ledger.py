"""What the shop was promised, and whether the log kept it (pure)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Ledger:
    """Every acknowledged record: (partition, offset) -> value."""

    acknowledged: dict[tuple[int, int], bytes] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def note(self, partition: int, offset: int, value: bytes) -> None:
        place = (partition, offset)
        if place in self.acknowledged:
            self.failures.append(f"offset {offset} of partition {partition} was given twice")
        self.acknowledged[place] = value

    def compare(self, found: list[tuple[int, int, bytes]]) -> Comparison:
        """Hold a full read of the topic against what was acknowledged."""
        present = {(partition, offset): value for partition, offset, value in found}
        times = Counter(value for _, _, value in found)
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

"""How far groups may be behind in a topic, as the topic's setting `strandline.lag.objectives` has it.

billing=60000ms, search=1000        billing at most a minute, search at most 1,000 records
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from strandline.lag.figures import Figures


@dataclass(frozen=True, slots=True)
class LagObjective:
    """The objective of one group in one topic: a time, or a number of records."""

    group: str
    limit_ms: int | None = None
    limit_records: int | None = None

    def __str__(self) -> str:
        return f"{self.group}={self.limit_records if self.limit_ms is None else f'{self.limit_ms}ms'}"

    def is_met(self, seen: Figures) -> bool | None:
        """Return whether a position is within the objective; None if its lag is not known."""
        if seen.lag is None:
            return None
        if seen.lost:
            return False
        if self.limit_records is not None:
            return seen.lag <= self.limit_records
        if not seen.lag:
            return True
        return None if seen.lag_s is None or self.limit_ms is None else seen.lag_s * 1000 <= self.limit_ms


def objectives_of(setting: str) -> list[LagObjective]:
    """Return the objectives of a setting. Words of another form are left out: another version may have written them."""
    found = []
    for word in setting.split(","):
        match = re.fullmatch(r"(.+)=([0-9]{1,15})(ms)?", word.strip())
        if match is not None:
            number = int(match[2])
            found.append(LagObjective(match[1], number) if match[3] else LagObjective(match[1], None, number))
    return found


def objectives_text(objectives: Iterable[LagObjective]) -> str:
    """Return the setting of objectives, in the order of groups."""
    return ",".join(str(each) for each in sorted(objectives, key=lambda each: each.group))

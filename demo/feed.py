"""What the demo's shop writes, from a seed: a morning that lies behind us, an afternoon that happens before your eyes.

It is the shop of the examples, with more visitors. Everything that is written is different from everything else, so
that what comes twice is noticed, and nobody is hours late, so that every order must be counted.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from examples.shop import HOURS, Record, half_day

VISITS_PER_HOUR = 2500
CUSTOMERS = 3000
LATE = timedelta(minutes=10)


@dataclass(frozen=True)
class Day:
    begin: datetime
    morning: list[Record]
    afternoon: list[Record]
    tomorrow: Record
    """The first order of the next day, which ends all windows of this one."""

    @property
    def noon(self) -> datetime:
        return self.begin + timedelta(hours=HOURS / 2)

    @property
    def records(self) -> list[Record]:
        return [*self.morning, *self.afternoon, self.tomorrow]


def invent(seed: int, *, visits_per_hour: int = VISITS_PER_HOUR) -> Day:
    begin = datetime.now(UTC).replace(hour=10, minute=0, second=0, microsecond=0)
    rng = random.Random(seed)
    whole = half_day(rng, begin, visits_per_hour=visits_per_hour, customer_count=CUSTOMERS)
    records = list(_once(record for record in whole if record.topic in ("orders", "clicks")))
    noon = begin + timedelta(hours=HOURS / 2)
    last = next(record for record in reversed(records) if record.topic == "orders")
    tomorrow = last.fields | {"order_id": "o-tomorrow", "at": f"{begin + timedelta(days=1):%Y-%m-%dT%H:%M:%S}.000Z"}
    return Day(
        begin,
        [record for record in records if record.written < noon],
        [record for record in records if record.written >= noon],
        Record("orders", "o-tomorrow", json.dumps(tomorrow).encode(), records[-1].written),
    )


def _once(records: Iterator[Record]) -> Iterator[Record]:
    seen = set()
    for record in records:
        happened = datetime.fromisoformat(str(record.fields["at"]))
        if record.value not in seen and record.written - happened < LATE:
            seen.add(record.value)
            yield record

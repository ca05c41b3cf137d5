"""Half a day in a small shop, from a seed: what visitors click, order and pay, as the shop's programs would write it.

Nothing here knows of a log: `half_day` gives records in the order in which they are written, which is not the order in
which things happened. Phones write some minutes later than it happened, and a few visitors had no network at all: what
they did in the first half hour comes in at the end of the day. Some orders are sent twice, and a part of the events
that the website writes are broken.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

ARTICLES = {
    "lighthouse print": 2400,
    "tide table": 950,
    "storm lamp": 6100,
    "rope": 1890,
    "wool cap": 3200,
    "brass compass": 8800,
    "oilskin jacket": 14900,
}
RATES = {"PT": 23, "IE": 23, "NL": 21, "DK": 25, "FR": 20}
NAMES = ["Ana", "Bram", "Ciara", "Duarte", "Eline", "Finn", "Gro", "Hugo", "Ines", "Jens", "Katell", "Loic"]
TIERS = ["bronze", "silver", "gold"]
HOURS = 4
OFFLINE_HOURS = 0.5
"""Visitors without a network are of the first half hour."""


@dataclass(frozen=True)
class Record:
    """One record as it is written; `written` is the time of that."""

    topic: str
    key: str | None
    value: bytes | None
    written: datetime

    @property
    def fields(self) -> dict[str, object]:
        """What is in the value."""
        assert self.value is not None
        return dict(json.loads(self.value))


def half_day(
    rng: random.Random,
    begin: datetime = datetime(2026, 3, 2, 8, tzinfo=UTC),
    *,
    visits_per_hour: int = 120,
    customer_count: int = 30,
) -> Iterator[Record]:
    """Everything that is written from `begin` on, four hours long; at noon some customers rise, and some leave."""
    customers = {f"c-{number:02}": rng.choice(list(RATES)) for number in range(1, customer_count + 1)}
    yield from (_record("rates", country, {"percent": percent}, begin) for country, percent in RATES.items())
    for customer in customers:
        yield _record("customers", customer, {"name": rng.choice(NAMES), "tier": rng.choice(TIERS[:2])}, begin)
    noon = begin + timedelta(hours=HOURS / 2)
    records = sorted(_visits(rng, begin, customers, visits_per_hour), key=lambda record: record.written)
    yield from (record for record in records if record.written < noon)
    for customer in rng.sample(sorted(customers), 12):
        leaves = rng.random() < 0.25
        yield _record("customers", customer, None if leaves else {"name": rng.choice(NAMES), "tier": TIERS[2]}, noon)
    yield from (record for record in records if record.written >= noon)


def _visits(rng: random.Random, begin: datetime, customers: dict[str, str], per_hour: int) -> Iterator[Record]:
    at, end = begin, begin + timedelta(hours=HOURS)
    names = sorted(customers)
    number = 0
    while (at := at + timedelta(hours=rng.expovariate(per_hour))) < end:
        number += 1
        customer = rng.choice(names)
        is_offline = at < begin + timedelta(hours=OFFLINE_HOURS) and rng.random() < 0.2
        tunnel_end = begin + timedelta(hours=rng.uniform(3.75, 3.95))
        is_phone = rng.random() < 0.4
        for kind, key, fields, happened in _visit(rng, number, customer, customers[customer], at):
            delay_s = rng.uniform(0, 240) if is_phone else rng.uniform(0, 2)
            written = tunnel_end if is_offline else happened + timedelta(seconds=delay_s)
            yield _record(kind, key, {**fields, "at": _text(happened)}, written)
            if kind == "orders" and rng.random() < 0.06:
                # The phone heard no answer and asks again.
                again = written + timedelta(seconds=rng.uniform(1, 90))
                yield _record(kind, key, {**fields, "at": _text(happened)}, again)
            event = {"kind": kind.removesuffix("s"), **fields, "at": _text(happened)}
            yield Record("events", key, _spoiled(rng, event), written)


def _visit(
    rng: random.Random, number: int, customer: str, country: str, at: datetime
) -> Iterator[tuple[str, str, dict[str, object], datetime]]:
    """Some pages are looked at, the last article maybe goes into the basket, and maybe is paid for."""
    for page in range(rng.randint(1, 5)):
        article = rng.choice(list(ARTICLES))
        click: dict[str, object] = {"click": f"k-{number}-{page}", "customer": customer, "article": article}
        yield "clicks", customer, {**click, "action": "view"}, at
        at += timedelta(seconds=5 + rng.expovariate(1 / 60))
    if rng.random() < 0.35:
        return
    yield "clicks", customer, {**click, "click": f"k-{number}-b", "action": "basket"}, at
    at += timedelta(seconds=10 + rng.expovariate(1 / 200))
    if rng.random() < 0.35:
        return
    yield "clicks", customer, {**click, "click": f"k-{number}-c", "action": "checkout"}, at
    at += timedelta(seconds=rng.uniform(3, 20))
    cents = ARTICLES[article] * rng.randint(1, 3) + 490
    order = {"order_id": f"o-{number}", "customer": customer, "country": country, "article": article, "cents": cents}
    yield "orders", f"o-{number}", dict(order), at


def _spoiled(rng: random.Random, event: dict[str, object]) -> bytes:
    """Most events as they are; some are cut off, some are no JSON at all, some have a word where a time should be."""
    value = json.dumps(event, separators=(",", ":")).encode()
    match rng.randrange(60):
        case 0:
            return value[: len(value) // 2]
        case 1:
            return b"<html>502 Bad Gateway</html>"
        case 2:
            return json.dumps({**event, "at": "soon"}, separators=(",", ":")).encode()
    return value


def _record(topic: str, key: str, fields: dict[str, object] | None, written: datetime) -> Record:
    value = None if fields is None else json.dumps(fields, separators=(",", ":")).encode()
    return Record(topic, key, value, written)


def _text(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

"""The order feed of a small shop, from a seed: orders are placed, paid, packed, shipped; some are cancelled."""

from __future__ import annotations

import heapq
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass

# From each state: where an order goes next, how likely, and about how many seconds later.
_NEXT: dict[str, list[tuple[str, float, float]]] = {
    "placed": [("paid", 0.93, 40), ("cancelled", 0.07, 300)],
    "paid": [("packed", 0.96, 900), ("refunded", 0.04, 600)],
    "packed": [("shipped", 1.0, 600)],
    "shipped": [("delivered", 0.9, 3600), ("returned", 0.1, 4000)],
}
_ARTICLES = [
    ("lighthouse print", 24.0),
    ("tide table", 9.5),
    ("storm lamp", 61.0),
    ("rope, 10 m", 18.9),
    ("wool cap", 32.0),
    ("brass compass", 88.0),
    ("oilskin jacket", 149.0),
]
_SOURCES = ["web", "web", "web", "app", "app", "phone"]


@dataclass(frozen=True)
class OrderEvent:
    """One change of one order. `sequence` numbers the events of the feed, so that none can be mistaken for another."""

    sequence: int
    timestamp_ms: int
    order: str
    state: str
    customer: str
    total: float
    source: str

    @property
    def key(self) -> bytes:
        return self.order.encode()

    @property
    def value(self) -> bytes:
        fields = {
            "event": self.sequence,
            "order": self.order,
            "state": self.state,
            "customer": self.customer,
            "total": self.total,
        }
        return json.dumps(fields, separators=(",", ":")).encode()

    @property
    def headers(self) -> list[tuple[str, bytes]]:
        return [("type", f"order.{self.state}".encode()), ("source", self.source.encode())]


def order_feed(
    source: random.Random, *, begin_ms: int, orders_per_minute: float, sequence: int = 0
) -> Iterator[OrderEvent]:
    """Events without end, in the order of their time."""
    due: list[tuple[float, int, str, str, str, float, str]] = []
    order_number = 1000
    next_order_ms = float(begin_ms)
    while True:
        if not due or next_order_ms <= due[0][0]:
            order_number += 1
            article, price = source.choice(_ARTICLES)
            total = round(price * source.randint(1, 3) + (4.9 if article != "oilskin jacket" else 0), 2)
            name = f"o-{order_number}"
            customer = f"c-{source.randint(1, 400):03}"
            heapq.heappush(due, (next_order_ms, order_number, name, "placed", customer, total, source.choice(_SOURCES)))
            next_order_ms += source.expovariate(orders_per_minute / 60_000)
            continue
        timestamp, number, name, state, customer, total, channel = heapq.heappop(due)
        yield OrderEvent(sequence, int(timestamp), name, state, customer, total, channel)
        sequence += 1
        for following, _, pause_s in _chosen(source, state):
            later = timestamp + source.uniform(0.5, 1.5) * pause_s * 1000
            heapq.heappush(due, (later, number, name, following, customer, total, channel))


def _chosen(source: random.Random, state: str) -> list[tuple[str, float, float]]:
    ways = _NEXT.get(state, [])
    return source.choices(ways, [likely for _, likely, _ in ways]) if ways else []

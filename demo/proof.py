"""What the pipeline must have written, worked out in plain Python, and how what was found differs from it (pure)."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from examples.shop import Record

QUARTER = timedelta(minutes=15)
BEFORE = timedelta(minutes=30)


@dataclass(frozen=True)
class Expected:
    sales: Counter[tuple[Any, ...]]
    attributed: Counter[tuple[Any, ...]]
    article_sales: Counter[tuple[Any, ...]]


def expected_of(records: Sequence[Record], tomorrow: Record) -> Expected:
    """Of everything that was written; windows of the day, for tomorrow's has not ended."""
    orders = [_row(record) for record in records if record.topic == "orders"]
    clicks = [_row(record) for record in records if record.topic == "clicks"]
    today = [order for order in orders if order["order_id"] != tomorrow.key]
    return Expected(_sales(today), _attributed(orders, clicks), _article_sales(orders))


def _row(record: Record) -> dict[str, Any]:
    fields: dict[str, Any] = record.fields
    return fields | {"at": datetime.fromisoformat(fields["at"])}


def _sales(orders: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    sums: dict[tuple[datetime, str], list[int]] = defaultdict(list)
    for order in orders:
        midnight = order["at"].replace(hour=0, minute=0, second=0, microsecond=0)
        began = midnight + (order["at"] - midnight) // QUARTER * QUARTER
        sums[began, order["country"]].append(order["cents"])
    return Counter((*group, len(cents), sum(cents)) for group, cents in sums.items())


def _attributed(orders: list[dict[str, Any]], clicks: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    by_place: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for click in clicks:
        by_place[click["customer"], click["article"]].append(click)
    return Counter(
        (order["order_id"], click["click"])
        for order in orders
        for click in by_place[order["customer"], order["article"]]
        if order["at"] - BEFORE <= click["at"] <= order["at"]
    )


def _article_sales(orders: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    sums: dict[str, list[int]] = defaultdict(list)
    for order in orders:
        sums[order["article"]].append(order["cents"])
    return Counter((article, len(cents), sum(cents)) for article, cents in sums.items())


def found_in(topic: str, records: Iterable[tuple[bytes | None, bytes | None]]) -> Counter[tuple[Any, ...]]:
    """Keys and values of one of the pipeline's topics, in the same form."""
    if topic == "article_sales":
        newest = {key.decode(): json.loads(value) for key, value in records if key is not None and value is not None}
        return Counter((article, row["sold"], row["cents"]) for article, row in newest.items())
    rows = [json.loads(value) for _, value in records if value is not None]
    if topic == "attributed":
        return Counter((row["order_id"], row["click"]) for row in rows)
    began = ((datetime.fromisoformat(row["began"]), row) for row in rows)
    return Counter((when, row["country"], row["orders"], row["cents"]) for when, row in began)

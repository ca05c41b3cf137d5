"""What every example has to write, worked out in plain Python from the records of the feed.

Streams are a Counter of rows, tables a mapping from key to row. Which rows come too late depends on where Spark's
batches end, so the feed leaves no doubt, and `divided` says so if a change of it does: a row is on time wherever the
batches end, or late wherever they do.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from examples.shop import RATES, Record

Row = tuple[tuple[str, Any], ...]
DELAY = timedelta(minutes=30)
PATIENCE = timedelta(minutes=30)
VISIT_GAP = timedelta(minutes=20)
BATCH = {"orders": 60, "clicks": 550}
"""`maxOffsetsPerTrigger` of the examples."""
TIMES = frozenset({"at", "began", "ended", "clicked", "left_at", "last_sold"})


def row(fields: Mapping[str, Any]) -> Row:
    """Fields that can be counted: sorted, and times as times however they are written."""
    return tuple(sorted((name, _value(name, value)) for name, value in fields.items() if value is not None))


def _value(name: str, value: Any) -> Any:
    return datetime.fromisoformat(value) if name in TIMES and isinstance(value, str) else value


def rows_of(records: Iterable[Record], topic: str) -> list[dict[str, Any]]:
    """In the order in which they were written."""
    found = (record.fields for record in records if record.topic == topic)
    return [{name: _value(name, value) for name, value in fields.items()} for fields in found]


def divided(rows: list[dict[str, Any]], topic: str, *others: tuple[list[dict[str, Any]], str]) -> tuple[list, list]:
    """Those on time and those that come too late, for windows of half an hour or less; of several inputs the first."""
    times = [each["at"] for each in rows]
    on_time, late = [], []
    for number, each in enumerate(rows):
        latest = max(times[: number + _skew(topic)])
        batch = max(0, number - _skew(topic)) // BATCH[topic]
        watermark = min(_watermark(of, name, batch) for of, name in ((rows, topic), *others))
        if each["at"] >= latest - DELAY:
            on_time.append(each)
        elif each["at"] + timedelta(minutes=30) <= watermark:
            late.append(each)
        else:
            raise AssertionError(f"{each} is late or not, as the batches will have it: choose another seed")
    return on_time, late


def _skew(topic: str) -> int:
    """By so many rows partitions may be out of step in a batch."""
    return BATCH[topic] // 8


def _watermark(rows: list[dict[str, Any]], topic: str, batch: int) -> datetime:
    """The least by which Spark can judge in a batch what is late: it uses what it knew before the last batch."""
    known = rows[: max(1, (batch - 1) * BATCH[topic] - _skew(topic))]
    return max(each["at"] for each in known) - DELAY


def _last_watermark(*inputs: list[dict[str, Any]]) -> datetime:
    return min(max(each["at"] for each in rows) for rows in inputs) - DELAY


def _floor(at: datetime, step: timedelta) -> datetime:
    midnight = at.replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight + (at - midnight) // step * step


def routed(records: Sequence[Record]) -> dict[str, Counter[tuple[str, Row]]]:
    """By topic, what is written there: key and fields."""
    found: dict[str, Counter[tuple[str, Row]]] = {"events.orders": Counter(), "events.clicks": Counter()}
    for fields in filter(None, map(_parsed, _events(records))):
        key = fields["customer"]
        kept = {name: fields.get(name) for name in ("article", "action", "cents", "at")}
        found[f"events.{fields['kind']}s"][key, row(kept)] += 1
    return found


def broken(records: Sequence[Record]) -> Counter[tuple[str, bytes]]:
    """Key and value of the events that do not parse."""
    return Counter((record.key or "", record.value or b"") for record in _events(records) if _parsed(record) is None)


def _events(records: Sequence[Record]) -> list[Record]:
    return [record for record in records if record.topic == "events"]


def _parsed(record: Record) -> dict[str, Any] | None:
    try:
        fields = record.fields
        datetime.fromisoformat(str(fields["at"]))
    except ValueError:
        return None
    return fields


def windows(records: Sequence[Record], width: timedelta, step: timedelta, *by: str) -> tuple[Counter[Row], int]:
    """Sums of orders per window, and how many windows late rows would have belonged to."""
    orders = rows_of(records, "orders")
    on_time, late = divided(orders, "orders")
    sums: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for order in on_time:
        for began in _begins(order["at"], width, step):
            sums[(began, *(order[name] for name in by))].append(order["cents"])
    end = _last_watermark(orders)
    found = Counter(
        row(dict(zip(("began", *by), group, strict=True)) | {"orders": len(cents), "cents": sum(cents)})
        for group, cents in sums.items()
        if group[0] + width <= end
    )
    missed = {(began, *(order[name] for name in by)) for order in late for began in _begins(order["at"], width, step)}
    return found, len(missed)


def _begins(at: datetime, width: timedelta, step: timedelta) -> list[datetime]:
    last = _floor(at, step)
    return [last - step * back for back in range(width // step)]


def sales_by_quarter_hour(records: Sequence[Record]) -> Counter[Row]:
    quarter = timedelta(minutes=15)
    return windows(records, quarter, quarter, "country")[0]


def sales_last_half_hour(records: Sequence[Record]) -> Counter[Row]:
    half = timedelta(minutes=30)
    found, _ = windows(records, half, half / 2)
    return Counter({row({**dict(each), "ended": dict(each)["began"] + half}): 1 for each in found})


def visits(records: Sequence[Record]) -> Counter[Row]:
    clicks = rows_of(records, "clicks")
    times: dict[str, list[datetime]] = defaultdict(list)
    for click in divided(clicks, "clicks")[0]:
        times[click["customer"]].append(click["at"])
    end = _last_watermark(clicks)
    found: Counter[Row] = Counter()
    for customer, moments in times.items():
        for visit in _sessions(sorted(moments)):
            if visit[-1] + VISIT_GAP <= end:
                fields = {"customer": customer, "began": visit[0], "ended": visit[-1], "clicks": len(visit)}
                found[row(fields)] += 1
    return found


def _sessions(moments: list[datetime]) -> list[list[datetime]]:
    found: list[list[datetime]] = []
    for moment in moments:
        if found and moment - found[-1][-1] <= VISIT_GAP:
            found[-1].append(moment)
        else:
            found.append([moment])
    return found


def attributed(records: Sequence[Record]) -> Counter[Row]:
    orders, clicks = rows_of(records, "orders"), rows_of(records, "clicks")
    orders_on_time, _ = divided(orders, "orders", (clicks, "clicks"))
    clicks_on_time, _ = divided(clicks, "clicks", (orders, "orders"))
    return Counter(
        row(
            {name: order[name] for name in ("order_id", "cents", "at")}
            | {"click": click["click"], "action": click["action"], "clicked": click["at"]}
        )
        for order in orders_on_time
        for click in clicks_on_time
        if (order["customer"], order["article"]) == (click["customer"], click["article"])
        and order["at"] - timedelta(minutes=30) <= click["at"] <= order["at"]
    )


def customer_orders(parts: Sequence[Sequence[Record]]) -> Counter[Row]:
    """The table is at rest while the orders of one part are read."""
    customers: dict[str, dict[str, Any]] = {}
    found: Counter[Row] = Counter()
    for part in parts:
        for record in part:
            if record.topic == "customers":
                customers[str(record.key)] = {} if record.value is None else record.fields
        for order in rows_of(part, "orders"):
            kept = {name: order[name] for name in ("order_id", "customer", "cents")}
            found[row(kept | customers.get(order["customer"], {}))] += 1
    return found


def taxed_orders(records: Sequence[Record]) -> Counter[Row]:
    return Counter(
        row(
            {name: order[name] for name in ("order_id", "country", "cents")}
            | {"tax_cents": order["cents"] * RATES[order["country"]] // (100 + RATES[order["country"]])}
        )
        for order in rows_of(records, "orders")
    )


def unique_orders(records: Sequence[Record]) -> Counter[Row]:
    on_time, _ = divided(rows_of(records, "orders"), "orders")
    return Counter(set(map(row, on_time)))


def reminders(records: Sequence[Record]) -> Counter[Row]:
    clicks = rows_of(records, "clicks")
    steps = [click for click in divided(clicks, "clicks")[0] if click["action"] != "view"]
    end = _last_watermark(clicks_with_steps := [click for click in clicks if click["action"] != "view"])
    assert clicks_with_steps
    of_customer: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for step in steps:
        of_customer[step["customer"]].append(step)
    return Counter(
        row({"customer": customer, "article": basket["article"], "left_at": basket["at"]})
        for customer, theirs in of_customer.items()
        for basket in theirs
        if basket["action"] == "basket"
        and basket["at"] + PATIENCE <= end
        and not any(basket["at"] < each["at"] <= basket["at"] + PATIENCE for each in theirs)
    )


Table = dict[str, Row]


def _grouped(records: Sequence[Record], key: Callable[[dict[str, Any]], str]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for order in rows_of(records, "orders"):
        found[key(order)].append(order)
    return found


def _sums(orders: list[dict[str, Any]]) -> Row:
    return row({"orders": len(orders), "cents": sum(order["cents"] for order in orders)})


def customer_totals(records: Sequence[Record]) -> Table:
    return {key: _sums(orders) for key, orders in _grouped(records, lambda order: order["customer"]).items()}


def article_sales(records: Sequence[Record]) -> Table:
    def key(order: dict[str, Any]) -> str:
        return json.dumps({name: order[name] for name in ("article", "country")}, separators=(",", ":"))

    return {
        key: row({"sold": len(orders), "last_sold": max(order["at"] for order in orders)})
        for key, orders in _grouped(records, key).items()
    }


def large_orders(records: Sequence[Record]) -> Counter[Row]:
    return Counter(
        row({"order_id": order["order_id"], "article": order["article"], "euros": order["cents"] / 100})
        for order in rows_of(records, "orders")
        if order["cents"] / 100 > 100
    )


def country_sales(records: Sequence[Record]) -> Table:
    return {key: _sums(orders) for key, orders in _grouped(records, lambda order: order["country"]).items()}

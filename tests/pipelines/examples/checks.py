"""Each example's output held against its reference, record by record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from examples.shop import Record
from tests.pipelines.examples import references
from tests.pipelines.examples.ground import Written, read
from tests.pipelines.examples.references import Row, Table, row

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
Parts = Sequence[Sequence[Record]]
"""The feed as it was written: the second part when everything of the first was read."""


def check_stream(bootstrap: str, topic: str, expected: Counter[Row]) -> None:
    """Each row is there as often as it should be, in a record without a key."""
    written = read(bootstrap, topic)
    assert all(record.key is None for record in written)
    _same(topic, Counter(row(record.fields) for record in written), expected)


def check_table(bootstrap: str, topic: str, expected: Table, *, grows: str) -> None:
    """The newest record of each key is the whole truth, and those before it were on the way there: a figure that
    grows with every order never stands still and never falls back."""
    newest: dict[str, Written] = {}
    for record in read(bootstrap, topic):
        assert record.key is not None
        before = newest.get(record.key)
        assert before is None or before.fields[grows] < record.fields[grows], f"{topic}: {before}, then {record}"
        newest[record.key] = record
    found = Counter((key, row(record.fields)) for key, record in newest.items())
    _same(topic, found, Counter(expected.items()))


def _same(topic: str, found: Counter, expected: Counter) -> None:
    assert expected, f"the feed has nothing for {topic}"
    lost, extra = expected - found, found - expected
    first = f"lost {sorted(lost, key=str)[:3]}, too many {sorted(extra, key=str)[:3]}"
    assert (lost.total(), extra.total()) == (0, 0), f"{topic}: {lost.total()} lost, {extra.total()} too many; {first}"


def routing(bootstrap: str, parts: Parts) -> None:
    records = _all(parts)
    for topic, expected in references.routed(records).items():
        found = Counter((record.key, row(record.fields)) for record in read(bootstrap, topic))
        _same(topic, found, expected)
    dead = read(bootstrap, "events.dead")
    _same("events.dead", Counter((record.key, record.value) for record in dead), references.broken(records))
    places = {(record.headers["source.partition"], record.headers["source.offset"]) for record in dead}
    assert len(places) == len(dead)


def windows(bootstrap: str, parts: Parts) -> None:
    records = _all(parts)
    check_stream(bootstrap, "sales_by_quarter_hour", references.sales_by_quarter_hour(records))
    check_stream(bootstrap, "sales_last_half_hour", references.sales_last_half_hour(records))
    check_stream(bootstrap, "visits", references.visits(records))


def attribution(bootstrap: str, parts: Parts) -> None:
    check_stream(bootstrap, "attributed", references.attributed(_all(parts)))


def customer_orders(bootstrap: str, parts: Parts) -> None:
    check_stream(bootstrap, "customer_orders", references.customer_orders(parts))


def taxes(bootstrap: str, parts: Parts) -> None:
    check_stream(bootstrap, "taxed_orders", references.taxed_orders(_all(parts)))


def deduplicate(bootstrap: str, parts: Parts) -> None:
    check_stream(bootstrap, "unique_orders", references.unique_orders(_all(parts)))


def reminders(bootstrap: str, parts: Parts) -> None:
    check_stream(bootstrap, "reminders", references.reminders(_all(parts)))


def totals(bootstrap: str, parts: Parts) -> None:
    records = _all(parts)
    check_table(bootstrap, "customer_totals", references.customer_totals(records), grows="orders")
    check_table(bootstrap, "article_sales", references.article_sales(records), grows="sold")


def large_orders(bootstrap: str, parts: Parts) -> None:
    records = _all(parts)
    check_stream(bootstrap, "large_orders", references.large_orders(records))
    check_table(bootstrap, "country_sales", references.country_sales(records), grows="orders")


def _all(parts: Parts) -> list[Record]:
    return [record for part in parts for record in part]


CHECKS: dict[str, Callable[[str, Parts], None]] = {
    "routing.py": routing,
    "windows.py": windows,
    "attribution.py": attribution,
    "customer_orders.py": customer_orders,
    "taxes.py": taxes,
    "deduplicate.py": deduplicate,
    "reminders.py": reminders,
    "totals.py": totals,
    "large_orders.sql": large_orders,
}
"""By example: what its output must be."""

"""Who looks while a pipeline is rebuilt: SQL and single keys of a view, and a stock consumer of the public topic.

What both versions of the table must be is worked out here in plain Python. Every look is the old version, the new one,
nothing, or neither of them; and who has seen the new version must not see the old one again. With the role `fill` it
writes the orders that the table is made of.
"""

from __future__ import annotations

import json
import random
import select
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from bench.clients.turn import finish, task, wait_for_sign
from strandline import views

ORDERS, TOTALS = "rebuild-orders", "rebuild-totals"
PIPELINE, VIEW = "rebuild", "rebuild_totals"
CITIES = ("Lisboa", "Bergen", "Aarhus", "Galway")
SCHEMA = "customer STRING, city STRING, cents BIGINT"
RULES = ("city <> 'Galway'", "city <> 'Lisboa' OR cents >= 800")
"""The orders that count, in each version: half of the rows stay, others change, and some come or go."""
PAUSE_S = 0.02
"""Between two looks: readers must not take the cores from what they look at."""
LAST_LOOK_S = 60.0
OLD, NEW, EMPTY, MIXED = "old", "new", "empty", "mixed"

Row = tuple[int, int]
"""How many orders, and the sum of their cents."""


def orders(records: int, customers: int) -> Iterator[tuple[str, str, int]]:
    rng = random.Random(1)
    for number in range(records):
        customer = number % customers
        yield f"c-{customer:07}", CITIES[customer % len(CITIES)], int(rng.random() * 1000)


def tables(records: int, customers: int) -> tuple[dict[str, Row], dict[str, Row]]:
    """What the two rules make of the orders."""
    old: dict[str, Row] = {}
    new: dict[str, Row] = {}
    for customer, city, cents in orders(records, customers):
        if city != "Galway":
            count, total = old.get(customer, (0, 0))
            old[customer] = count + 1, total + cents
        if city != "Lisboa" or cents >= 800:
            count, total = new.get(customer, (0, 0))
            new[customer] = count + 1, total + cents
    return old, new


def summed(table: dict[str, Row]) -> tuple[int, int, int]:
    """Rows, orders, cents: a table that lacks a row, or has one of the other version, has other sums."""
    return len(table), sum(count for count, _ in table.values()), sum(cents for _, cents in table.values())


class Looks:
    """What was seen, by what it was."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter({OLD: 0, NEW: 0, EMPTY: 0, MIXED: 0})
        self.examples: list[str] = []
        self._is_new: set[Hashable] = set()

    def saw(self, what: object, old: object, new: object, *, is_empty: bool, place: Hashable = None) -> None:
        """`place` is what switches at one moment: the view, or a partition of the topic."""
        kind = OLD if what == old else NEW if what == new else EMPTY if is_empty else MIXED
        if kind == NEW:
            self._is_new.add(place)
        elif kind == OLD and place in self._is_new:
            kind = MIXED
        if kind in (EMPTY, MIXED) and len(self.examples) < 3:
            self.examples.append(f"{kind}: {what} at {place}, which is {old} before and {new} after")
        self.counts[kind] += 1

    def told(self) -> dict[str, Any]:
        return {**self.counts, "examples": self.examples}


def until_told(look: Callable[[], None], looks: Looks) -> None:
    """Look again and again; when told to end, not before the new version was seen."""
    look()
    wait_for_sign()
    while not select.select([sys.stdin], [], [], PAUSE_S)[0]:
        look()
    sys.stdin.readline()
    deadline = time.monotonic() + LAST_LOOK_S
    while not looks.counts[NEW] and time.monotonic() < deadline:
        look()
        time.sleep(PAUSE_S)


def query(options: dict[str, Any], looks: Looks) -> None:
    old, new = map(summed, tables(options["records"], options["customers"]))
    sql = f"select count(*), sum(orders), sum(cents) from {VIEW}"
    with views.Desk(options["bootstrap"], directory=Path(options["directory"]), timeout_s=60) as desk:

        def look() -> None:
            rows = tuple(int(each or 0) for each in desk.query(sql).rows[0])
            looks.saw(rows, old, new, is_empty=rows[0] == 0)

        until_told(look, looks)


def get(options: dict[str, Any], looks: Looks) -> None:
    old, new = tables(options["records"], options["customers"])
    # Of a key that is the same in both nobody could say which version it was.
    keys = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    rng = random.Random(3)
    with views.Desk(options["bootstrap"], directory=Path(options["directory"]), timeout_s=60) as desk:

        def look() -> None:
            key = rng.choice(keys)
            row = desk.row(VIEW, key)
            told = None if row is None else (row["orders"], row["cents"])
            looks.saw(told, old.get(key), new.get(key), is_empty=row is None)

        until_told(look, looks)


class Fold:
    """A partition of the public topic, as a stock consumer folds it."""

    def __init__(self) -> None:
        self.rows: dict[bytes, Row] = {}
        self.sums = (0, 0, 0)
        self.is_at_end = False

    def take(self, key: bytes, value: bytes | None) -> None:
        self.is_at_end = False
        rows, count, cents = self.sums
        before = self.rows.pop(key, None)
        if before is not None:
            rows, count, cents = rows - 1, count - before[0], cents - before[1]
        if value is not None:
            told = json.loads(value)
            self.rows[key] = row = (told["orders"], told["cents"])
            rows, count, cents = rows + 1, count + row[0], cents + row[1]
        self.sums = rows, count, cents


def consume(options: dict[str, Any], looks: Looks) -> None:
    """Looks at a partition whenever it has read all of it: what is committed there is one version or the other.

    The partitions of a transaction are committed some milliseconds apart, for a consumer of any Kafka. Which keys are
    in which partition nobody asks: what each was at the beginning, and what it is at the end, must be the two versions.
    """
    old, new = map(summed, tables(options["records"], options["customers"]))
    consumer = Consumer(
        {
            "bootstrap.servers": options["bootstrap"],
            "group.id": f"looks-{uuid.uuid4()}",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "log_level": 3,
        }
    )
    partitions = consumer.list_topics(TOTALS, timeout=60).topics[TOTALS].partitions
    folds = {partition: Fold() for partition in partitions}
    consumer.assign([TopicPartition(TOTALS, partition, OFFSET_BEGINNING) for partition in partitions])
    seen: dict[int, list[tuple[tuple[int, int, int], int]]] = {partition: [] for partition in partitions}

    def read(wait_s: float) -> None:
        for message in consumer.consume(5_000, wait_s):
            error = message.error()
            if error is None:
                folds[message.partition()].take(message.key(), message.value())
            elif error.code() == KafkaError._PARTITION_EOF:
                folds[message.partition()].is_at_end = True
            elif not error.retriable():
                raise KafkaException(error)

    def look() -> None:
        for partition, fold in folds.items():
            if fold.is_at_end:
                history = seen[partition]
                if history and history[-1][0] == fold.sums:
                    history[-1] = fold.sums, history[-1][1] + 1
                else:
                    history.append((fold.sums, 1))

    def total() -> tuple[int, int, int]:
        rows, count, cents = map(sum, zip(*(fold.sums for fold in folds.values()), strict=True))
        return rows, count, cents

    while not all(fold.is_at_end for fold in folds.values()):
        read(1.0)
    if total() != old:
        raise SystemExit(f"{TOTALS} is {total()} before the rebuild, not {old}")
    wait_for_sign()
    while not select.select([sys.stdin], [], [], 0)[0]:
        look()
        read(PAUSE_S)
    sys.stdin.readline()
    deadline = time.monotonic() + LAST_LOOK_S
    while total() != new and time.monotonic() < deadline:
        look()
        read(PAUSE_S)
    look()
    consumer.close()
    if total() != new:
        raise SystemExit(f"{TOTALS} is {total()} after the rebuild, not {new}")
    for partition, history in seen.items():
        first, last = history[0][0], history[-1][0]
        for sums, times in history:
            for _ in range(times):
                looks.saw(sums, first, last, is_empty=sums[0] == 0, place=partition)


def fill(options: dict[str, Any]) -> None:
    producer = Producer(
        {
            "bootstrap.servers": options["bootstrap"],
            "compression.type": "lz4",
            "linger.ms": 20,
            "queue.buffering.max.messages": 1_000_000,
            "delivery.report.only.error": True,
            "log_level": 3,
        }
    )
    wait_for_sign()
    for number, (customer, city, cents) in enumerate(orders(options["records"], options["customers"])):
        value = b'{"customer":"%s","city":"%s","cents":%d}' % (customer.encode(), city.encode(), cents)
        producer.produce(ORDERS, value=value.ljust(100), partition=number % options["partitions"])
        if number % 10_000 == 0:
            producer.poll(0)
            while len(producer) > 500_000:
                producer.poll(0.01)
    if producer.flush(300):
        raise SystemExit("the broker did not take all orders")
    finish(records=options["records"])


READERS: dict[str, Callable[[dict[str, Any], Looks], None]] = {"query": query, "get": get, "consume": consume}


def main() -> None:
    options = task()
    if options["role"] == "fill":
        fill(options)
        return
    looks = Looks()
    READERS[options["role"]](options, looks)
    finish(**looks.told())


if __name__ == "__main__":
    main()

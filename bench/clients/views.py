"""A view of many keys in a process of its own: made from the log, then asked, while the log goes on.

Every answer is checked: the sum of a column is known, and every row that is looked up is what was written.
"""

from __future__ import annotations

import json
import random
import resource
import sys
import time
from multiprocessing import get_context
from pathlib import Path

from confluent_kafka import Producer

from bench.clients.turn import finish, task, wait_for_sign
from strandline import views

TOPIC = "views"
SCHEMA = "customer STRING, total DOUBLE, visits BIGINT, city STRING"
QUERIES = {
    "top": "select customer, total from totals order by total desc limit 10",
    "group": "select city, count(*), sum(total), avg(visits) from totals group by city order by city",
    "sum": "select count(*), sum(visits) from totals",
}
WARM_GETS = 20


def value_of(number: int, total: float) -> bytes:
    return b'{"total":%.2f,"visits":%d,"city":"city %d"}' % (total, number, number % 100)


def produced(bootstrap: str, numbers: range, total: float) -> None:
    """Write the rows in a process of its own: what it needs is not what the view needs."""
    writer = get_context("spawn").Process(target=_produce, args=(bootstrap, numbers, total))
    writer.start()
    writer.join()
    if writer.exitcode:
        raise RuntimeError("the broker did not take all records")


def _produce(bootstrap: str, numbers: range, total: float) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": "lz4",
            "linger.ms": 20,
            "partitioner": "murmur2_random",
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    for number in numbers:
        producer.produce(TOPIC, key=b"customer-%d" % number, value=value_of(number, total))
        if number % 10_000 == 0:
            producer.poll(0)
    sys.exit(1 if producer.flush(300) else 0)


def main() -> None:
    wanted = task()
    keys, gets, queries = wanted["keys"], wanted["gets"], wanted["queries"]
    bootstrap = wanted["bootstrap"]
    produced(bootstrap, range(keys), 1.0)
    wait_for_sign()
    definition = views.define("totals", TOPIC, schema=SCHEMA, key=("customer",))
    where = {"bootstrap": bootstrap, "directory": Path(wanted["directory"])}
    results: dict[str, object] = {}
    began = time.perf_counter()
    with views.open(definition, **where) as view:
        results["first_s"] = time.perf_counter() - began
        # Behind the snapshot, so that both parts answer.
        produced(bootstrap, range(keys // 100), 2.0)
        began = time.perf_counter()
        view.refresh()
        results["refresh_ms"] = (time.perf_counter() - began) * 1000
        results["queries"] = {
            name: [_timed_query(view, sql, keys) for _ in range(1 + queries)][1:] for name, sql in QUERIES.items()
        }
        rng = random.Random(7)
        results["gets_ms"] = [_timed_get(view, rng.randrange(keys), keys) for _ in range(WARM_GETS + gets)][WARM_GETS:]
        results["behind"] = view.freshness.records_behind
    began = time.perf_counter()
    with views.open(definition, **where) as view:
        _timed_query(view, QUERIES["sum"], keys)
        results["again_ms"] = (time.perf_counter() - began) * 1000
    results["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    finish(**results)


def _timed_query(view: views.View, sql: str, keys: int) -> float:
    began = time.perf_counter()
    answer = view.query(sql)
    taken_ms = (time.perf_counter() - began) * 1000
    if sql == QUERIES["sum"] and [int(each) for each in answer.rows[0]] != [keys, keys * (keys - 1) // 2]:
        raise RuntimeError(f"{sql}: {answer.rows}")
    return taken_ms


def _timed_get(view: views.View, number: int, keys: int) -> float:
    began = time.perf_counter()
    row = view.get(f"customer-{number}")
    taken_ms = (time.perf_counter() - began) * 1000
    expected = json.loads(value_of(number, 2.0 if number < keys // 100 else 1.0))
    if row is None or {name: row[name] for name in expected} != expected:
        raise RuntimeError(f"customer-{number} is {row}")
    return taken_ms


if __name__ == "__main__":
    main()

"""A view of a million keys: SQL and single keys, in a process that has it open, and on the command line."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from bench.client_process import ClientProcess
from bench.clients.views import QUERIES, SCHEMA, TOPIC
from bench.figures import Figure, at_most
from bench.measure import percentile
from bench.stage import ASYNC_FLUSH, Stage

NAME = "views"
SUMMARY = "a view of 1 M keys: made from the log, queried with SQL, single keys; and by the command line"
KEYS = 1_000_000
PARTITIONS = 4
GETS = 1_000
RUNS = 5
_PROGRAM = "import sys; from strandline.cli import main; sys.exit(main())"


def run(stage: Stage) -> list[Figure]:
    stage.put_shared_pair_away()
    keys = stage.scaled(KEYS, 10_000)
    broker = stage.start(next(iter(stage.starters())), settings=ASYNC_FLUSH)
    directory = stage.root / NAME
    try:
        broker.create_topic(TOPIC, PARTITIONS, {"cleanup.policy": "compact"})
        asked = {"keys": keys, "gets": stage.scaled(GETS, 50), "queries": stage.scaled(10, 2)}
        with ClientProcess("views", bootstrap=broker.bootstrap, directory=str(directory), **asked) as client:
            client.wait_ready()
            client.tell()
            found = client.result()
        commands_ms = _commands_ms(broker.bootstrap, str(directory), stage.scaled(RUNS, 1))
    finally:
        stage.discard(broker)
    return _figures(found, commands_ms, keys)


def _figures(found: dict[str, object], commands_ms: list[float], keys: int) -> list[Figure]:
    over = f"{keys:,} keys, a hundredth of them newer than the snapshot"
    queries, gets = found["queries"], found["gets_ms"]
    assert isinstance(queries, dict)
    assert isinstance(gets, list)
    return [
        *(Figure(f"query: {name}", "ms", queries[name], target=at_most(1000.0), note=over) for name in QUERIES),
        Figure("get, p50", "ms", [percentile(gets, 50)], note="up to the log's end, in process"),
        Figure("get, p99", "ms", [percentile(gets, 99)], target=at_most(20.0), note="up to the log's end, in process"),
        Figure("strandline view query", "ms", commands_ms, note="a process for each, with the snapshot that is there"),
        Figure("first time, from the log to a snapshot", "s", _numbers(found, "first_s")),
        Figure("opened again", "ms", _numbers(found, "again_ms"), note="snapshot, tail and one query"),
        Figure("caught up with a hundredth", "ms", _numbers(found, "refresh_ms")),
        Figure("memory of the process, at most", "MB", _numbers(found, "peak_mb"), target=at_most(600.0)),
        Figure("records behind when all is asked", "records", _numbers(found, "behind"), target=at_most(0.0)),
    ]


def _numbers(found: dict[str, object], name: str) -> list[float]:
    number = found[name]
    assert isinstance(number, int | float)
    return [float(number)]


def _commands_ms(bootstrap: str, directory: str, runs: int) -> list[float]:
    environ = os.environ | {"STRANDLINE_BOOTSTRAP": bootstrap, "STRANDLINE_VIEWS": directory}
    create = ["view", "create", "totals", "--topic", TOPIC, "--key", "customer", "--schema", SCHEMA]
    subprocess.run([sys.executable, "-c", _PROGRAM, *create], env=environ, stdout=subprocess.PIPE, check=True)
    taken = []
    for _ in range(1 + runs):
        began = time.perf_counter()
        query = ["view", "query", QUERIES["top"], "--json"]
        asked = subprocess.run(
            [sys.executable, "-c", _PROGRAM, *query], env=environ, stdout=subprocess.PIPE, check=True
        )
        taken.append((time.perf_counter() - began) * 1000)
        if len(asked.stdout.splitlines()) != 10:
            raise RuntimeError(f"ten rows were asked for: {asked.stdout!r}")
    return taken[1:]

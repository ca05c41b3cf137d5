"""A pipeline is rebuilt over two million records while readers look at its table all the time."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.brokers import STRANDLINE, Broker
from bench.client_process import ClientProcess
from bench.clients.rebuild import EMPTY, MIXED, NEW, OLD, ORDERS, PIPELINE, READERS, RULES, SCHEMA, TOTALS, VIEW
from bench.figures import Figure, at_most
from bench.stage import ASYNC_FLUSH, Stage
from strandline.pipelines.versions.version_store import Registry

NAME = "rebuild"
SUMMARY = "pipeline rebuild over 2 M orders, while a view's SQL, its single keys and a stock consumer are read"
RECORDS, CUSTOMERS = 2_000_000, 200_000
QUICK_RECORDS, QUICK_CUSTOMERS = 20_000, 2_000
PARTITIONS = 4
LOOK_S = 0.05
"""How often the registry is asked how far the rebuild is, so how exact its times are."""
COMMAND_S_MAX = 1800.0
_ROOT = Path(__file__).resolve().parent.parent.parent

FILE = """
from pyspark.sql import functions as F

from strandline import pipeline

pipeline.name("{pipeline}")

orders = pipeline.source("orders", topic="{orders}", schema="{schema}")


@pipeline.view(key="customer", topic="{totals}")
def {view}(orders):
    counted = orders.where("{rule}")
    return counted.groupBy("customer").agg(F.count("*").alias("orders"), F.sum("cents").alias("cents"))
"""


def run(stage: Stage) -> list[Figure]:
    if stage.kafka_twice:
        stage.remarks.append("rebuild is not run: Apache Kafka has no CommitBatch, so nothing can be rebuilt on it")
        return []
    stage.put_shared_pair_away()
    size = {"records": stage.scaled(RECORDS, QUICK_RECORDS), "customers": stage.scaled(CUSTOMERS, QUICK_CUSTOMERS)}
    broker = stage.start(STRANDLINE, settings=ASYNC_FLUSH)
    try:
        return _measured(stage, broker, size)
    finally:
        stage.discard(broker)


def _measured(stage: Stage, broker: Broker, size: dict[str, int]) -> list[Figure]:
    home = stage.root / NAME
    home.mkdir()
    broker.create_topic(ORDERS, PARTITIONS)
    with ClientProcess("rebuild", role="fill", bootstrap=broker.bootstrap, partitions=PARTITIONS, **size) as client:
        client.wait_ready()
        client.tell()
        client.result()
    file = home / "rebuild.py"
    file.write_text(_text(RULES[0]))
    began = time.perf_counter()
    with _command(broker, home, "run", str(file), "--once"):
        pass
    stage.say(f"  version 1 is there after {time.perf_counter() - began:.1f} s")
    file.write_text(_text(RULES[1]))
    with contextlib.ExitStack() as stack:
        readers = {
            role: stack.enter_context(
                ClientProcess("rebuild", role=role, bootstrap=broker.bootstrap, directory=str(home / role), **size)
            )
            for role in READERS
        }
        for reader in readers.values():
            reader.wait_ready()
        for reader in readers.values():
            reader.tell()
        times = _rebuilt(broker, home)
        for reader in readers.values():
            reader.tell()
        looks = {role: reader.result() for role, reader in readers.items()}
    for role, told in looks.items():
        stage.say(f"  {role}: {told[OLD]:,} looks before the switch, {told[NEW]:,} after it")
    _check(looks)
    return _figures(times, looks, size)


def _rebuilt(broker: Broker, home: Path) -> dict[str, float]:
    """Rebuild it; when, in seconds since the command began, each phase was first seen."""
    times: dict[str, float] = {}
    began = time.perf_counter()
    with Registry(broker.bootstrap) as registry, _command(broker, home, "rebuild", PIPELINE, "--yes") as process:
        while process.poll() is None:
            if time.perf_counter() - began > COMMAND_S_MAX:
                raise RuntimeError(f"pipeline rebuild is not done after {COMMAND_S_MAX:g} s")
            _note_phase(registry, times, began)
            time.sleep(LOOK_S)
        times["ended"] = time.perf_counter() - began
        _note_phase(registry, times, began)
    missing = {"building", "switching", "switched"} - times.keys()
    if missing:
        raise RuntimeError(f"the rebuild was never seen {', '.join(sorted(missing))}: {times}")
    return times


def _note_phase(registry: Registry, times: dict[str, float], began: float) -> None:
    state = registry.refresh().pipeline(PIPELINE)
    if state is not None and state.rebuild is not None:
        times.setdefault(state.rebuild.phase, time.perf_counter() - began)


def _check(looks: dict[str, dict[str, Any]]) -> None:
    """Figures of a switch that somebody saw half done are none, and so are those of one that nobody saw."""
    for role, told in looks.items():
        if told[EMPTY] or told[MIXED]:
            raise RuntimeError(f"{role} saw {told[EMPTY]} empty and {told[MIXED]} mixed views: {told['examples']}")
        if not told[OLD] or not told[NEW]:
            raise RuntimeError(f"{role} saw the old version {told[OLD]} times and the new one {told[NEW]} times")


def _figures(times: dict[str, float], looks: dict[str, dict[str, Any]], size: dict[str, int]) -> list[Figure]:
    over = f"{size['records']:,} records, {size['customers']:,} keys, three readers beside it"
    caught_up_s = times["switching"]
    building_s = times["switching"] - times["building"]
    names = {"query": "view query", "get": "view get", "consume": "a stock consumer, partition by partition"}
    return [
        Figure("until caught up", "s", [caught_up_s], note=f"{over}; from the command on, Spark's start included"),
        Figure("rebuilt", "rec/s", [size["records"] / building_s], note="from the first record of it to caught up"),
        Figure("the switch", "s", [times["switched"] - caught_up_s], note="from letting go to what the name means"),
        *(
            Figure(f"looks: {names[role]}", "looks", [float(sum(told[kind] for kind in (OLD, NEW, EMPTY, MIXED)))])
            for role, told in looks.items()
        ),
        Figure(
            "looks that saw an empty or a mixed view",
            "looks",
            [float(sum(told[EMPTY] + told[MIXED] for told in looks.values()))],
            target=at_most(0.0),
        ),
    ]


def _text(rule: str) -> str:
    return FILE.format(pipeline=PIPELINE, orders=ORDERS, schema=SCHEMA, totals=TOTALS, view=VIEW, rule=rule)


@contextlib.contextmanager
def _command(broker: Broker, home: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """`strandline pipeline` as a process, for the length of a block; at its end it must have ended well."""
    command = [sys.executable, "-m", "strandline", "pipeline", *words, "--bootstrap", broker.bootstrap]
    command += ["--checkpoints", str(home / "checkpoints"), "--master", "local[2]"]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(_ROOT / "src"), os.environ.get("PYTHONPATH", "")])}
    log = home / f"{words[0]}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=home, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environ)
    try:
        yield process
        status = process.wait(COMMAND_S_MAX)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    if status != 0:
        raise RuntimeError(f"pipeline {words[0]} left with status {status}: {log.read_text()[-2000:]}")

"""One of three workers is killed: when its tasks run elsewhere, and whether a record is lost or doubled."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from bench.brokers import Broker
from bench.connect_workers import ConnectProcess, our_worker
from bench.figures import Figure, at_most
from bench.stage import Stage

SESSION_S: Final = 6.0
TASKS: Final = 6
PARTITIONS: Final = 3
RATE: Final = 200
"""Records a second of each task."""
WAIT_S: Final = 120.0
_GROUP: Final = "killed"
_JSON: Final = {
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}


def killed_workers(stage: Stage, broker: Broker) -> list[Figure]:
    """Kill workers one after the other, each by SIGKILL, while sources write exactly once and a sink reads them."""
    kills = stage.scaled(3, 1)
    # The sources still write when the last worker is killed.
    count = RATE * stage.scaled(100, 20)
    broker.create_topic("numbers", PARTITIONS)
    took_s: list[float] = []
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(_worker(stage, broker)) for _ in range(3)]
        _create(workers[0], stage.root, count)
        for number in range(kills):
            victim, survivor = workers[number % 3], workers[(number + 1) % 3]
            _wait(lambda: len(set(_places(survivor))) == 3, "tasks run on all three workers")  # noqa: B023
            gone = victim.url.removeprefix("http://")
            os.kill(victim.pid, signal.SIGKILL)
            began_s = time.monotonic()
            _wait(
                lambda: len(on := _places(survivor)) == TASKS + PARTITIONS and gone not in on,  # noqa: B023
                f"the tasks of {gone} run elsewhere",
            )
            took_s.append(time.monotonic() - began_s)
            stage.say(f"  kill {number + 1}: tasks run elsewhere after {took_s[-1]:.2f} s")
            workers[number % 3] = stack.enter_context(_worker(stage, broker))
        expected = count * TASKS
        with contextlib.suppress(TimeoutError):
            _wait(lambda: _written(stage.root).total() >= expected, "everything is written", every_s=1.0)
        written = _written(stage.root)
    where = f"of {expected:,}, {kills} times kill -9; sources exactly once, files with offsets beside them"
    note = f"session timeout {SESSION_S:g} s, {TASKS} tasks of a source and {PARTITIONS} of a sink"
    return [
        Figure("worker killed, its tasks run elsewhere", "s", took_s, target=at_most(SESSION_S + 3), note=note),
        Figure(
            "worker killed, records lost", "records", [float(expected - len(written))], target=at_most(0), note=where
        ),
        Figure(
            "worker killed, records doubled",
            "records",
            [float(written.total() - len(written))],
            target=at_most(0),
            note=where,
        ),
    ]


def _worker(stage: Stage, broker: Broker) -> contextlib.AbstractContextManager[ConnectProcess]:
    topics = {f"{each}.storage.topic": f"{_GROUP}-{each}" for each in ("config", "offset", "status")}
    settings = {"group.id": _GROUP, "session.timeout.ms": str(int(SESSION_S * 1000)), **topics}
    return our_worker(broker.bootstrap, stage.root, settings)


def _create(worker: ConnectProcess, root: Path, count: int) -> None:
    # An id is a function of the task and the number of the record, so each is there once.
    schema = {"n": {"kind": "sequence"}, "id": {"kind": "uuid"}}
    source = {
        "connector.class": "GeneratorSource",
        "topic": "numbers",
        "schema": json.dumps(schema),
        "key.field": "id",
        "rate": str(RATE),
        "iterations": str(count),
        "tasks.max": str(TASKS),
        **_JSON,
    }
    sink = {
        "connector.class": "FileSink",
        "topics": "numbers",
        "file": str(root / "numbers-${partition}.jsonl"),
        "format": "json",
        "tasks.max": str(PARTITIONS),
        **_JSON,
    }
    worker.create("numbers-source", source)
    worker.create("numbers-sink", sink)


def _places(worker: ConnectProcess) -> list[str]:
    """Return the worker of each task that runs."""
    found = []
    for name in ("numbers-source", "numbers-sink"):
        try:
            status = worker.ask("GET", f"/connectors/{name}/status")
        except OSError:
            continue
        found += [each["worker_id"] for each in status["tasks"] if each["state"] == "RUNNING"]
    return found


def _written(root: Path) -> Counter[str]:
    """Count the ids in the files."""
    return Counter(_ids(root))


def _ids(root: Path) -> Iterator[str]:
    for path in root.glob("numbers-*.jsonl"):
        for line in path.read_text().splitlines():
            with contextlib.suppress(ValueError):
                # The last line may be half written.
                yield json.loads(line)["id"]


def _wait(is_so: Callable[[], bool], what: str, *, every_s: float = 0.05) -> None:
    until = time.monotonic() + WAIT_S
    while not is_so():
        if time.monotonic() > until:
            raise TimeoutError(f"not within {WAIT_S:.0f} s: {what}")
        time.sleep(every_s)

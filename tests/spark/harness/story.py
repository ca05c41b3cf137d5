"""One pipeline from topic to topic, and everything that is done to it.

Exactly once means: every number that went in came out, once, for a stock read_committed consumer, whatever was killed
on the way.
"""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from confluent_kafka import Producer
from tests.spark.harness.driver_process import DriverFailed, DriverProcess, wait_until
from tests.spark.harness.fault_files import FaultFiles
from tests.spark.harness.looking import values_of

from strandline.local.embedded_cluster import EmbeddedCluster

SOURCE, TARGET = "numbers", "numbers-out"
STATE_TOPIC = "__transaction_state"
SOURCE_PARTITIONS, TARGET_PARTITIONS = 3, 4
AHEAD_BATCHES = 10
"""The input is always so many batches ahead of what is planned, so that the query has something to do."""
BATCH_TIMEOUT_S = 600.0
"""For one batch: nodes are elected, workers and sessions start meanwhile, on a machine that may be busy."""
LOOK_EVERY_S = 0.002
"""Often enough to strike between two steps of a batch."""
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A Java that is killed after a minute does not get back what it spends on compiling well."""
STARTS_MAX = 6
"""A query that fails so often without a fault of ours is a finding."""


@dataclass(frozen=True)
class Run:
    """How the pipeline is run: changes with restarts, as an operator changes it."""

    cores: int = 2
    tasks: int = 3
    limit: int = 24
    by_key: bool = False
    shuffle_partitions: int = 2
    transaction_timeout_ms: int = 300_000
    source_format: str = "strandline"
    master: str = ""
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def spark_master(self) -> str:
        # Spark's local mode gives a task one attempt unless it is told otherwise.
        return self.master or f"local[{self.cores},4]"

    @property
    def spark_settings(self) -> dict[str, str]:
        return {
            "spark.sql.shuffle.partitions": str(self.shuffle_partitions),
            "spark.sql.streaming.minBatchesToRetain": "1000",
            "spark.python.worker.reuse": "true",
            **dict(self.settings),
        }

    @property
    def session(self) -> tuple[object, ...]:
        """What only a new session can change."""
        return self.spark_master, self.shuffle_partitions, self.settings


@dataclass
class Story:
    cluster: EmbeddedCluster
    home: Path
    rng: random.Random
    say: Callable[[str], None] = print
    run: Run = field(default_factory=Run)
    driver: DriverProcess | None = None
    environ: dict[str, str] = field(default_factory=dict)
    """Of drivers, beside their faults."""
    sink_id: str = ""
    fed: int = 0
    drivers_started: int = 0
    queries_failed: int = 0
    last_error: str | None = None
    done: list[str] = field(default_factory=list)
    """The steps that happened, in words."""

    def __post_init__(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        self.checkpoint = self.home / "checkpoint"
        self.faults = FaultFiles(self.home / "faults")
        self.cluster.create_topic(SOURCE, SOURCE_PARTITIONS)
        self.cluster.create_topic(TARGET, TARGET_PARTITIONS)
        self._session: tuple[object, ...] = ()
        self._last = {"offsets": -1, "commits": -1}
        self._producer = Producer({"bootstrap.servers": self.cluster.bootstrap, "acks": "all", "log_level": 0})

    # The input

    def feed(self) -> None:
        """Numbers into the source, so that the query stays busy; each exactly once, by an idempotent producer."""
        wanted = self.planned() + AHEAD_BATCHES * self.run.limit
        for number in range(self.fed, wanted):
            self._producer.produce(SOURCE, str(number), key=f"k{number % 7}", partition=number % SOURCE_PARTITIONS)
        if self._producer.flush(BATCH_TIMEOUT_S):
            raise DriverFailed("the input was not acknowledged in time")
        self.fed = max(self.fed, wanted)

    def planned(self) -> int:
        """How many numbers are in batches, by what Spark wrote of the last one before it ran it."""
        last = self.last_planned()
        if last < 0:
            return 0
        # A version, what holds for the batch, and a line for each source: {"numbers":{"0":8,"1":8,"2":8}}.
        offsets = json.loads((self.checkpoint / "offsets" / str(last)).read_text().splitlines()[2])
        return sum(offsets[SOURCE].values())

    # The query

    def last_batch(self) -> int:
        """The last batch that Spark has committed, by its own log; -1 before the first."""
        return self._last_number("commits")

    def last_planned(self) -> int:
        return self._last_number("offsets")

    def _last_number(self, log: str) -> int:
        # Numbers have no gaps, and it is looked often.
        while (self.checkpoint / log / str(self._last[log] + 1)).exists():
            self._last[log] += 1
        return self._last[log]

    def ensure_driver(self) -> DriverProcess:
        if self.driver is not None and (not self.driver.is_alive or self._session != self.run.session):
            self.close_driver()
        if self.driver is None:
            self.driver = self.new_driver()
            self._session = self.run.session
        return self.driver

    def new_driver(self) -> DriverProcess:
        self.drivers_started += 1
        log = self.home / f"driver-{self.drivers_started}.log"
        settings = {**self.run.spark_settings, "spark.local.dir": str(self.home / "spark-local")}
        environ = {"JDK_JAVA_OPTIONS": SHORT_LIVED, **self.faults.environ, **self.environ}
        return DriverProcess(log, master=self.run.spark_master, settings=settings, environ=environ)

    def close_driver(self) -> None:
        if self.driver is not None:
            self.driver.close()
            self.driver = None

    def start_on(self, driver: DriverProcess, *, checkpoint: Path | None = None, to_the_end: bool = False) -> str:
        return driver.start_query(
            bootstrap=self.cluster.bootstrap,
            source_format=self.run.source_format,
            source=SOURCE,
            target=TARGET,
            tasks=self.run.tasks,
            by_key=self.run.by_key,
            limit=self.run.limit,
            transaction_timeout_ms=self.run.transaction_timeout_ms,
            checkpoint=str(checkpoint or self.checkpoint),
            to_the_end=to_the_end,
        )

    def ensure_query(self) -> DriverProcess:
        """The query runs, in a session with the settings of the hour; it is started if it ended."""
        self.feed()
        driver = self.ensure_driver()
        if driver.ended:
            if driver.error:
                self.queries_failed += 1
                self.last_error = driver.error
            self.sink_id = self.start_on(driver)
        return driver

    def stop_query(self) -> None:
        if self.driver is not None and self.driver.is_alive and not self.driver.ended:
            self.driver.stop_query()

    def go_on(self, batches: int) -> None:
        """Let so many batches be committed. The query is started again when it fails: that is what an operator does."""
        goal, starts = self.last_batch() + batches, 0
        while self.last_batch() < goal:
            driver = self.ensure_query()
            starts += 1
            if starts > STARTS_MAX:
                raise DriverFailed(f"the query fails again and again: {self.last_error}\n{driver.last_words()}")
            self._follow(driver, goal)

    def _follow(self, driver: DriverProcess, goal: int) -> None:
        """Feed the query until the batch `goal` is committed, or it ends."""
        while not driver.ended and (last := self.last_batch()) < goal:
            self.feed()
            if not watch_for(lambda last=last: self.last_batch() > last or driver.ended, BATCH_TIMEOUT_S):
                raise DriverFailed(f"no batch behind {last} in {BATCH_TIMEOUT_S:g} s: {driver.last_words()}")

    def change(self, **changes: object) -> None:
        """The query is stopped, and goes on in another shape."""
        self.stop_query()
        self.run = replace(self.run, **changes)  # type: ignore[arg-type]

    def in_sync(self) -> None:
        """All nodes run, and hold everything."""
        self.cluster.start_all()
        for topic in (SOURCE, TARGET, STATE_TOPIC):
            self.cluster.wait_in_sync(topic, timeout_s=BATCH_TIMEOUT_S)

    # The end

    def finish(self) -> None:
        """No more faults: everything that went in is read, and the query ends by itself."""
        self.in_sync()
        self.change(limit=10_000)
        for _ in range(STARTS_MAX):
            driver = self.ensure_driver()
            self.start_on(driver, to_the_end=True)
            wait_until("the end of the input", lambda driver=driver: driver.ended, BATCH_TIMEOUT_S)
            if driver.is_alive and driver.error is None:
                return
        raise DriverFailed(f"the query does not come to its end: {driver.error}\n{driver.last_words()}")

    def verdict(self) -> list[str]:
        """What is wrong with the output, in sentences; nothing if every number came out once."""
        seen = values_of(self.cluster.bootstrap, TARGET)
        lost = [number for number in range(self.fed) if not seen[str(number).encode()]]
        doubled = {int(value): count for value, count in seen.items() if count > 1}
        strangers = [value for value in seen if not value.isdigit() or int(value) >= self.fed]
        findings = []
        if lost:
            findings.append(f"{len(lost):,} of {self.fed:,} numbers are lost: {lost[:10]}")
        if doubled:
            findings.append(f"{len(doubled):,} numbers came more than once: {dict(list(doubled.items())[:10])}")
        if strangers:
            findings.append(f"there are values that nobody wrote: {strangers[:10]}")
        return findings

    def close(self) -> None:
        self.close_driver()

    def copy_checkpoint(self, to: Path) -> None:
        shutil.rmtree(to, ignore_errors=True)
        shutil.copytree(self.checkpoint, to)


def watch_for(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Look as often as can be; whether it came in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_EVERY_S)
    return True

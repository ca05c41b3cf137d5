"""The stage on which scenarios run: which brokers there are, how many rounds, and the turn-taking between brokers."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from bench.brokers import BEFORE, KAFKA, STRANDLINE, Broker, Server, start_kafka, start_strandline
from bench.cluster_node import KafkaSystem, StrandlineSystem, System
from bench.clusters import Cluster, local_cluster
from bench.figures import Figure, Samples, Target
from bench.local_brokers import LocalBrokers, start_local_brokers
from bench.warm_up import warm_up

CACHE = Path(__file__).resolve().parent.parent / ".cache" / "bench"
ASYNC_FLUSH = {"flush.mode": "async"}


class Contender(Protocol):
    """What takes turns. `name` is its column in the report."""

    name: str


_ContenderT = TypeVar("_ContenderT", bound=Contender)


class Starter(Protocol):
    def __call__(
        self,
        root: Path,
        *,
        settings: Mapping[str, str] | None,
        open_files_max: int | None,
        name: str,
        wait: bool,
        second: str,
    ) -> Broker: ...


@dataclass
class Stage:
    rounds: int = 5
    warm_rounds: int = 3
    quick: bool = False
    with_kafka: bool = True
    kafka_twice: bool = False
    """Kafka also plays Strandline's part. Every ratio should then be 1: what it differs by is the noise."""
    before: Path | None = None
    """Source of an earlier commit. Its broker takes its turn, too, and each figure shows the ratio to it."""
    say: Callable[[str], None] = print
    scenario: str = ""
    remarks: list[str] = field(default_factory=list)
    commands: dict[str, str] = field(default_factory=dict)
    _shared: list[Broker] = field(default_factory=list)
    _shared_clusters: list[Cluster] = field(default_factory=list)
    _alive: list[Server] = field(default_factory=list)
    _root: Path | None = None

    def scaled(self, full: int, quick: int) -> int:
        """The size of a piece of work: `full` gives figures to publish, `quick` only shows that the scenario runs."""
        return quick if self.quick else full

    @property
    def root(self) -> Path:
        """A directory of this run on the disk of the work tree, because /tmp may be memory."""
        if self._root is None:
            CACHE.mkdir(parents=True, exist_ok=True)
            self._root = Path(tempfile.mkdtemp(prefix="run-", dir=CACHE))
        return self._root

    def starters(self) -> dict[str, Starter]:
        starters: dict[str, Starter] = {STRANDLINE: start_kafka if self.kafka_twice else start_strandline}
        if self.before:
            starters[BEFORE] = partial(start_strandline, source=self.before)
        if self.with_kafka:
            starters[KAFKA] = start_kafka
        return starters

    def start(
        self,
        name: str,
        *,
        settings: Mapping[str, str] | None = None,
        both: Mapping[str, str] | None = None,
        open_files_max: int | None = None,
        wait: bool = True,
        second: str = "",
    ) -> Broker:
        """Start one broker by the name of its column; `settings` are Strandline's, `both` go to Kafka, too.

        `second` is the security protocol of a second listener.
        """
        starter = self.starters()[name]
        is_ours = starter is not start_kafka
        root = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.root)) / "node"
        wanted = {**((settings or {}) if is_ours else {}), **(both or {})}
        broker = starter(root, settings=wanted, open_files_max=open_files_max, name=name, wait=wait, second=second)
        self._alive.append(broker)
        self.commands.setdefault(name, _as_told(broker.command))
        return broker

    def start_at(self, name: str, source: Path, *, settings: Mapping[str, str]) -> Broker:
        """Start one broker of Strandline from a source tree, by the name of its column."""
        root = Path(tempfile.mkdtemp(prefix="earlier-", dir=self.root)) / "node"
        broker = start_strandline(root, settings=settings, name=name, source=source)
        self._alive.append(broker)
        self.commands.setdefault(name, _as_told(broker.command))
        return broker

    def start_cluster(
        self, name: str, *, settings: Mapping[str, str] | None = None, with_metrics: bool = False
    ) -> Cluster:
        """Three nodes by the name of their column, with the same settings for both systems."""
        system: System
        if self.starters()[name] is start_kafka:
            system = KafkaSystem()
        else:
            system = StrandlineSystem(self.before) if name == BEFORE and self.before else StrandlineSystem()
        root = Path(tempfile.mkdtemp(prefix=f"{name}-cluster-", dir=self.root))
        cluster = local_cluster(system, root, name=name, settings=settings, with_metrics=with_metrics)
        self._alive.append(cluster)
        self.commands.setdefault(f"{name} cluster", _as_told(cluster.command))
        cluster.start()
        return cluster

    def start_brokers(self, name: str, count: int, *, settings: Mapping[str, str]) -> LocalBrokers:
        """Several brokers of Strandline on this machine by one command, by the name of their column."""
        root = Path(tempfile.mkdtemp(prefix="brokers-", dir=self.root)) / "node"
        brokers = start_local_brokers(root, count, name=name, settings=settings)
        self._alive.append(brokers)
        self.commands.setdefault(name, _as_told(brokers.command))
        return brokers

    def discard(self, broker: Server) -> None:
        broker.stop()
        if broker.stalls():
            self.remarks.append(f"{broker.name}, stopped in {self.scenario}: {broker.stalls()}")
        broker.discard()
        if broker in self._alive:
            self._alive.remove(broker)

    def shared_pair(self) -> list[Broker]:
        """The warmed brokers that most scenarios use: `flush.mode=async`, which is what Kafka's default does."""
        if not self._shared:
            self.put_shared_pair_away()
            self._shared = [self.start(name, settings=ASYNC_FLUSH) for name in self.starters()]
            warm_up(self._shared, rounds=self.warm_rounds, quick=self.quick, say=self.say)
        return self._shared

    @contextmanager
    def fresh_pair(
        self,
        *,
        settings: Mapping[str, str] | None = None,
        both: Mapping[str, str] | None = None,
        open_files_max: int | None = None,
        warm: bool = False,
        second: str = "",
    ) -> Iterator[list[Broker]]:
        """Brokers of the scenario's own, alone on the machine: the shared pair is put away first."""
        self.put_shared_pair_away()
        brokers = []
        try:
            for name in self.starters():
                wanted = settings or ASYNC_FLUSH
                brokers.append(
                    self.start(name, settings=wanted, both=both, open_files_max=open_files_max, second=second)
                )
            if warm:
                warm_up(brokers, rounds=self.warm_rounds, quick=self.quick, say=self.say)
            yield brokers
        finally:
            for broker in brokers:
                self.discard(broker)

    def put_shared_pair_away(self) -> None:
        pair: list[Server] = [*self._shared, *self._shared_clusters]
        for broker in pair:
            self.discard(broker)
        self._shared, self._shared_clusters = [], []

    def shared_clusters(self) -> list[Cluster]:
        """Two warmed clusters of three nodes with stock settings, alone on the machine with their clients."""
        if not self._shared_clusters:
            self.put_shared_pair_away()
            for name in self.starters():
                self._shared_clusters.append(self.start_cluster(name))
            warm_up(self._shared_clusters, rounds=self.warm_rounds, quick=self.quick, say=self.say)
        return self._shared_clusters

    @contextmanager
    def fresh_clusters(self, *, settings: Mapping[str, str] | None = None) -> Iterator[list[Cluster]]:
        """Clusters of the scenario's own; what it kills and leaves behind is no concern of others."""
        self.put_shared_pair_away()
        clusters = []
        try:
            for name in self.starters():
                clusters.append(self.start_cluster(name, settings=settings))
            yield clusters
        finally:
            for cluster in clusters:
                self.discard(cluster)

    def take_turns(
        self,
        brokers: Sequence[_ContenderT],
        work: Callable[[_ContenderT], dict[str, float]],
        *,
        rounds: int | None = None,
        warm_rounds: int | None = None,
    ) -> Samples:
        """Do the same work on each broker in turn, A B A B, and keep what the rounds after the warm ones measured."""
        samples = Samples()
        warm = self.warm_rounds if warm_rounds is None else warm_rounds
        for number in range(warm + (rounds or self.rounds)):
            for broker in brokers:
                measured = work(broker)
                kind = "warm" if number < warm else "round"
                self.say(f"  {kind} {number + 1} {broker.name:10} " + _in_words(measured))
                if number >= warm:
                    samples.add(broker.name, measured)
        return samples

    def close(self) -> None:
        for broker in list(self._alive):
            self.discard(broker)
        if self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)


def beside_kafka(samples: Samples, metric: str, name: str, unit: str, target: Target | None, note: str = "") -> Figure:
    """The figure of one metric, Strandline's samples beside Kafka's."""
    ours, theirs, before = (samples.of(broker, metric) for broker in (STRANDLINE, KAFKA, BEFORE))
    return Figure(name, unit, ours, theirs, before=before, target=target, note=note)


def _in_words(measured: dict[str, float]) -> str:
    return "  ".join(f"{metric} {number:.4g}" for metric, number in measured.items())


def _as_told(command: Sequence[str]) -> str:
    """A command for the results, without the paths of this machine."""
    return " ".join(command).replace(sys.executable, "python").replace(str(CACHE.parent.parent), ".")

"""Share groups in the simulation: workers that come, go, die and hang, over one topic of tasks with keys and due times.

When the faults are over, every task must be done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final
from zlib import crc32

from tests.simulator.clients.client import History, SimClient
from tests.simulator.clients.share_worker import Leading, SimShareWorker, WorkerManners
from tests.simulator.truth.share_truth import ShareTruth
from tests.simulator.world.cluster import SimCluster

from strandline.codec.columns import Record
from strandline.codec.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from strandline.codec.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from strandline.ids import TopicPartition

TASKS: Final = "tasks"
GROUP_RESOURCE: Final = 32
WORKERS_MAX: Final = 5
KEYS: Final = 40
DELAYS_MS: Final = (0, 0, 0, 0, 0, 300, 2_000, 8_000)


def task_record(value: str, now_ms: int, *, is_delayed: bool) -> Record:
    """Return the task of a unique name: its key and its due time follow from that."""
    drawn = crc32(value.encode())
    key = None if drawn % (KEYS + 1) == KEYS else f"key-{drawn % (KEYS + 1)}".encode()
    delay_ms = DELAYS_MS[(drawn >> 8) % len(DELAYS_MS)] if is_delayed else 0
    return Record(timestamp_ms=now_ms + delay_ms, key=key, value=value.encode())


@dataclass(frozen=True, slots=True)
class ShareOptions:
    name: str
    workers: int = 2
    churn_s: float = 5.0
    """Between two changes of the workers, about; 0 for none."""
    is_key_ordered: bool = False
    backoff_ms: int = 0
    limit: int = 5
    """How often a task is delivered."""
    lock_s: float = 4.0
    manners: WorkerManners = field(default_factory=WorkerManners)

    def settings(self) -> dict[str, str]:
        return {
            "share.auto.offset.reset": "earliest",
            "share.delivery.count.limit": str(self.limit),
            "share.record.lock.duration.ms": str(int(self.lock_s * 1000)),
            "share.order": "key" if self.is_key_ordered else "none",
            "strandline.share.backoff.ms": str(self.backoff_ms),
        }


class SimShareGroup:
    def __init__(
        self,
        cluster: SimCluster,
        history: History,
        truth: ShareTruth,
        partition: TopicPartition,
        options: ShareOptions,
        *,
        leading: Leading,
        clock_of: Callable[[int], int],
    ) -> None:
        self.cluster = cluster
        self.history = history
        self.truth = truth
        self.partition = partition
        self.options = options
        self._leading = leading
        self._clock_of = clock_of
        self.random = cluster.loop.derive(f"share group {options.name}")
        self.workers: list[SimShareWorker] = []
        self.hosts: list[str] = []
        """Of all workers: faults of the network meet them, too."""
        self.is_calm = False
        self._number = 0
        truth.add(options.name, is_key_ordered=options.is_key_ordered, limit=options.limit)

    def start(self) -> None:
        """Give the group its settings, and then its workers: without them it would begin at the end of the log."""
        client = SimClient(
            self.cluster.network,
            self.cluster.host(f"admin-{self.options.name}"),
            self.history,
            self.cluster.bootstrap,
            [self.partition.topic],
        )
        changes = [AlterableConfig(name, 0, value) for name, value in self.options.settings().items()]
        resource = AlterConfigsResource(GROUP_RESOURCE, self.options.name, changes)
        request = IncrementalAlterConfigsRequest(resources=[resource])

        def on_answer(answer: IncrementalAlterConfigsResponse | None) -> None:
            if answer is None or answer.responses[0].error_code:
                client.runtime.call_later(0.3, ask)
                return
            client.kill()
            # Brokers learn of it a little later.
            self.cluster.loop.call_in(3.0, self._begin)

        def ask() -> None:
            client.ask_any(request, 1, IncrementalAlterConfigsResponse, on_answer)

        client.runtime.call_soon(ask)

    def _begin(self) -> None:
        for _ in range(self.options.workers):
            self.add()
        if self.options.churn_s:
            self._churn_later()

    def add(self) -> SimShareWorker:
        self._number += 1
        name = f"{self.options.name}-{self._number}"
        worker = SimShareWorker(
            self.cluster.network,
            self.cluster.host(name),
            self.history,
            self.cluster.bootstrap,
            self.truth,
            self.options.name,
            self.partition,
            manners=self.options.manners,
            leading=self._leading,
            clock_of=self._clock_of,
        )
        worker.is_calm = self.is_calm
        self.workers.append(worker)
        self.hosts.append(name)
        return worker

    # Coming and going

    def _churn_later(self) -> None:
        self.cluster.loop.call_in(self.options.churn_s * (0.3 + 1.4 * self.random.random()), self._churn)

    def _churn(self) -> None:
        if self.is_calm:
            return
        self._churn_later()
        if not self.workers or (len(self.workers) < WORKERS_MAX and self.random.random() < 0.35):
            self.add()
            return
        worker = self.random.choice(self.workers)
        self.random.choice([self._leave, self._kill, self._pause])(worker)

    def _leave(self, worker: SimShareWorker) -> None:
        worker.leave()
        self._drop(worker)

    def _kill(self, worker: SimShareWorker) -> None:
        worker.stop()
        worker.kill()
        self._drop(worker)

    def _drop(self, worker: SimShareWorker) -> None:
        self.workers.remove(worker)
        self.hosts.remove(worker.host.name)

    def _pause(self, worker: SimShareWorker) -> None:
        """Mostly shorter than its locks, sometimes well beyond."""
        worker.runtime.actor.pause()
        self.cluster.loop.call_in(2.5 * self.options.lock_s * self.random.random() ** 2, worker.runtime.actor.resume)

    # The end

    def calm(self) -> None:
        """From now on no worker comes, goes or hangs, and each accepts what it is given."""
        self.is_calm = True
        for worker in self.workers:
            worker.is_calm = True
            worker.runtime.actor.resume()
        if not self.workers:
            self.add()

    def unsettled(self) -> str:
        """Return what is still missing, in words; empty when every task is done."""
        return self.truth.undone(self.options.name)

    def finish(self) -> None:
        for worker in self.workers:
            worker.stop()

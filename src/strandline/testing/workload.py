"""Idempotent producers and consumers on a broker, recorded as a history that ends with a full read.

with Workload(log.bootstrap, partitions, seed=seed) as workload:
    workload.recorder.wait_acknowledged(1000, timeout_s=30)
    log.kill()
    log.restart()
assert check(workload.history()).ok
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from strandline.ids import TopicPartition
from strandline.testing.client_threads import ConsumerThread, ProducerThread, Settings
from strandline.testing.final_read import read_to_the_end
from strandline.testing.history import Op
from strandline.testing.recorder import Recorder


class Workload:
    """The clients of one run. Leaving the block stops them; `history` then reads everything and returns the record."""

    def __init__(
        self,
        bootstrap: str,
        partitions: Sequence[TopicPartition],
        *,
        seed: int,
        producers: int = 2,
        consumers: int = 2,
        value_bytes: int = 100,
        burst: int = 20,
        pause_s: float = 0.01,
        producer_settings: Settings | None = None,
    ) -> None:
        self.recorder = Recorder()
        self.bootstrap = bootstrap
        self.partitions = tuple(partitions)
        randomness = random.Random(seed)
        self.producers = [
            ProducerThread(
                self.recorder,
                bootstrap,
                # Each producer begins with another partition, so that batches of both meet in every partition.
                self.partitions[index % len(self.partitions) :] + self.partitions[: index % len(self.partitions)],
                value_bytes=value_bytes,
                burst=burst,
                pause_s=pause_s,
                settings=producer_settings,
            )
            for index in range(producers)
        ]
        # The first consumer only follows; the others also go back to read again what they have seen.
        self.consumers = [
            ConsumerThread(
                self.recorder,
                bootstrap,
                self.partitions,
                rewinds=random.Random(randomness.random()) if index else None,
            )
            for index in range(consumers)
        ]

    def __enter__(self) -> Self:
        for client in (*self.consumers, *self.producers):
            client.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for producer in self.producers:
            if error is not None:
                # The run has failed, and its broker may be gone for good: nothing is worth waiting for.
                producer.flush_timeout_s = 0.0
        for client in (*self.producers, *self.consumers):
            client.stopping.set()
        with contextlib.ExitStack() as stack:
            for client in (*self.consumers, *self.producers):
                stack.callback(client.stop)

    @property
    def fatal_errors(self) -> list[str]:
        """Producers that librdkafka gave up; a correct broker leaves this empty."""
        return [f"process {p.process}: {p.fatal_error.str()}" for p in self.producers if p.fatal_error is not None]

    def history(self, *, timeout_s: float = 60.0) -> list[Op]:
        """Read every partition from the start, as the last part of the history, and return the whole."""
        read_to_the_end(self.recorder, self.bootstrap, self.partitions, timeout_s=timeout_s)
        return self.recorder.ops()

"""The driver of a sink in the simulation: batch after batch, each written by several producers and committed as one.

As Spark's: the number of the next batch stands in a checkpoint, which is written after the commit was answered. Tasks
fail and are done again, copies of them go on beside them, and a batch that is not committed is run again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from tests.simulator.clients.client import METADATA_AGE_S, History, SimClient
from tests.simulator.clients.processor import RECORDS_PER_LANE_MAX, ProcessorManners
from tests.simulator.clients.sink_batch import SimBatch
from tests.simulator.clients.sink_task import BatchCommitter, SinkProducer
from tests.simulator.clients.transaction import Lane, SimTransaction
from tests.simulator.clients.transactional import NEW
from tests.simulator.truth.transaction_truth import TransactionTruth, note_of
from tests.simulator.world.network import SimNetwork
from tests.simulator.world.runtime import SimHost

from strandline.codec.messages.commit_batch_request import CommitBatchRequest, SinkTransaction
from strandline.codec.messages.commit_batch_response import CommitBatchResponse
from strandline.errors import ErrorCode
from strandline.ids import TopicPartition, sink_key

TAKES_OVER_SHARE: Final = 0.5
"""Of the producers that are not free, how many begin again with the same transactional id."""
CHECKPOINT_S: Final = 0.5
"""Between the answer and the checkpoint, at the most: a driver that dies then runs the batch again."""


@dataclass(slots=True)
class SinkLife:
    """What outlives drivers."""

    sink_id: str
    checkpoint: int = 0
    """The batch that a new driver begins with."""
    ids: int = 0
    batches: list[SimBatch] = field(default_factory=list)


class SimDriver(SimClient):
    def __init__(
        self,
        network: SimNetwork,
        host: SimHost,
        history: History,
        bootstrap: Sequence[tuple[str, int]],
        life: SinkLife,
        outputs: Sequence[TopicPartition],
        truth: TransactionTruth,
        manners: ProcessorManners,
        *,
        first_batch_id: int,
        tasks_max: int,
    ) -> None:
        super().__init__(network, host, history, bootstrap, sorted({each.topic for each in outputs}))
        self.life = life
        self.outputs = list(outputs)
        self.truth = truth
        self.manners = manners
        self.tasks_max = tasks_max
        self.is_calm = False
        self.committed = 0
        self.on_over: Callable[[SimDriver], object] = lambda driver: None
        self._next_batch_id = first_batch_id
        self._pool: list[SinkProducer] = []
        self._committer = BatchCommitter(
            self,
            sink_key(life.sink_id),
            truth,
            process=history.new_process(),
            speaks=NEW,
            late_share=manners.late_share,
        )
        self._process = history.new_process()
        self._values = 0
        self.runtime.call_soon(self.refresh)
        self.runtime.call_later(METADATA_AGE_S, self._refresh_by_time)
        self._later()

    def _refresh_by_time(self) -> None:
        if not self.is_stopped:
            self.runtime.call_later(METADATA_AGE_S, self._refresh_by_time)
            self.refresh()

    def _later(self) -> None:
        self.runtime.call_later(self.manners.pause_s * (0.5 + self.random.random()), self._run_batch)

    # A batch

    def _run_batch(self) -> None:
        if self.is_stopped:
            return
        process = self.history.new_process()
        batch = SimBatch(process, self.life.sink_id, self._next_batch_id, self.history.now_ns())
        self.life.batches.append(batch)
        tasks = self.random.randint(1, self.tasks_max)
        members: list[SinkTransaction] = []
        for _ in range(tasks):
            self._run_task(batch, tasks, members)
        if not self.is_calm and self.random.random() < self.manners.abort_share:
            self._run_copy(batch)

    def _run_task(self, batch: SimBatch, tasks: int, members: list[SinkTransaction]) -> None:
        def on_written(transaction: SimTransaction) -> None:
            if not producer_of[0].has_written:
                self._pool.remove(producer_of[0])
                batch.void.append(transaction)
                self._run_task(batch, tasks, members)
                return
            producer_of[0].is_listed = True
            batch.listed.append(transaction)
            members.append(producer_of[0].identity)
            if len(members) == tasks:
                self._commit_later(batch, members)

        producer_of: list[SinkProducer] = []

        def on_free(producer: SinkProducer) -> None:
            producer_of.append(producer)
            self._write(producer, batch, on_written)

        self._take(batch, on_free)

    def _run_copy(self, batch: SimBatch) -> None:
        """Run a second attempt that is neither waited for nor listed."""
        self._take(batch, lambda producer: self._write(producer, batch, batch.void.append))

    def _write(self, producer: SinkProducer, batch: SimBatch, then: Callable[[SimTransaction], object]) -> None:
        producer.batch, producer.is_listed = batch, False
        producer.run(SimTransaction(batch.process, None, {}, self._lanes()), then)

    def _lanes(self) -> dict[TopicPartition, Lane]:
        lanes = {}
        for partition in self.random.sample(self.outputs, self.random.randint(1, len(self.outputs))):
            count = self.random.randint(1, RECORDS_PER_LANE_MAX)
            lanes[partition] = Lane([f"{self._process}:{each}" for each in range(self._values, self._values + count)])
            self._values += count
        return lanes

    # The pool

    def _take(self, batch: SimBatch, then: Callable[[SinkProducer], object]) -> None:
        """A producer that is free, as it hears from the coordinator; or a new one."""
        for producer in self._pool:
            if not producer.is_busy and producer.batch is not batch:
                producer.close(partial(self._on_closed, producer, batch, then))
                return
        self.life.ids += 1
        producer = SinkProducer(
            self,
            f"{sink_key(self.life.sink_id)}{self.life.ids}",
            self.truth,
            process=self.history.new_process(),
            speaks=self.random.choice(self.manners.speaks),
            timeout_s=self.manners.timeout_s,
            late_share=self.manners.late_share,
        )
        producer.batch = batch
        self._pool.append(producer)
        then(producer)

    def _on_closed(
        self, producer: SinkProducer, batch: SimBatch, then: Callable[[SinkProducer], object], is_free: bool
    ) -> None:
        if is_free:
            then(producer)
        elif self.random.random() < TAKES_OVER_SHARE:
            producer.begin_anew()
            then(producer)
        else:
            self._pool.remove(producer)
            self._take(batch, then)

    # The end of a batch

    def _commit_later(self, batch: SimBatch, members: list[SinkTransaction]) -> None:
        hangs = not self.is_calm and self.random.random() < self.manners.hang_share
        delay_s = self.manners.timeout_s * (0.5 + self.random.random()) if hangs else 0.0
        request = CommitBatchRequest(
            sink_id=self.life.sink_id, batch_id=batch.batch_id, transactions=members, note=note_of(batch.batch_id)
        )
        self.runtime.call_later(delay_s, self._commit, batch, request)

    def _commit(self, batch: SimBatch, request: CommitBatchRequest) -> None:
        if not self.is_stopped:
            self._committer.commit(batch, request, self._on_committed)

    def _on_committed(self, answer: CommitBatchResponse) -> None:
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.NONE:
            self.committed += not answer.already_committed
            self.runtime.call_later(CHECKPOINT_S * self.random.random() ** 2, self._write_checkpoint)
        elif code is ErrorCode.PRODUCER_FENCED:
            # Another driver is further: the next driver begins from the checkpoint.
            self.on_over(self)
        elif code is ErrorCode.INVALID_TXN_STATE:
            self._later()
        else:
            self.history.surprises.append(f"CommitBatch: {code.name}, {answer.error_message}")

    def _write_checkpoint(self) -> None:
        if not self.is_stopped:
            self._next_batch_id += 1
            self.life.checkpoint = max(self.life.checkpoint, self._next_batch_id)
            self._later()

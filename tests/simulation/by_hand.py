"""A transactional producer that does one thing at a time, as a story says, each on a connection of its own.

So a request that comes late, on another connection, is one that is asked later. What it writes is part of the history.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.hostile.batches import produce
from tests.simulation.stage import Play
from tests.simulator.clients.transaction import Lane, SimTransaction
from tests.simulator.clients.transactional import COME_AGAIN, NEW, OLD, WRITE_AGAIN
from tests.simulator.world.cluster import SimNode

from strandline.codec.columns import Record, encode_batch
from strandline.codec.message import Message
from strandline.codec.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from strandline.codec.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse
from strandline.codec.messages.end_txn_request import EndTxnRequest
from strandline.codec.messages.end_txn_response import EndTxnResponse
from strandline.codec.messages.find_coordinator_request import FindCoordinatorRequest
from strandline.codec.messages.find_coordinator_response import FindCoordinatorResponse
from strandline.codec.messages.init_producer_id_request import InitProducerIdRequest
from strandline.codec.messages.init_producer_id_response import InitProducerIdResponse
from strandline.codec.messages.produce_request import ProduceRequest
from strandline.codec.messages.produce_response import ProduceResponse
from strandline.errors import ErrorCode
from strandline.ids import TopicPartition
from strandline.testing.history import Op

STATE = "__transaction_state"
TIMEOUT_S = 8.0
TRY_AGAIN = (*COME_AGAIN, *WRITE_AGAIN)


class ByHand:
    def __init__(
        self, play: Play, transactional_id: str = "payments", *, speaks: int = NEW, timeout_s: float = TIMEOUT_S
    ) -> None:
        self.play = play
        self.transactional_id = transactional_id
        self.speaks = speaks
        self.timeout_s = timeout_s
        self.process = play.run.history.new_process()
        self.producer_id = self.epoch = -1
        self.sequences: dict[str, int] = {}
        self.transactions: list[SimTransaction] = []
        self.is_open = False
        self._values = 0
        play.run.transactors.append(self)  # type: ignore[arg-type]  # Judged as all who write transactions are.
        stabilities = play.run.invariants.stabilities
        stabilities.timeout_s = max(stabilities.timeout_s, timeout_s)

    # What the end of a run asks of all who write transactions

    hosts: Sequence[str] = ()

    def calm(self) -> None:
        """Nothing happens by itself here."""

    def unsettled(self) -> str:
        return ""

    def finish(self) -> None:
        """Nothing is to be stopped."""

    def ops(self) -> list[Op]:
        return [each.op(self.play.run.history.now_ns()) for each in self.transactions]

    # The story's words

    def coordinator(self) -> SimNode:
        return self.play.leader(STATE)

    def begin(self, *, names_itself: bool = False) -> ErrorCode:
        """Send InitProducerId; with `names_itself` as a producer that goes on (KIP-360)."""
        find = FindCoordinatorRequest(coordinator_keys=[self.transactional_id], key_type=1)
        self.patiently(
            lambda: self.play.cluster.up()[0],
            find,
            4,
            FindCoordinatorResponse,
            lambda answer: answer.coordinators[0].error_code,
        )
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=int(self.timeout_s * 1000),
            producer_id=self.producer_id if names_itself else -1,
            producer_epoch=self.epoch if names_itself else -1,
        )
        answer = self.patiently(self.coordinator, request, 5 if self.speaks == NEW else 4, InitProducerIdResponse)
        if answer.error_code == ErrorCode.NONE:
            self.play.run.transaction_truth.on_given(
                self.process, self.transactional_id, answer.producer_id, answer.producer_epoch
            )
            self._go_on(answer.producer_id, answer.producer_epoch)
        return ErrorCode(answer.error_code)

    def _go_on(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.producer_id, self.epoch = producer_id, epoch
            self.sequences.clear()

    @property
    def transaction(self) -> SimTransaction:
        """The present one."""
        if not self.is_open:
            self.is_open = True
            begun = SimTransaction(self.process, None, {}, {}, begun_ns=self.play.run.history.now_ns())
            self.transactions.append(begun)
        return self.transactions[-1]

    def add(self, *topics: str) -> ErrorCode:
        """AddPartitionsToTxn of the old protocol."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=each, partitions=[0]) for each in topics],
        )

        def code_of(answer: AddPartitionsToTxnResponse) -> int:
            return answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code

        return ErrorCode(code_of(self.patiently(self.coordinator, request, 3, AddPartitionsToTxnResponse, code_of)))

    def batch(self, topic: str, count: int = 1) -> ProduceRequest:
        """The next batch for a topic, as part of the present transaction; sent or not."""
        values = [f"{self.process}:{each}" for each in range(self._values, self._values + count)]
        self._values += count
        lane = self.transaction.lanes.setdefault(TopicPartition(topic, 0), Lane([]))
        lane.values += values
        sequence = self.sequences.get(topic, 0)
        self.sequences[topic] = (sequence + count) & 0x7FFFFFFF
        runtime = self.play.cluster.up()[0].runtime
        assert runtime is not None
        encoded = encode_batch(
            [Record(timestamp_ms=runtime.now_ms(), value=value.encode()) for value in values],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        return produce(topic, encoded, transactional_id=self.transactional_id, timeout_ms=3_000)

    def write(self, topic: str, count: int = 1) -> int:
        """A batch, until it is taken; its offset."""
        if self.speaks == OLD:
            assert self.add(topic) is ErrorCode.NONE
        answer = self.send(topic, self.batch(topic, count))
        assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code).name
        offset: int = answer.base_offset
        return offset

    def send(self, topic: str, request: ProduceRequest) -> Any:
        """Send a batch, perhaps for the second time; what the leader says of it."""

        def told(answer: ProduceResponse) -> Any:
            return answer.responses[0].partition_responses[0]

        version = 12 if self.speaks == NEW else 11
        leader = lambda: self.play.leader(topic)  # noqa: E731  # The leader at the time of each request.
        return told(self.patiently(leader, request, version, ProduceResponse, lambda answer: told(answer).error_code))

    def end_request(self, *, commits: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commits,
        )

    def end(self, *, commits: bool) -> ErrorCode:
        """EndTxn of the present transaction."""
        history, transaction = self.play.run.history, self.transaction
        if commits and transaction.asked_ns is None:
            transaction.asked_ns = history.now_ns()
        code, answer = self.send_end(self.end_request(commits=commits))
        if code is ErrorCode.NONE:
            self.play.run.transaction_truth.on_ended(
                self.transactional_id, self.producer_id, self.epoch, is_commit=commits
            )
            if self.speaks == NEW:
                self._go_on(answer.producer_id, answer.producer_epoch)
        transaction.end("ok" if commits and code is ErrorCode.NONE else "fail", history.now_ns(), code.name)
        self.is_open = False
        return code

    def send_end(self, request: EndTxnRequest) -> tuple[ErrorCode, EndTxnResponse]:
        answer = self.patiently(self.coordinator, request, 5 if self.speaks == NEW else 4, EndTxnResponse)
        return ErrorCode(answer.error_code), answer

    def leave_open(self) -> None:
        """Leave the present transaction open; the next write begins another."""
        self.is_open = False

    def patiently(
        self,
        target: Callable[[], SimNode],
        request: Message,
        version: int,
        answer_class: type[Message],
        code_of: Callable[[Any], int] = lambda answer: answer.error_code,
    ) -> Any:
        """The first answer that is not to come again."""
        code: str = ""
        for _ in range(200):
            answer = self.play.ask(target(), request, version, answer_class)
            if answer is not None and code_of(answer) not in TRY_AGAIN:
                return answer
            code = "no answer" if answer is None else ErrorCode(code_of(answer)).name
            self.play.rest(0.1)
        raise AssertionError(f"{type(request).__name__} is put off for ever: {code}")

    def is_stable(self) -> bool:
        """Whether readers of committed records may read all that there is."""
        for topic in self.play.run.options.outputs:
            node = self.play.leader(topic.name).node
            partition = None if node is None else node.partition(topic.name, 0)
            if partition is None or partition.last_stable_offset != partition.log.log_end_offset:
                return False
        return True

    def wait_stable(self, within_s: float = 20.0) -> None:
        self.play.until(self.is_stable, "readers of committed records are at the end", within_s)

"""A transactional producer in the simulation, part of a client: one transaction after the other, until it is fenced.

It speaks one of two protocols. The old one (version 1) adds partitions before it writes, and has one epoch for many
transactions; nothing in it tells what is late from what belongs to the next transaction. So, as Kafka's client does
after an error (KIP-360), it has its epoch raised whenever it does not know what became of something. The new one
(version 2, KIP-890) leaves adding to the brokers and has an epoch for each transaction. There, old requests are sent
once more on another connection, long after they were answered: nothing may come of them.

What it does is written as scripts: generators that yield what is to be waited for, a number of seconds or questions.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tests.simulator.clients.client import BACKOFF_S, REQUEST_TIMEOUT_S, SimClient
from tests.simulator.clients.member import ELSEWHERE
from tests.simulator.clients.producer import BROKER_TIMEOUT_MS, PRODUCE_TIMEOUT_S, WRITTEN, plain_record
from tests.simulator.clients.transaction import Lane, SimTransaction
from tests.simulator.world.wire import OnAnswer

from strandline.codec.columns import Record, encode_batch
from strandline.codec.message import Message
from strandline.codec.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from strandline.codec.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse
from strandline.codec.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from strandline.codec.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse
from strandline.codec.messages.end_txn_request import EndTxnRequest
from strandline.codec.messages.end_txn_response import EndTxnResponse
from strandline.codec.messages.find_coordinator_request import FindCoordinatorRequest
from strandline.codec.messages.find_coordinator_response import FindCoordinatorResponse
from strandline.codec.messages.init_producer_id_request import InitProducerIdRequest
from strandline.codec.messages.init_producer_id_response import InitProducerIdResponse
from strandline.codec.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from strandline.codec.messages.produce_response import ProduceResponse
from strandline.codec.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from strandline.codec.messages.txn_offset_commit_response import TxnOffsetCommitResponse
from strandline.errors import ErrorCode
from strandline.ids import TopicPartition

if TYPE_CHECKING:
    from tests.simulator.truth.transaction_truth import TransactionTruth

OLD: Final = 1
NEW: Final = 2
TRANSACTION: Final = 1
"""The type of coordinator that is looked for."""
LATE_S: Final = 8.0

FENCED: Final = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
COME_AGAIN: Final = (*ELSEWHERE, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.REQUEST_TIMED_OUT)
"""What a coordinator says to a request that is to be sent again."""
WRITE_AGAIN: Final = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)

Question = Callable[[OnAnswer], object]
"""Sends a request, and calls back with the answer, or with None if there is none."""
Script = Generator[float | Sequence[Question], Any, Any]


class SimTransactional:
    def __init__(
        self,
        client: SimClient,
        transactional_id: str,
        truth: TransactionTruth,
        *,
        process: int,
        speaks: int = NEW,
        timeout_s: float = 10.0,
        patience_s: float = 8.0,
        late_share: float = 0.0,
    ) -> None:
        self.client = client
        self.transactional_id = transactional_id
        self.truth = truth
        self.process = process
        self.speaks = speaks
        self.timeout_s = timeout_s
        self.patience_s = patience_s
        """After how long it gives a transaction up that cannot be written."""
        self.late_share = late_share
        self.record_of: Callable[[str, int], Record] = plain_record
        self.producer_id = self.epoch = -1
        self.sequences: dict[TopicPartition, int] = {}
        self.is_fenced = False
        self.is_busy = False
        self.on_refused: Callable[[int, SimTransaction], object] = lambda code, transaction: None
        """Called with the reason why a group did not take the positions of a transaction."""
        self.on_positions: Callable[[SimTransaction], object] = lambda transaction: None
        """Called when it has taken them."""
        self.group_coordinator: Callable[[], int | None] = lambda: None
        """Who coordinates the group, if that is known."""
        self.forget_group_coordinator: Callable[[], object] = lambda: None
        self._must_begin_anew = True
        self._coordinator: int | None = None
        self._is_unsure = False
        """Whether something of the present transaction was not answered, and may be carried out late."""
        self._sent: list[tuple[int, Message, int, type[Message]]] = []
        """Requests of the present transaction: broker, request, version, class of the answer."""

    def run(self, transaction: SimTransaction, then: Callable[[SimTransaction], object]) -> None:
        """Carry a transaction out; `then` is called when it is over, or when the producer is fenced."""
        assert not self.is_busy
        self.is_busy = True
        self._go_on(self._transact(transaction, then), None)

    def _go_on(self, script: Script, value: Any) -> None:
        if self.client.is_stopped:
            return
        try:
            wanted = script.send(value)
        except StopIteration:
            return
        if isinstance(wanted, float):
            self.client.runtime.call_later(wanted, self._go_on, script, None)
            return
        answers: dict[int, Any] = {}

        def on_answer(number: int, answer: Any) -> None:
            answers[number] = answer
            if len(answers) == len(wanted):
                # In a turn of its own: what fails here must not fail in the middle of the connection's work.
                told = [answers[each] for each in range(len(wanted))]
                self.client.runtime.call_soon(self._go_on, script, told)

        for number, question in enumerate(wanted):
            question(partial(on_answer, number))

    def _rest(self) -> float:
        return BACKOFF_S * (0.5 + self.client.random.random())

    # A transaction from its beginning to its end

    def _transact(self, transaction: SimTransaction, then: Callable[[SimTransaction], object]) -> Script:
        history = self.client.history
        self._is_unsure = False
        if self._must_begin_anew:
            yield from self._initialise()
        if not self.is_fenced:
            transaction.begun_ns = history.now_ns()
            is_written = yield from self._write(transaction)
            if transaction.hangs_s:
                yield transaction.hangs_s
            yield from self._end(transaction, commits=bool(is_written) and transaction.commits)
            if self.speaks == OLD and self._is_unsure:
                self._must_begin_anew = True
            self._maybe_send_late()
        if transaction.outcome is None:
            transaction.end("fail", history.now_ns(), "fenced")
        self.is_busy = False
        then(transaction)

    def _initialise(self) -> Script:
        """Take the transactional id, which fences its owner. A former owner names its producer id (KIP-360)."""
        while True:
            request = InitProducerIdRequest(
                transactional_id=self.transactional_id,
                transaction_timeout_ms=int(self.timeout_s * 1000),
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
            )
            answer = yield from self._ask_coordinator(request, 5 if self.speaks == NEW else 4, InitProducerIdResponse)
            if answer.error_code == ErrorCode.NONE:
                self.truth.on_given(self.process, self.transactional_id, answer.producer_id, answer.producer_epoch)
                self._adopt(answer.producer_id, answer.producer_epoch)
                self._must_begin_anew = False
                return
            if answer.error_code in (*FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING):
                self.is_fenced = True
                return
            yield self._rest()

    def _adopt(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.producer_id, self.epoch = producer_id, epoch
            self.sequences.clear()

    # Writing

    def _write(self, transaction: SimTransaction) -> Script:
        """Whether all of it is written, positions included."""
        expires = self.client.runtime.monotonic() + self.patience_s
        if self.speaks == OLD:
            is_added = yield from self._add_partitions(list(transaction.lanes))
            if not is_added:
                return False
        steps = [self._produce, self._commit_positions]
        if self.client.random.random() < 0.3:
            steps.reverse()
        for step in steps:
            is_done = yield from step(transaction, expires)
            if not is_done:
                self._is_unsure = True
                return False
        return True

    def _add_partitions(self, partitions: list[TopicPartition]) -> Script:
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for name, index in partitions:
            topics.setdefault(name, AddPartitionsToTxnTopic(name=name)).partitions.append(index)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=list(topics.values()),
        )

        def code_of(answer: AddPartitionsToTxnResponse) -> int:
            codes = [each for topic in answer.results_by_topic_v3_and_below for each in topic.results_by_partition]
            return next((each.partition_error_code for each in codes if each.partition_error_code), 0)

        answer = yield from self._ask_coordinator(request, 3, AddPartitionsToTxnResponse, code_of)
        return self._is_well(code_of(answer))

    def _is_well(self, code: int) -> bool:
        if code in FENCED:
            # The request that ends it gets a definite answer.
            self._must_begin_anew = True
        return code == ErrorCode.NONE

    def _produce(self, transaction: SimTransaction, expires: float) -> Script:
        client = self.client
        for partition, lane in transaction.lanes.items():
            lane.sequence = self.sequences.get(partition, 0)
            self.sequences[partition] = lane.sequence + len(lane.values)
            lane.encoded = self._encode(lane)
        while client.runtime.monotonic() < expires:
            due = [each for each, lane in transaction.lanes.items() if not lane.is_written]
            if not due:
                return True
            asked: list[TopicPartition] = []
            questions: list[Question] = []
            for partition in due:
                question = self._question(partition, transaction.lanes[partition])
                if question is not None:
                    asked.append(partition)
                    questions.append(question)
            if not questions:
                client.refresh_later()
                yield self._rest()
                continue
            answers = yield questions
            is_all = len(asked) == len(due)
            for partition, answer in zip(asked, answers, strict=True):
                code = None if answer is None else answer.responses[0].partition_responses[0].error_code
                if code in WRITTEN:
                    lane = transaction.lanes[partition]
                    lane.is_written = True
                    if code == ErrorCode.NONE:
                        lane.base_offset = answer.responses[0].partition_responses[0].base_offset
                    continue
                is_all = False
                self._is_unsure = True
                if code is not None and code not in WRITE_AGAIN:
                    transaction.error = ErrorCode(code).name
                    return False
            if not is_all:
                client.refresh()
                yield self._rest()
        return False

    def _encode(self, lane: Lane) -> bytes:
        now_ms = self.client.runtime.now_ms()
        return encode_batch(
            [self.record_of(value, now_ms) for value in lane.values],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=lane.sequence,
            transactional=True,
        )

    def _question(self, partition: TopicPartition, lane: Lane) -> Question | None:
        known = self.client.leader_of(partition)
        if known is None:
            return None
        version = 11 if self.speaks == OLD else 12 + partition.partition % 2
        topic = TopicProduceData(
            name="" if version >= 13 else partition.topic,
            partition_data=[PartitionProduceData(partition.partition, lane.encoded)],
        )
        if version >= 13:
            topic.topic_id = known.topic_id
        request = ProduceRequest(
            transactional_id=self.transactional_id, acks=-1, timeout_ms=BROKER_TIMEOUT_MS, topic_data=[topic]
        )
        return self._to(known.leader, "produce", request, version, ProduceResponse, timeout_s=PRODUCE_TIMEOUT_S)

    def _commit_positions(self, transaction: SimTransaction, expires: float) -> Script:
        """Commit the group's positions, as part of the transaction."""
        membership = transaction.membership
        if membership is None:
            return True
        if self.speaks == OLD:
            added = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                group_id=membership.group,
            )
            answer = yield from self._ask_coordinator(added, 3, AddOffsetsToTxnResponse)
            if not self._is_well(answer.error_code):
                return False
        topics: dict[str, TxnOffsetCommitRequestTopic] = {}
        for (name, index), (_, end) in transaction.consumed.items():
            at = TxnOffsetCommitRequestPartition(
                partition_index=index, committed_offset=end, committed_metadata=membership.tag
            )
            topics.setdefault(name, TxnOffsetCommitRequestTopic(name=name)).partitions.append(at)
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=membership.group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            generation_id=membership.generation,
            member_id=membership.member_id,
            group_instance_id=membership.instance_id,
            topics=list(topics.values()),
        )
        version = 4 if self.speaks == OLD else 5
        while self.client.runtime.monotonic() < expires:
            broker = self.group_coordinator()
            question = (
                None if broker is None else self._to(broker, "positions", request, version, TxnOffsetCommitResponse)
            )
            if question is None:
                yield self._rest()
                continue
            (answer,) = yield [question]
            code = None if answer is None else answer.topics[0].partitions[0].error_code
            if code == ErrorCode.NONE:
                self.on_positions(transaction)
                return True
            self._is_unsure = True
            if code is not None and code not in COME_AGAIN and code not in WRITE_AGAIN:
                transaction.error = ErrorCode(code).name
                self.on_refused(code, transaction)
                return False
            self.forget_group_coordinator()
            yield self._rest()
        return False

    # Ending

    def _end(self, transaction: SimTransaction, *, commits: bool) -> Script:
        history, epoch, producer_id = self.client.history, self.epoch, self.producer_id
        request = EndTxnRequest(
            transactional_id=self.transactional_id, producer_id=producer_id, producer_epoch=epoch, committed=commits
        )
        if commits:
            transaction.asked_ns = history.now_ns()
        was_unsure, self._is_unsure = self._is_unsure, False
        answer = yield from self._ask_coordinator(request, 5 if self.speaks == NEW else 4, EndTxnResponse)
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.NONE:
            self.truth.on_ended(self.transactional_id, producer_id, epoch, is_commit=commits)
            if self.speaks == NEW:
                self.truth.on_given(self.process, self.transactional_id, answer.producer_id, answer.producer_epoch)
                self._adopt(answer.producer_id, answer.producer_epoch)
            transaction.end("ok" if commits else "fail", history.now_ns(), transaction.error)
        else:
            # An earlier request without an answer may have been carried out.
            transaction.end("info" if commits and self._is_unsure else "fail", history.now_ns(), code.name)
            self._must_begin_anew = True
            self.is_fenced = code in FENCED
        self._is_unsure |= was_unsure

    def _maybe_send_late(self) -> None:
        """Send something of the transaction that is over once more, as a network that kept it for long would."""
        sent, self._sent = self._sent, []
        if self.speaks == NEW and sent and self.client.random.random() < self.late_share:
            delay_s = LATE_S * self.client.random.random() ** 2
            self.client.runtime.call_later(delay_s, self._send_late, self.client.random.choice(sent))

    def _send_late(self, sent: tuple[int, Message, int, type[Message]]) -> None:
        broker, request, version, answer_class = sent
        wire = None if self.client.is_stopped else self.client.wire(broker, "late")
        if wire is not None:
            wire.ask(request, version, answer_class, lambda _: None, timeout_s=REQUEST_TIMEOUT_S)

    # Asking

    def _ask_coordinator(
        self,
        request: Message,
        version: int,
        answer_class: type[Message],
        code_of: Callable[[Any], int] = lambda answer: answer.error_code,
    ) -> Script:
        """Return the answer, however long it takes; the present coordinator is looked up."""
        while True:
            if self._coordinator is None:
                yield from self._find_coordinator()
            assert self._coordinator is not None
            question = self._to(self._coordinator, "transactions", request, version, answer_class)
            if question is None:
                self._coordinator = None
                yield self._rest()
                continue
            (answer,) = yield [question]
            code = None if answer is None else code_of(answer)
            if code is not None and code not in COME_AGAIN:
                return answer
            if code != ErrorCode.CONCURRENT_TRANSACTIONS:
                self._is_unsure = True
            if code is None or code in ELSEWHERE:
                self._coordinator = None
            yield self._rest()

    def _find_coordinator(self) -> Script:
        client = self.client
        request = FindCoordinatorRequest(coordinator_keys=[self.transactional_id], key_type=TRANSACTION)
        while True:
            (answer,) = yield [lambda told: client.ask_any(request, 4, FindCoordinatorResponse, told)]
            found = None if answer is None else answer.coordinators[0]
            if found is not None and not found.error_code:
                self._coordinator = found.node_id
                client.brokers[found.node_id] = (found.host, found.port)
                return
            yield self._rest()

    def _to(
        self,
        broker: int,
        purpose: str,
        request: Message,
        version: int,
        answer_class: type[Message],
        *,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> Question | None:
        wire = self.client.wire(broker, purpose)
        if wire is None:
            return None
        if not isinstance(request, InitProducerIdRequest):
            self._sent.append((broker, request, version, answer_class))
        return lambda told: wire.ask(request, version, answer_class, told, timeout_s=timeout_s)

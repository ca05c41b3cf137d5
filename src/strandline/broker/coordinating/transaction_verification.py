"""Asks the coordinator of a transaction whether a partition is part of it, before anything is written there (KIP-890).

A Produce or TxnOffsetCommit of a transaction that the coordinator knows nothing of would leave records behind that
no producer ever ends. `verify` asks; with `adds` the partition becomes part of the transaction by asking.

A coordinator that was replaced and has not heard of it is not asked, if a marker of its successor shows that.

Coordinated here, the shard is asked directly. Else the broker that coordinates is, with AddPartitionsToTxn, about all
that came in one turn of the loop; a transactional id stands in a request once, as in Kafka. A coordinator may let a
question wait until the transaction before has ended, and a connection answers in order: so there are a few of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from strandline.broker.coordinating.coordinator_runtime import FindPartition
from strandline.broker.environment import Environment
from strandline.broker.network.channel import Channel
from strandline.codec.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from strandline.codec.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse
from strandline.coordinators.groups.pending_request import PendingRequest
from strandline.coordinators.transactions.events import AddPartitions
from strandline.errors import ErrorCode, named
from strandline.ids import TopicPartition
from strandline.quorum.controller.topic_names import TRANSACTION_STATE
from strandline.quorum.image.cluster_image import PartitionImage

if TYPE_CHECKING:
    from strandline.handlers.support.services import TransactionCoordinator

Place = tuple[str, int]
"""Topic and partition."""
OnVerified = Callable[[dict[Place, ErrorCode]], object]
"""Called with an error code for each place that was asked about, NONE where it may be written to."""

VERSION: Final = 5
TIMEOUT_S: Final = 5.0
TRANSACTIONS_PER_REQUEST_MAX: Final = 500
CONNECTIONS_MAX: Final = 4
"""Requests to one coordinator that may be under way, each on a connection of its own."""
WAITING_MAX: Final = 10_000
"""Questions to one coordinator that may wait to be sent; one more is told to come again."""


class TransactionVerification:
    def __init__(self, environment: Environment, partition: FindPartition, coordinator: TransactionCoordinator) -> None:
        self._environment = environment
        self._partition = partition
        self._here = coordinator
        self._coordinators: dict[int, _Coordinator] = {}

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        places: Sequence[Place],
        *,
        adds: bool,
        then: OnVerified,
    ) -> None:
        """Ask the coordinator, wherever it is, whether these partitions are in the producer's open transaction.

        With `adds` they are added if they are not: for clients of transactions v2 (Produce 12+, TxnOffsetCommit 5+).
        `then` is called exactly once, perhaps before this returns. Codes are the ones that producers understand:
        INVALID_PRODUCER_EPOCH for a fenced one, TRANSACTION_ABORTABLE for a partition that is not in the transaction
        (the handler of an old version answers INVALID_TXN_STATE), INVALID_PRODUCER_ID_MAPPING, INVALID_TXN_STATE; and
        COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT_TRANSACTIONS and
        NETWORK_EXCEPTION where trying again may help.
        """
        partitions = tuple(TopicPartition(*place) for place in places)
        question = _Question(transactional_id, producer_id, producer_epoch, partitions, adds, then)
        coordinator_partition = self._coordinator_partition(transactional_id)
        leader = -1 if coordinator_partition is None else coordinator_partition.leader
        if coordinator_partition is None or leader < 0:
            question.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif self._has_newer_marker(question, coordinator_partition.leader_epoch):
            question.refuse(ErrorCode.NOT_COORDINATOR)
        elif leader == self._environment.node_id:
            self._ask_here(question)
        else:
            coordinator = self._coordinators.get(leader)
            if coordinator is None:
                coordinator = self._coordinators[leader] = _Coordinator(self._environment, leader)
            coordinator.put(question)

    def close(self) -> None:
        for coordinator in self._coordinators.values():
            coordinator.close()

    def _coordinator_partition(self, transactional_id: str) -> PartitionImage | None:
        """Return the partition of `__transaction_state` whose leader coordinates the id, as this broker knows it."""
        topic = self._environment.image().topic_by_name(TRANSACTION_STATE)
        return None if topic is None else topic.partitions[self._here.partition_index(transactional_id)]

    def _has_newer_marker(self, question: _Question, coordinator_epoch: int) -> bool:
        """Return whether a partition has a marker of a later coordinator than the one that would be asked.

        That one was replaced, and may not know it. It would call a transaction open that its successor has ended, and
        a late batch would begin one that no coordinator ends. A marker that comes after this voids the guard.
        """
        for place in question.partitions:
            partition = self._partition(*place)
            entry = None if partition is None else partition.producers.entries.get(question.producer_id)
            if entry is not None and entry.coordinator_epoch > coordinator_epoch:
                return True
        return False

    def _ask_here(self, question: _Question) -> None:
        def answered(codes: Any) -> None:
            question.answer(codes)

        pending = PendingRequest(answered, refusal=question.codes_of)
        event = AddPartitions(
            pending,
            question.transactional_id,
            question.producer_id,
            question.producer_epoch,
            question.partitions,
            verify_only=not question.adds,
        )
        self._here.submit(question.transactional_id, event)
        codes = pending.collect()
        if codes is not None:
            question.answer(codes)


class _Question(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    adds: bool
    then: OnVerified

    def codes_of(self, code: ErrorCode) -> dict[TopicPartition, ErrorCode]:
        return dict.fromkeys(self.partitions, code)

    def refuse(self, code: ErrorCode) -> None:
        self.answer(self.codes_of(code))

    def answer(self, codes: dict[TopicPartition, ErrorCode]) -> None:
        """Codes for every partition, in the words of those that produce."""
        self.then({place: _for_producers(codes[place]) for place in self.partitions})


def _for_producers(code: ErrorCode) -> ErrorCode:
    """A producer that is fenced while it writes expects another code than one that is while it ends a transaction."""
    return ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED else code


class _Coordinator:
    """Another broker that coordinates transactions which are written to here."""

    def __init__(self, environment: Environment, broker_id: int) -> None:
        self._environment = environment
        self._broker_id = broker_id
        self._waiting: deque[_Question] = deque()
        self._idle: list[Channel] = []
        self._asking: list[Channel] = []
        self._is_due = False

    def put(self, question: _Question) -> None:
        if len(self._waiting) >= WAITING_MAX:
            question.refuse(ErrorCode.NETWORK_EXCEPTION)
            return
        self._waiting.append(question)
        if not self._is_due:
            self._is_due = True
            self._environment.runtime.call_soon(self._ask)

    def _ask(self) -> None:
        self._is_due = False
        while self._waiting and len(self._asking) < CONNECTIONS_MAX:
            channel = self._channel()
            if channel is None:
                self._refuse_waiting(ErrorCode.COORDINATOR_NOT_AVAILABLE)
                return
            asked = self._next_questions()
            self._asking.append(channel)
            channel.ask(_request(asked), VERSION, partial(self._on_answer, channel, asked), timeout_s=TIMEOUT_S)

    def _next_questions(self) -> dict[str, _Question]:
        """As many as fit into a request; of one transactional id the first, the others keep their order."""
        asked: dict[str, _Question] = {}
        later: list[_Question] = []
        while self._waiting and len(asked) < TRANSACTIONS_PER_REQUEST_MAX:
            question = self._waiting.popleft()
            if question.transactional_id in asked:
                later.append(question)
            else:
                asked[question.transactional_id] = question
        self._waiting.extendleft(reversed(later))
        return asked

    def _channel(self) -> Channel | None:
        environment = self._environment
        address = environment.address_of(self._broker_id)
        while self._idle:
            channel = self._idle.pop()
            if channel.address == address:
                return channel
            channel.close()
        if address is None:
            return None
        return Channel(
            environment.runtime,
            environment.network,
            *address,
            client_id=f"transactions-{environment.node_id}",
            login=environment.broker_login,
        )

    def _on_answer(
        self,
        channel: Channel,
        asked: dict[str, _Question],
        response: AddPartitionsToTxnResponse | None,
        error: BaseException | None,
    ) -> None:
        self._asking.remove(channel)
        if not channel.is_closed:
            self._idle.append(channel)
        if response is None or response.error_code:
            code = ErrorCode.NETWORK_EXCEPTION if response is None else named(response.error_code)
            for question in asked.values():
                question.refuse(code)
            if response is None:
                # It may hang for long, and another broker may coordinate by now. A retry finds that one.
                self._refuse_waiting(code)
        else:
            answered = {result.transactional_id: result for result in response.results_by_transaction}
            for question in asked.values():
                codes = question.codes_of(ErrorCode.UNKNOWN_SERVER_ERROR)
                result = answered.get(question.transactional_id)
                for topic in () if result is None else result.topic_results:
                    for partition in topic.results_by_partition:
                        place = TopicPartition(topic.name, partition.partition_index)
                        codes[place] = named(partition.partition_error_code)
                question.answer(codes)
        self._ask()

    def _refuse_waiting(self, code: ErrorCode) -> None:
        waiting, self._waiting = self._waiting, deque()
        for question in waiting:
            question.refuse(code)

    def close(self) -> None:
        for channel in [*self._idle, *self._asking]:
            channel.close()
        self._idle.clear()


def _request(asked: dict[str, _Question]) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(transactions=[_transaction(question) for question in asked.values()])


def _transaction(question: _Question) -> AddPartitionsToTxnTransaction:
    topics: dict[str, AddPartitionsToTxnTopic] = {}
    for name, index in question.partitions:
        topics.setdefault(name, AddPartitionsToTxnTopic(name=name)).partitions.append(index)
    return AddPartitionsToTxnTransaction(
        transactional_id=question.transactional_id,
        producer_id=question.producer_id,
        producer_epoch=question.producer_epoch,
        verify_only=not question.adds,
        topics=list(topics.values()),
    )

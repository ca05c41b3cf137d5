"""The transactions that write dead letters: a client of the transaction coordinator and of dead-letter topics.

Every request goes by a connection, also to this broker itself: so there is one way, with the same checks as for others.
Nothing is tried again here, except what the coordinator asks to be; the queue of the share partition decides that.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from strandline.broker.environment import Environment
from strandline.broker.network.broker_channels import BrokerChannels
from strandline.codec.message import Message
from strandline.codec.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from strandline.codec.messages.commit_batch_request import CommitBatchRequest, SinkTransaction
from strandline.codec.messages.init_producer_id_request import InitProducerIdRequest
from strandline.codec.messages.list_sinks_request import ListSinksRequest
from strandline.codec.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from strandline.coordinators.partitioning import TRANSACTION_STATE_TOPIC, partition_of_transactional_id
from strandline.coordinators.shares.dead_letters.covered_offsets import (
    TRANSACTION_NAME,
    CoveredOffsets,
    decode_note,
)
from strandline.errors import ErrorCode, named
from strandline.handlers.support.auto_creation import create_missing
from strandline.handlers.support.context import BrokerServices
from strandline.ids import TopicPartition, sink_key

TIMEOUT_S: Final = 10.0
"""Seconds that a request may take."""
TRANSACTION_MS_MAX: Final = 60_000
"""How long a transaction of a leader that is gone may stay open, if no other leader ends it."""
WAIT_S_MAX: Final = 10.0
"""Seconds until a transaction is given up whose predecessor does not end."""
WAIT_S: Final = 0.02
NO_BATCH: Final = -1

_NOT_YET: Final = frozenset((ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
_TOO_LARGE: Final = frozenset((ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE))

_INIT_VERSION: Final = 4
_ADD_VERSION: Final = 3
_PRODUCE_VERSION: Final = 11


class OpenedTransaction(NamedTuple):
    """A producer that no other of the same sink comes before any more."""

    producer_id: int
    producer_epoch: int
    last_batch_id: int | None = None
    """The last batch of the sink, if it was asked for; -1 for none."""
    covered: CoveredOffsets | None = None


class CopyOutcome(NamedTuple):
    """What became of a transaction."""

    is_committed: bool
    is_certain: bool = True
    """If it is not committed: whether it never will be."""
    reason: str = ""
    is_too_large: bool = False


OnOpened = Callable[[OpenedTransaction | None, str], object]
"""Called with the producer, or with None and the reason."""
OnCopied = Callable[[CopyOutcome], object]


class DeadLetterTransactions:
    """The transactions of all share partitions of a broker. Each callback is called exactly once, on a later turn."""

    def __init__(self, environment: Environment, services: BrokerServices) -> None:
        self._environment = environment
        self._services = services
        self._runtime = environment.runtime
        self._channels = BrokerChannels(environment, "dead-letters")
        """By broker, and whether it is for records: they may wait for followers, and what is behind them waits too."""
        self._is_creating = False

    def close(self) -> None:
        self._channels.close()

    # ---- opening

    def open(self, sink_id: str, *, needs_note: bool, on_opened: OnOpened) -> None:
        """Become the only producer of the sink; an open transaction of another is aborted."""
        _Opening(self, sink_id, needs_note, on_opened, self._runtime.monotonic() + WAIT_S_MAX).begin()

    # ---- writing

    def copy(
        self,
        sink_id: str,
        producer: OpenedTransaction,
        place: TopicPartition,
        batch: bytes,
        *,
        after: int,
        note: bytes,
        on_copied: OnCopied,
    ) -> None:
        """Write a batch to a dead-letter partition, and commit it with the note, if `after` is the last batch."""
        _Copying(self, sink_id, producer, place, batch, after, note, on_copied).begin()

    # ---- asking

    def ask_coordinator(self, sink_id: str, request: Message, version: int, then: Callable[[Any], object]) -> None:
        """Ask the transaction coordinator of a sink; `then` gets None if there is no answer."""
        image = self._environment.image()
        topic = image.topic_by_name(TRANSACTION_STATE_TOPIC)
        if topic is None:
            self._create_topic()
            self._runtime.call_soon(then, None)
            return
        index = partition_of_transactional_id(
            sink_key(sink_id), partition_count=len(topic.partitions), hash_level=image.coordinator_hash
        )
        self.ask(topic.partitions[index].leader, request, version, then, for_records=False)

    def ask(
        self, broker_id: int, request: Message, version: int, then: Callable[[Any], object], *, for_records: bool
    ) -> None:
        channel = self._channels.find((broker_id, for_records), broker_id)
        if channel is None:
            self._runtime.call_soon(then, None)
        else:
            channel.ask(request, version, lambda response, _: then(response), timeout_s=TIMEOUT_S)

    def leader_of(self, place: TopicPartition) -> int:
        known = self._environment.image().partition(*place)
        return -1 if known is None else known.leader

    def wait(self, delay_s: float, then: Callable[[], object]) -> None:
        self._runtime.call_later(delay_s, then)

    def now(self) -> float:
        return self._runtime.monotonic()

    def transaction_ms(self) -> int:
        return min(TRANSACTION_MS_MAX, self._environment.config().transaction_max_timeout_ms)

    def _create_topic(self) -> None:
        if not self._is_creating:
            self._is_creating = True
            create_missing(self._services, [TRANSACTION_STATE_TOPIC], self._on_topic)

    def _on_topic(self, refused: dict[str, int]) -> None:
        self._is_creating = False


def transactional_id_of(sink_id: str) -> str:
    return sink_key(sink_id) + TRANSACTION_NAME


class _Opening:
    """InitProducerId until no transaction is under way, then the note if it is needed."""

    def __init__(
        self,
        transactions: DeadLetterTransactions,
        sink_id: str,
        needs_note: bool,
        on_opened: OnOpened,
        deadline: float,
    ) -> None:
        self._transactions = transactions
        self._sink_id = sink_id
        self._needs_note = needs_note
        self._on_opened = on_opened
        self._deadline = deadline
        self._attempts = 0

    def begin(self) -> None:
        request = InitProducerIdRequest(
            transactional_id=transactional_id_of(self._sink_id),
            transaction_timeout_ms=self._transactions.transaction_ms(),
            producer_id=-1,
            producer_epoch=-1,
        )
        self._transactions.ask_coordinator(self._sink_id, request, _INIT_VERSION, self._on_producer)

    def _on_producer(self, response: Any) -> None:
        if response is None:
            self._on_opened(None, "the transaction coordinator does not answer")
        elif named(response.error_code) in _NOT_YET:
            self._try_again(self.begin, named(response.error_code))
        elif response.error_code:
            self._on_opened(None, f"the transaction coordinator answered {named(response.error_code).name}")
        else:
            producer = OpenedTransaction(response.producer_id, response.producer_epoch)
            if self._needs_note:
                self._read_note(producer)
            else:
                self._on_opened(producer, "")

    def _read_note(self, producer: OpenedTransaction) -> None:
        # The answer to InitProducerId came when everything before it was committed. So what the coordinator lists now
        # is committed, too, and no other producer can add to it.
        request = ListSinksRequest(sink_ids=[self._sink_id], include_notes=True)
        self._transactions.ask_coordinator(self._sink_id, request, 0, partial(self._on_sinks, producer))

    def _on_sinks(self, producer: OpenedTransaction, response: Any) -> None:
        if response is None:
            self._on_opened(None, "the transaction coordinator does not answer")
            return
        listed = [each for each in response.sinks if each.sink_id == self._sink_id]
        if response.error_code or not listed:
            # It lists the sink as long as it has the transactional id. Else another broker coordinates by now.
            code = named(response.error_code) if response.error_code else ErrorCode.NOT_COORDINATOR
            self._try_again(partial(self._read_note, producer), code)
            return
        try:
            covered = decode_note(bytes(listed[0].note))
        except ValueError as error:
            self._on_opened(None, str(error))
            return
        self._on_opened(producer._replace(last_batch_id=listed[0].last_batch_id, covered=covered), "")

    def _try_again(self, attempt: Callable[[], object], code: ErrorCode) -> None:
        self._attempts += 1
        delay_s = min(WAIT_S * 2 ** min(self._attempts, 5), 0.5)
        if self._transactions.now() + delay_s > self._deadline:
            self._on_opened(None, f"the transaction coordinator answered {code.name} for {WAIT_S_MAX:g} seconds")
        else:
            self._transactions.wait(delay_s, attempt)


class _Copying:
    """AddPartitionsToTxn, Produce, CommitBatch, each if the one before it succeeded."""

    def __init__(
        self,
        transactions: DeadLetterTransactions,
        sink_id: str,
        producer: OpenedTransaction,
        place: TopicPartition,
        batch: bytes,
        after: int,
        note: bytes,
        on_copied: OnCopied,
    ) -> None:
        self._transactions = transactions
        self._sink_id = sink_id
        self._transactional_id = transactional_id_of(sink_id)
        self._producer = producer
        self._place = place
        self._batch = batch
        self._after = after
        self._note = note
        self._on_copied = on_copied

    def begin(self) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._transactional_id,
            v3_and_below_producer_id=self._producer.producer_id,
            v3_and_below_producer_epoch=self._producer.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=self._place.topic, partitions=[self._place.partition])],
        )
        self._transactions.ask_coordinator(self._sink_id, request, _ADD_VERSION, self._on_added)

    def _on_added(self, response: Any) -> None:
        if response is None:
            self._refuse("the transaction coordinator does not answer")
            return
        (topic,) = response.results_by_topic_v3_and_below
        (result,) = topic.results_by_partition
        if result.partition_error_code:
            self._refuse(f"the transaction coordinator answered {named(result.partition_error_code).name}")
            return
        request = ProduceRequest(
            transactional_id=self._transactional_id,
            acks=-1,
            timeout_ms=int(TIMEOUT_S * 1000),
            topic_data=[
                TopicProduceData(
                    name=self._place.topic,
                    partition_data=[PartitionProduceData(index=self._place.partition, records=self._batch)],
                )
            ],
        )
        leader = self._transactions.leader_of(self._place)
        self._transactions.ask(leader, request, _PRODUCE_VERSION, self._on_produced, for_records=True)

    def _on_produced(self, response: Any) -> None:
        if response is None:
            self._refuse(f"the leader of {self._place} does not answer")
            return
        (topic,) = response.responses
        (result,) = topic.partition_responses
        code = named(result.error_code)
        if code:
            text = f": {result.error_message}" if result.error_message else ""
            self._refuse(f"the leader of {self._place} answered {code.name}{text}", is_too_large=code in _TOO_LARGE)
            return
        request = CommitBatchRequest(
            sink_id=self._sink_id,
            batch_id=self._after + 1,
            expected_last_batch_id=self._after,
            transactions=[
                SinkTransaction(self._transactional_id, self._producer.producer_id, self._producer.producer_epoch)
            ],
            timeout_ms=int(TIMEOUT_S * 1000) - 1_000,
            note=self._note,
        )
        self._transactions.ask_coordinator(self._sink_id, request, 0, self._on_committed)

    def _on_committed(self, response: Any) -> None:
        if response is not None and not response.error_code and not response.already_committed:
            self._on_copied(CopyOutcome(is_committed=True))
            return
        # Whatever the answer is: the note tells what was committed, so the answers need not be told apart.
        reason = "there is no answer"
        if response is not None:
            reason = response.error_message or named(response.error_code).name
        self._on_copied(
            CopyOutcome(is_committed=False, is_certain=False, reason=f"the transaction was perhaps committed: {reason}")
        )

    def _refuse(self, reason: str, *, is_too_large: bool = False) -> None:
        # Without CommitBatch nothing is committed: the next transaction of the sink aborts this one.
        self._on_copied(CopyOutcome(is_committed=False, reason=reason, is_too_large=is_too_large))

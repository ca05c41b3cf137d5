"""A transactional producer without threads: it begins, writes and flushes, and leaves the end to the driver.

What it says is what every Kafka producer says: InitProducerId, AddPartitionsToTxn (where Produce does not add them),
Produce with sequences, EndTxn. Producer id and epoch are at hand, so the driver can name the transaction exactly.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from strandline.client.coordinators import ask_coordinator
from strandline.codec.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from strandline.codec.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse
from strandline.codec.messages.describe_transactions_request import DescribeTransactionsRequest
from strandline.codec.messages.describe_transactions_response import DescribeTransactionsResponse
from strandline.codec.messages.end_txn_request import EndTxnRequest
from strandline.codec.messages.end_txn_response import EndTxnResponse
from strandline.codec.messages.init_producer_id_request import InitProducerIdRequest
from strandline.codec.messages.init_producer_id_response import InitProducerIdResponse
from strandline.codec.record_batch import sequence_after
from strandline.errors import ErrorCode, named
from strandline.spark.sink.cluster import SinkCluster
from strandline.spark.sink.failures import SinkFailed, SinkRefused, TransactionLost
from strandline.spark.sink.open_batches import OpenBatch, Place
from strandline.spark.sink.sending import Sealed, Sender

_CLIENTS_ADD_VERSION_MAX: Final = 3
_CLIENTS_END_VERSION_MAX: Final = 4
_CLIENTS_INIT_VERSION_MAX: Final = 5
"""Later ones are for brokers, for transactions with epochs of their own, and for two-phase commit."""


class TransactionalProducer:
    def __init__(self, cluster: SinkCluster, transactional_id: str, coordinator_key: str) -> None:
        self.cluster = cluster
        self.transactional_id = transactional_id
        self.producer_id = -1
        self.producer_epoch = -1
        self.is_open = False
        """Whether records were written in a transaction that this producer has not seen the end of."""
        self._coordinator_key = coordinator_key
        self._sequences: dict[Place, int] = {}
        self._added: set[Place] = set()
        self._sender: Sender | None = None

    def initialize(self) -> None:
        """Take the transactional id: its open transaction is aborted, and its last producer is fenced."""
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.cluster.options.transaction_timeout_ms,
        )
        answer = ask_coordinator(
            self.cluster.client,
            "begin a transaction",
            self._coordinator_key,
            request,
            InitProducerIdResponse,
            lambda told: told.error_code,
            version_max=_CLIENTS_INIT_VERSION_MAX,
        )
        code = named(answer.error_code)
        if code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            raise SinkRefused(
                f"transactionTimeoutMs={self.cluster.options.transaction_timeout_ms} is more than the broker allows: "
                "lower it, or raise transaction.max.timeout.ms of the brokers."
            )
        if code != ErrorCode.NONE:
            raise SinkFailed(f"A transaction cannot be begun: {code.name}.")
        self._took(answer.producer_id, answer.producer_epoch)
        self.is_open = False

    def write(self, batches: Sequence[OpenBatch]) -> None:
        """Send these batches in the open transaction, or in a new one."""
        if not batches:
            return
        if self._sender is None:
            self._sender = Sender(self.cluster, self.transactional_id)
        self.is_open = True
        if not self.cluster.raises_epochs:
            places = dict.fromkeys(batch.place for batch in batches)
            self._add([place for place in places if place not in self._added])
        self._sender.put([self._sealed(batch) for batch in batches])

    def flush(self) -> None:
        if self._sender is not None:
            self._sender.flush()
            self._sender = None

    def end(self, *, committed: bool) -> None:
        """Ask for the end of the transaction; TransactionLost if it had another."""
        answer = ask_coordinator(
            self.cluster.client,
            "end a transaction",
            self._coordinator_key,
            EndTxnRequest(self.transactional_id, self.producer_id, self.producer_epoch, committed),
            EndTxnResponse,
            lambda told: told.error_code,
            version_max=None if self.cluster.raises_epochs else _CLIENTS_END_VERSION_MAX,
        )
        code = named(answer.error_code)
        if code != ErrorCode.NONE:
            raise TransactionLost(
                f"The transaction {self.transactional_id} had another end, or none: {code.name}.", code
            )
        self.is_open = False
        self._sender = None
        self._added.clear()
        if answer.producer_id >= 0:
            self._took(answer.producer_id, answer.producer_epoch)

    def is_undecided(self) -> bool:
        """Whether the coordinator has the transaction of this producer open."""
        answer = ask_coordinator(
            self.cluster.client,
            "look at a transaction",
            self._coordinator_key,
            DescribeTransactionsRequest(transactional_ids=[self.transactional_id]),
            DescribeTransactionsResponse,
            lambda told: told.transaction_states[0].error_code,
        )
        state = answer.transaction_states[0]
        return state.transaction_state == "Ongoing" and (state.producer_id, state.producer_epoch) == (
            self.producer_id,
            self.producer_epoch,
        )

    def _took(self, producer_id: int, producer_epoch: int) -> None:
        if (producer_id, producer_epoch) != (self.producer_id, self.producer_epoch):
            # Sequences begin at 0 with every epoch.
            self._sequences.clear()
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self._added.clear()

    def _sealed(self, batch: OpenBatch) -> Sealed:
        options = self.cluster.options
        sequence = self._sequences.get(batch.place, 0)
        self._sequences[batch.place] = sequence_after(sequence, batch.count)
        content = batch.seal(self.producer_id, self.producer_epoch, sequence, options.compression)
        return Sealed(batch.place, content, time.monotonic() + options.delivery_timeout_ms / 1000)

    def _add(self, places: list[Place]) -> None:
        if not places:
            return
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for topic, partition in places:
            topics.setdefault(topic, AddPartitionsToTxnTopic(name=topic)).partitions.append(partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=list(topics.values()),
        )
        answer = ask_coordinator(
            self.cluster.client,
            "add partitions to a transaction",
            self._coordinator_key,
            request,
            AddPartitionsToTxnResponse,
            _code_of_added,
            version_max=_CLIENTS_ADD_VERSION_MAX,
        )
        code = named(_code_of_added(answer))
        if code != ErrorCode.NONE:
            raise TransactionLost(
                f"The transaction of this task ended while it wrote ({code.name}): raise transactionTimeoutMs "
                f"({self.cluster.options.transaction_timeout_ms}), or make batches smaller."
            )
        self._added.update(places)


def _code_of_added(answer: AddPartitionsToTxnResponse) -> int:
    """All partitions are added or none, so one that failed speaks for the others that were not attempted."""
    codes = [
        each.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for each in topic.results_by_partition
        if each.partition_error_code not in (ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED)
    ]
    return codes[0] if codes else ErrorCode.NONE

"""Producers and readers of transactions: stock ones by confluent-kafka, and one that says each request by itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from tests.hostile.batches import batch, produce
from tests.hostile.peer import Closed, Peer

from strandline.codec.messages.end_txn_request import EndTxnRequest
from strandline.codec.messages.end_txn_response import EndTxnResponse
from strandline.codec.messages.find_coordinator_request import FindCoordinatorRequest
from strandline.codec.messages.init_producer_id_request import InitProducerIdRequest
from strandline.codec.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from strandline.errors import ErrorCode

PATIENCE_S = 60.0
TRANSACTION = 1
TRY_AGAIN = frozenset(
    (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
)


def stock_producer(bootstrap: str, transactional_id: str, **settings: Any) -> Producer:
    """A producer of librdkafka that has taken its transactional id over."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 2}
        | {name.replace("_", "."): value for name, value in settings.items()}
    )
    producer.init_transactions(PATIENCE_S)
    return producer


def transact(
    producer: Producer, topic: str, values: Sequence[str], *, partitions: int = 1, commits: bool = True
) -> None:
    producer.begin_transaction()
    for number, value in enumerate(values):
        producer.produce(topic, value.encode(), partition=number % partitions)
    if commits:
        producer.commit_transaction(PATIENCE_S)
    else:
        # Aborting drops what has not been sent, and the point is that it was.
        assert producer.flush(PATIENCE_S) == 0
        producer.abort_transaction(PATIENCE_S)


def read(
    bootstrap: str, topic: str, count: int, *, partitions: int = 1, isolation: str = "read_committed"
) -> list[str]:
    """So many values as a reader sees them, and those that come with them."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader of {topic}",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 2,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    found: list[str] = []
    at_end: set[int] = set()
    until = time.monotonic() + PATIENCE_S
    while (len(found) < count or len(at_end) < partitions) and time.monotonic() < until:
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is None:
            at_end.discard(message.partition())
            found.append((message.value() or b"").decode())
        elif error.code() == KafkaError._PARTITION_EOF:
            at_end.add(message.partition())
    consumer.close()
    return found


def refusal(call: Any, *arguments: Any) -> KafkaError:
    """The error that a call of confluent-kafka raises."""
    try:
        call(*arguments)
    except KafkaException as error:
        found: KafkaError = error.args[0]
        return found
    raise AssertionError(f"{call} was not refused")


class PlainSpoken:
    """A transactional producer of transactions v2 that says one request at a time, and may say it again."""

    def __init__(self, ports: Sequence[int], transactional_id: str, *, timeout_ms: int = 60_000) -> None:
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.producer_id = self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}
        self._ports = ports
        self._peers: dict[int, Peer] = {}

    def __enter__(self) -> PlainSpoken:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()

    def peer(self, port: int) -> Peer:
        if port not in self._peers:
            self._peers[port] = Peer(port)
        return self._peers[port]

    def coordinator_port(self) -> int:
        def ask() -> tuple[int, int]:
            request = FindCoordinatorRequest(coordinator_keys=[self.transactional_id], key_type=TRANSACTION)
            (found,) = self.peer(self._ports[0]).ask(request, 4).coordinators
            return found.error_code, found.port

        return self._patiently(ask)

    def leader_port(self, topic: str, partition: int) -> int:
        def ask() -> tuple[int, int]:
            response = self.peer(self._ports[0]).ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 9)
            ports = {broker.node_id: broker.port for broker in response.brokers}
            (found,) = (each for each in response.topics[0].partitions if each.partition_index == partition)
            return found.error_code, ports.get(found.leader_id, -1)

        return self._patiently(ask)

    def init(self) -> None:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.timeout_ms,
            producer_id=-1,
            producer_epoch=-1,
        )

        def ask() -> tuple[int, Any]:
            response = self.peer(self.coordinator_port()).ask(request, 4)
            return response.error_code, response

        response = self._patiently(ask)
        self.go_on(response.producer_id, response.producer_epoch)

    def go_on(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.producer_id, self.epoch = producer_id, epoch
            self.sequences.clear()

    def batch(self, value: str, sequence: int) -> bytes:
        return batch(
            [value.encode()],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )

    def produce(self, topic: str, value: str, *, partition: int = 0, version: int = 12) -> int:
        """The error code, when it is one that trying again does not help."""
        sequence = self.sequences.get((topic, partition), 0)
        records = self.batch(value, sequence)

        def ask() -> tuple[int, int]:
            request = produce(topic, records, partition=partition, transactional_id=self.transactional_id)
            response = self.peer(self.leader_port(topic, partition)).ask(request, version)
            code = response.responses[0].partition_responses[0].error_code
            return (code, code) if code in TRY_AGAIN else (0, code)

        code = self._patiently(ask)
        if not code:
            self.sequences[topic, partition] = sequence + 1
        return code

    def end(self, *, commits: bool, epoch: int | None = None, goes_on: bool = True) -> EndTxnResponse:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            committed=commits,
        )

        def ask() -> tuple[int, Any]:
            response = self.peer(self.coordinator_port()).ask(request, 5)
            return response.error_code if response.error_code in TRY_AGAIN else 0, response

        response: EndTxnResponse = self._patiently(ask)
        if not response.error_code and goes_on:
            self.go_on(response.producer_id, response.producer_epoch)
        return response

    def _patiently(self, ask: Callable[[], tuple[int, Any]]) -> Any:
        """Ask again while the answer is a code that says so, or there is none; what came with the last one."""
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                code, found = ask()
            except (OSError, Closed):
                self.close()
                code, found = ErrorCode.NETWORK_EXCEPTION, None
            if code == ErrorCode.NONE:
                return found
            assert code in TRY_AGAIN, ErrorCode(code).name
            assert time.monotonic() < until, ErrorCode(code).name
            time.sleep(0.02)

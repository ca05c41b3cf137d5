"""Requests about transactions that are wrong: each has Kafka's code, and the transaction stays what it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from tests.hostile.batches import batch, produce
from tests.hostile.peer import Peer
from tests.hostile.process import until

from strandline.codec.message import Message
from strandline.codec.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from strandline.codec.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from strandline.codec.messages.describe_transactions_request import DescribeTransactionsRequest
from strandline.codec.messages.end_txn_request import EndTxnRequest
from strandline.codec.messages.find_coordinator_request import FindCoordinatorRequest
from strandline.codec.messages.init_producer_id_request import InitProducerIdRequest
from strandline.codec.messages.list_transactions_request import ListTransactionsRequest
from strandline.codec.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from strandline.errors import ErrorCode
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.testing import embedded

TOPIC = "orders"
ID = "payments"
AWAY = 1_000_000
"""A producer id that nobody was given."""


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with embedded(properties={"offsets.topic.num.partitions": "2"}) as node:
        node.create_topic(TOPIC, partitions=2)
        yield node


class Opened(NamedTuple):
    """A transaction with one record, open while something wrong is asked."""

    producer_id: int
    epoch: int


def begin(peer: Peer, transactional_id: str = ID) -> Opened:
    find = FindCoordinatorRequest(key=transactional_id, key_type=1)
    until(lambda: bool(peer.ask(find, 2).error_code == ErrorCode.NONE), "a coordinator")
    ask = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )
    answers: list[Any] = []

    def is_given() -> bool:
        answers.append(peer.ask(ask, 4))
        return bool(answers[-1].error_code == ErrorCode.NONE)

    until(is_given, "a producer id")
    opened = Opened(answers[-1].producer_id, answers[-1].producer_epoch)
    records = batch(producer_id=opened.producer_id, producer_epoch=opened.epoch, base_sequence=0, transactional=True)
    written = peer.ask(produce(TOPIC, records, transactional_id=transactional_id), 12)
    assert written.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    return opened


def described(peer: Peer, transactional_id: str = ID) -> Any:
    (state,) = peer.ask(DescribeTransactionsRequest(transactional_ids=[transactional_id]), 0).transaction_states
    return state


def end(opened: Opened, *, name: str = ID, producer_id: int | None = None, epoch: int = 0, commits: bool = True) -> Any:
    return EndTxnRequest(
        transactional_id=name,
        producer_id=opened.producer_id if producer_id is None else producer_id,
        producer_epoch=opened.epoch + epoch,
        committed=commits,
    )


def add(opened: Opened, *topics: tuple[str, int], name: str = ID, epoch: int = 0) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=opened.producer_id,
        v3_and_below_producer_epoch=opened.epoch + epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[index]) for topic, index in topics],
    )


def verify(opened: Opened, *topics: tuple[str, int], name: str = ID, epoch: int = 0) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=name,
                producer_id=opened.producer_id,
                producer_epoch=opened.epoch + epoch,
                verify_only=True,
                topics=[AddPartitionsToTxnTopic(name=topic, partitions=[index]) for topic, index in topics],
            )
        ]
    )


def init(opened: Opened, **fields: Any) -> InitProducerIdRequest:
    asked = {"transactional_id": ID, "transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
    return InitProducerIdRequest(**{**asked, **fields})


def mark(opened: Opened, topic: str, *, epoch: int = 0, coordinator_epoch: int = 0) -> WriteTxnMarkersRequest:
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=opened.producer_id,
                producer_epoch=opened.epoch + epoch,
                topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
                coordinator_epoch=coordinator_epoch,
                transaction_version=2,
            )
        ]
    )


def codes(answer: Any, version: int) -> list[str]:
    """Every error code in an answer, in its order."""
    found: list[str] = []

    def look(message: Any) -> None:
        for field in message.FIELDS:
            value = getattr(message, field.name)
            if not field.present(version):
                continue
            if field.name in ("error_code", "partition_error_code"):
                found.append(ErrorCode(value).name)
            elif field.struct is not None:
                for each in value or ():
                    look(each)

    look(answer)
    return found


CASES: dict[str, tuple[Callable[[Opened], Message], int, list[str]]] = {
    "an end of nobody's": (lambda o: end(o, name=""), 5, ["INVALID_REQUEST"]),
    "an end of an unknown id": (lambda o: end(o, name="who"), 5, ["INVALID_PRODUCER_ID_MAPPING"]),
    "an end by a foreign producer id": (lambda o: end(o, producer_id=AWAY), 5, ["INVALID_PRODUCER_ID_MAPPING"]),
    "an end in a later epoch": (lambda o: end(o, epoch=1), 5, ["PRODUCER_FENCED"]),
    "an end in an epoch long gone": (lambda o: end(o, epoch=-2), 5, ["PRODUCER_FENCED"]),
    "an end in a later epoch, for those who know no fencing": (
        lambda o: end(o, epoch=1),
        1,
        ["INVALID_PRODUCER_EPOCH"],
    ),
    "partitions for nobody": (lambda o: add(o, (TOPIC, 0), name=""), 3, ["INVALID_REQUEST"]),
    "partitions for an unknown id": (lambda o: add(o, (TOPIC, 0), name="who"), 3, ["INVALID_PRODUCER_ID_MAPPING"]),
    "partitions in another epoch": (lambda o: add(o, (TOPIC, 1), epoch=1), 3, ["PRODUCER_FENCED"]),
    "partitions in another epoch, long ago": (lambda o: add(o, (TOPIC, 1), epoch=1), 1, ["INVALID_PRODUCER_EPOCH"]),
    "a partition too much": (
        lambda o: add(o, (TOPIC, 1), (TOPIC, 2)),
        3,
        ["OPERATION_NOT_ATTEMPTED", "UNKNOWN_TOPIC_OR_PARTITION"],
    ),
    "a negative partition": (lambda o: add(o, (TOPIC, -1)), 3, ["UNKNOWN_TOPIC_OR_PARTITION"]),
    "an internal topic": (lambda o: add(o, ("__transaction_state", 0)), 3, ["TOPIC_AUTHORIZATION_FAILED"]),
    "a look at what is not there": (lambda o: verify(o, (TOPIC, 1)), 5, ["NONE", "TRANSACTION_ABORTABLE"]),
    "a look in another epoch": (lambda o: verify(o, (TOPIC, 0), epoch=1), 5, ["NONE", "PRODUCER_FENCED"]),
    "offsets for an unknown id": (
        lambda o: AddOffsetsToTxnRequest(
            transactional_id="who", producer_id=o.producer_id, producer_epoch=o.epoch, group_id="g"
        ),
        4,
        ["INVALID_PRODUCER_ID_MAPPING"],
    ),
    "no time at all": (lambda o: init(o, transaction_timeout_ms=0), 5, ["INVALID_TRANSACTION_TIMEOUT"]),
    "too much time": (lambda o: init(o, transaction_timeout_ms=900_001), 5, ["INVALID_TRANSACTION_TIMEOUT"]),
    "an epoch without an id": (lambda o: init(o, producer_epoch=3), 5, ["INVALID_REQUEST"]),
    "a foreign producer id": (lambda o: init(o, producer_id=AWAY, producer_epoch=0), 5, ["PRODUCER_FENCED"]),
    "a foreign producer id, long ago": (
        lambda o: init(o, producer_id=AWAY, producer_epoch=0),
        3,
        ["INVALID_PRODUCER_EPOCH"],
    ),
    "a marker in an old epoch": (lambda o: mark(o, TOPIC, epoch=-1), 2, ["INVALID_PRODUCER_EPOCH"]),
    "a marker in the epoch of the transaction": (lambda o: mark(o, TOPIC), 2, ["INVALID_PRODUCER_EPOCH"]),
    "a marker for no topic": (lambda o: mark(o, "nowhere", epoch=1), 2, ["UNKNOWN_TOPIC_OR_PARTITION"]),
    "no id to be described": (lambda o: DescribeTransactionsRequest(transactional_ids=[""]), 0, ["INVALID_REQUEST"]),
    "an unknown id to be described": (
        lambda o: DescribeTransactionsRequest(transactional_ids=["who"]),
        0,
        ["TRANSACTIONAL_ID_NOT_FOUND"],
    ),
    "no expression": (
        lambda o: ListTransactionsRequest(transactional_id_pattern="(("),
        2,
        ["INVALID_REGULAR_EXPRESSION"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_wrong_is_told_and_changes_nothing(broker: EmbeddedBroker, name: str) -> None:
    make, version, expected = CASES[name]
    with Peer(broker.port) as peer:
        opened = begin(peer)
        before = described(peer)
        assert codes(peer.ask(make(opened), version), version) == expected
        assert described(peer) == before
        assert before.transaction_state == "Ongoing"
        assert peer.ask(end(opened), 5).error_code == ErrorCode.NONE


def test_an_end_that_comes_twice_ends_once(broker: EmbeddedBroker) -> None:
    with Peer(broker.port) as peer:
        opened = begin(peer)
        assert peer.ask(end(opened), 5).error_code == ErrorCode.NONE
        until(lambda: bool(described(peer).transaction_state == "CompleteCommit"), "the last marker")
        first = described(peer)
        again = peer.ask(end(opened), 5)
        assert (again.error_code, again.producer_epoch) == (ErrorCode.NONE, opened.epoch + 1)
        assert peer.ask(end(opened, commits=False), 5).error_code == ErrorCode.INVALID_TXN_STATE
        assert described(peer) == first


def test_a_marker_of_a_coordinator_that_is_none_any_more(broker: EmbeddedBroker) -> None:
    with Peer(broker.port) as peer:
        opened = begin(peer)
        assert peer.ask(end(opened), 5).error_code == ErrorCode.NONE
        until(lambda: bool(described(peer).transaction_state == "CompleteCommit"), "the last marker")
        late = mark(opened, TOPIC, epoch=2, coordinator_epoch=-1)
        assert codes(peer.ask(late, 2), 2) == ["TRANSACTION_COORDINATOR_FENCED"]


@pytest.mark.slow
def test_a_transaction_of_very_many_partitions() -> None:
    """More than ten thousand are added, ended and done, and others are served meanwhile."""
    with embedded() as broker:
        broker.create_topic(TOPIC)
        # Ten thousand files are not written to the disk one by one: that is the disk's time, and not ours.
        broker.create_topic("wide", partitions=10_000, flush_mode="async")
        with Peer(broker.port) as peer, Peer(broker.port) as other:
            opened = begin(peer, "wide")
            wide = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="wide",
                v3_and_below_producer_id=opened.producer_id,
                v3_and_below_producer_epoch=opened.epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name="wide", partitions=list(range(10_000)))],
            )
            assert set(codes(peer.ask(wide, 3), 3)) == {"NONE"}
            assert peer.ask(end(opened, name="wide"), 5).error_code == ErrorCode.NONE
            assert other.is_served()
            until(lambda: bool(described(peer, "wide").transaction_state == "CompleteCommit"), "the last marker")
        broker.kill()

"""A coordinator that takes over writes records of the level that is finalised by then, before anybody has asked it."""

from __future__ import annotations

from collections.abc import Callable

from tests.unit.coordinators.world import MemoryPartition, TurnedClock

from strandline.broker.coordinating.transaction_driver import TransactionDriver
from strandline.codec.columns import decode_batch, encode_record
from strandline.config.transaction_settings import TransactionSettings
from strandline.coordinators.transactions.events import MarkersWritten, SendMarkers
from strandline.coordinators.transactions.transaction import Transaction, TransactionStatus
from strandline.coordinators.transactions.transaction_records import decode_transaction, transaction_record
from strandline.ids import TopicPartition


class LedPartition(MemoryPartition):
    leader_epoch = 7


class Topic:
    """One partition of `__transaction_state`, and a cluster whose features are not known yet."""

    def __init__(self) -> None:
        self.led = LedPartition()
        self.level = 0

    def partition_count(self) -> int:
        return 1

    def partition(self, index: int) -> LedPartition:
        return self.led

    def is_led(self, index: int) -> bool:
        return True

    def is_due(self, index: int) -> bool:
        return False

    def create(self) -> None:
        """It is there."""

    def hash_level(self) -> int:
        return 1

    def transaction_version(self) -> int:
        return self.level


class WritesAtOnce:
    """Every partition takes its marker."""

    def send(self, index: int, markers: SendMarkers, on_written: Callable[[MarkersWritten], object]) -> None:
        on_written(
            MarkersWritten(
                markers.transactional_id,
                markers.producer_id,
                markers.producer_epoch,
                markers.partitions,
                markers.decision,
            )
        )

    def drop(self, index: int) -> None: ...

    def close(self) -> None: ...


def test_what_was_decided_before_is_completed_with_every_field() -> None:
    decided = Transaction(
        transactional_id="x",
        producer_id=5,
        producer_epoch=2**15 - 1,
        timeout_ms=60_000,
        last_update_ms=0,
        status=TransactionStatus.PREPARE_COMMIT,
        last_producer_epoch=2**15 - 2,
        next_producer_id=6,
        partitions={TopicPartition("t", 0): None},
        start_ms=0,
        transaction_version=2,
    )
    clock, topic = TurnedClock(), Topic()
    key, value = transaction_record(decided, transaction_version=2)
    topic.led.batches.append(encode_record(value, key, (), 0))
    driver = TransactionDriver(
        clock,
        topic,  # type: ignore[arg-type]  # Its partition knows no transactions of its own.
        TransactionSettings(),
        next_producer_id=lambda then: None,
        markers=WritesAtOnce(),
    )
    topic.level = 2
    assert driver.load(0)
    clock.run()
    (last,) = decode_batch(topic.led.batches[-1]).records()
    assert last.key is not None
    _, completed = decode_transaction(last.key, last.value)
    assert completed == decided.completed(now_ms=clock.now_ms())
    assert completed.previous_producer_id == 5

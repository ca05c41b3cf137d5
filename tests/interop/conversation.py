"""What is written into both brokers, with a stock client: every codec, idempotence, transactions, nulls and headers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Message, Producer

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
FLUSH_TIMEOUT_S = 30


@dataclass(frozen=True)
class Sent:
    """A record as the broker acknowledged it."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass
class Ledger:
    """Everything that was acknowledged, by partition and offset."""

    records: dict[tuple[str, int], dict[int, Sent]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def note(self, headers: Sequence[tuple[str, bytes | None]] = ()) -> Callable[[Any, Message], None]:
        """The callback for one record. Its headers are named here, for the client's report leaves them out."""

        def on_delivery(error: Any, message: Message) -> None:
            if error is not None:
                self.errors.append(str(error))
                return
            sent = Sent(message.timestamp()[1], message.key(), message.value(), tuple(headers))
            self.records.setdefault((message.topic(), message.partition()), {})[message.offset()] = sent

        return on_delivery


def headers_of(number: int) -> list[tuple[str, bytes | None]]:
    return [("trace", b"%d" % number), ("nothing", None), ("café", b"")] if number % 3 == 0 else []


def write(bootstrap: str, topic: str, ledger: Ledger, *, rounds: int, partitions: int = 2) -> None:
    """Batches of one to seven records, each codec in turn, by idempotent producers."""
    for codec in CODECS:
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "compression.type": codec,
                "linger.ms": 5,
                "message.timeout.ms": FLUSH_TIMEOUT_S * 1000,
            }
        )
        for turn in range(rounds):
            for number in range(1 + turn % 7):
                producer.produce(
                    topic,
                    key=None if number % 4 == 3 else b"%s-%d" % (codec.encode(), number),
                    value=None if number % 5 == 4 else b"%d of %d " % (number, turn) * (1 + turn % 9),
                    headers=headers_of(number),
                    partition=turn % partitions,
                    on_delivery=ledger.note(headers_of(number)),
                )
            # A flush ends the batch: many small ones, as the indexes and rolls need them.
            assert producer.flush(FLUSH_TIMEOUT_S) == 0
    assert not ledger.errors


def write_interleaved(bootstrap: str, topic: str, ledger: Ledger, *, rounds: int) -> None:
    """Transactions of three producers that overlap, of which most are aborted; the last one is left open."""
    producers = []
    for number in range(3):
        producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": f"interleaved-{number}", "linger.ms": 0}
        )
        producer.init_transactions(FLUSH_TIMEOUT_S)
        producers.append(producer)
    is_open = [False] * 3
    for turn in range(rounds):
        for number, producer in enumerate(producers):
            if not is_open[number]:
                producer.begin_transaction()
                is_open[number] = True
            producer.produce(topic, value=b"%d by %d " % (turn, number) * 5, partition=0, on_delivery=ledger.note())
            assert producer.flush(FLUSH_TIMEOUT_S) == 0
            # Each ends every second, third or fourth turn, so that they overlap in every way.
            if turn % (number + 2) == number:
                decide = producer.commit_transaction if turn % 5 == 0 else producer.abort_transaction
                decide(FLUSH_TIMEOUT_S)
                is_open[number] = False
    assert not ledger.errors
    assert any(is_open)


def write_transactions(bootstrap: str, topic: str, ledger: Ledger) -> None:
    """One transaction that is committed and one that is aborted; their records are in the log, and markers too."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": "interop", "compression.type": "lz4", "linger.ms": 5}
    )
    producer.init_transactions(FLUSH_TIMEOUT_S)
    for decide in (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        for number in range(4):
            producer.produce(topic, value=b"in a transaction %d" % number, partition=0, on_delivery=ledger.note())
        assert producer.flush(FLUSH_TIMEOUT_S) == 0
        decide(FLUSH_TIMEOUT_S)
    assert not ledger.errors

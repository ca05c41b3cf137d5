"""What tests of the source stand on: a log full of everything, a stock consumer beside it, and a relay. No Spark."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import confluent_kafka
import pyarrow as pa
from confluent_kafka import Producer

from strandline.client.arrow_rows import FIELDS
from strandline.client.cluster_client import LATEST, READ_COMMITTED, READ_UNCOMMITTED, ClientSettings, ClusterClient
from strandline.client.fetcher import FetchSettings, OffsetRange, read_range
from strandline.ids import TopicPartition

WAIT_S = 60.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORD_SCHEMA = pa.schema([FIELDS[name] for name in FIELDS if name != "leaderEpoch"])
FETCH = 1


class Seen(NamedTuple):
    """A record as a reader saw it."""

    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None


def consumed(bootstrap: str, topic: str, *, partition: int = 0, committed: bool = True) -> list[Seen]:
    """Everything in a partition, by a stock consumer."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader-{uuid.uuid4()}",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    found = []
    deadline = time.monotonic() + WAIT_S
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0)])
        while True:
            assert time.monotonic() < deadline, f"{topic} has no end"
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.error() is not None:
                assert message.error().name() == "_PARTITION_EOF", message.error()
                return found
            timestamp_type, timestamp_ms = message.timestamp()
            found.append(
                Seen(
                    message.offset(),
                    timestamp_ms,
                    timestamp_type - 1,
                    message.key(),
                    message.value(),
                    message.headers(),
                )
            )
    finally:
        consumer.close()


def read(
    client: ClusterClient,
    topic: str,
    start: int,
    end: int,
    *,
    partition: int = 0,
    committed: bool = True,
    **settings: Any,
) -> list[Seen]:
    """A range of the same partition, by the source."""
    fetch = FetchSettings(isolation_level=READ_COMMITTED if committed else READ_UNCOMMITTED, **settings)
    batches = read_range(client, OffsetRange(topic, partition, start, end), fetch, RECORD_SCHEMA)
    return [seen for batch in batches for seen in seen_in(batch, topic, partition)]


def seen_in(batch: pa.RecordBatch, topic: str, partition: int = 0) -> list[Seen]:
    batch.validate(full=True)
    found = []
    for row in batch.to_pylist():
        assert (row["topic"], row["partition"]) == (topic, partition)
        headers = row["headers"]
        found.append(
            Seen(
                row["offset"],
                round(row["timestamp"].timestamp() * 1000),
                row["timestampType"],
                row["key"],
                row["value"],
                None if headers is None else [(each["key"], each["value"]) for each in headers],
            )
        )
    return found


def end_of(client: ClusterClient, topic: str, *, partition: int = 0, committed: bool = True) -> int:
    where = TopicPartition(topic, partition)
    level = READ_COMMITTED if committed else READ_UNCOMMITTED
    return client.list_offsets({where: LATEST}, isolation_level=level)[where]


def wait_until_decided(bootstrap: str, topic: str) -> None:
    """A commit is answered before its markers are in the log: until then its records are not stable."""
    deadline = time.monotonic() + WAIT_S
    with client_of(bootstrap) as client:
        while end_of(client, topic) < end_of(client, topic, committed=False):
            assert time.monotonic() < deadline, f"a transaction on {topic} stays open"


@contextlib.contextmanager
def client_of(bootstrap: str, **settings: Any) -> Iterator[ClusterClient]:
    client = ClusterClient(ClientSettings(bootstrap, **settings))
    try:
        yield client
    finally:
        client.close()


def fill(bootstrap: str, topic: str, rng: random.Random, *, transactions: int) -> None:
    """Transactions of several producers that overlap, committed and aborted, and plain records between them.

    Every codec, keys and values that are null or empty or large, with and without headers.
    """
    plain = [Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 0}) for codec in CODECS]
    transactional = []
    for codec in CODECS[:3]:
        settings = {"bootstrap.servers": bootstrap, "compression.type": codec, "transactional.id": f"{topic}-{codec}"}
        transactional.append(Producer(settings))
        transactional[-1].init_transactions(WAIT_S)
    is_open = [False] * len(transactional)
    while transactions > 0 or any(is_open):
        which = rng.randrange(len(transactional) + 1)
        if which == len(transactional):
            producer = rng.choice(plain)
            _produce_some(producer, topic, rng)
            assert producer.flush(WAIT_S) == 0
            continue
        producer = transactional[which]
        if not is_open[which] and transactions > 0:
            transactions -= 1
            producer.begin_transaction()
            is_open[which] = True
        if is_open[which]:
            _produce_some(producer, topic, rng)
            assert producer.flush(WAIT_S) == 0
            if rng.random() < 0.5:
                (producer.abort_transaction if rng.random() < 0.5 else producer.commit_transaction)(WAIT_S)
                is_open[which] = False
    wait_until_decided(bootstrap, topic)


def _produce_some(producer: Producer, topic: str, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 2, 7, 40))):
        headers = None
        if rng.random() < 0.4:
            headers = [("origin", rng.choice((None, b"", b"x" * 200))), ("café", b"1")][: rng.randint(1, 2)]
        producer.produce(
            topic,
            key=rng.choice((None, b"", b"key-%d" % rng.randrange(20))),
            value=rng.choice((None, b"", rng.randbytes(rng.randrange(300)), b"same" * rng.randrange(1, 500))),
            headers=headers,
            partition=0,
        )


class Relay:
    """Stands between a client and a broker and may change, or lose, what the broker answers to a Fetch.

    `on_answer` gets a whole answer to a Fetch, size in front, and returns what is sent instead; None hangs up.
    """

    def __init__(self, bootstrap: str, on_answer: Callable[[bytearray], bytearray | None]) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._target = (host, int(port))
        self._on_answer = on_answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def client(self, bootstrap: str, **settings: Any) -> ClusterClient:
        """A client that finds every leader here."""
        address = self.address

        class Relayed(ClusterClient):
            def address_of(self, node_id: int) -> tuple[str, int]:
                super().address_of(node_id)
                return address

        return Relayed(ClientSettings(bootstrap, **settings))

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._sockets.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with socket.create_connection(self._target) as broker, connection, contextlib.suppress(OSError):
            self._sockets.append(broker)
            while request := _frame(connection):
                broker.sendall(request)
                answer = _frame(broker)
                if answer is not None and struct.unpack_from(">h", request, 4)[0] == FETCH:
                    answer = self._on_answer(answer)
                if answer is None:
                    return
                connection.sendall(answer)


def _frame(stream: socket.socket) -> bytearray | None:
    frame = bytearray()
    wanted = 4
    while len(frame) < wanted:
        piece = stream.recv(wanted - len(frame))
        if not piece:
            return None
        frame += piece
        if len(frame) == 4:
            wanted = 4 + struct.unpack(">i", frame)[0]
    return frame

"""Idempotent producers as clients are: they pipeline, are refused, lose answers, send old records, and come back after
days, while the broker restarts and others invent producer ids. Each record is stored once, and in order.
"""

from __future__ import annotations

import errno
import random
import shutil
import uuid
from collections import deque
from pathlib import Path

import pytest
from tests.unit.log.engine import NOON_MS, abandon, batch_of, open_log, records_in
from tests.unit.log.faulty_disk import FaultyDisk
from tests.unit.log.manual_runtime import ManualRuntime

from strandline.config.topic_config import TopicConfig
from strandline.errors import ErrorCode, StrandlineError, error_code
from strandline.log.flusher import Flusher
from strandline.partition.partition import Partition
from strandline.partition.producers import ProducerLimit, Producers

SETTINGS = {"flush_mode": "async", "segment_bytes": 2_000}
CLIENTS = 3
IN_FLIGHT_MAX = 5
LIMIT = 8
DAY_MS = 86_400_000
PATIENCE_MS = 110_000
"""Less than `delivery.timeout.ms`: a client that gave a batch up sends it no more."""
EPOCH_AT = 51
"""Where a batch has the epoch of its producer, and behind it the sequence and the records: a bit of these may flip."""
RETRIED = {
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}


class Client:
    """A producer: at most five batches of one record are not acknowledged, and the lowest is always sent first."""

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.next_sequence = 0
        self.batches: dict[int, tuple[bytearray, int]] = {}
        """By sequence: what is not acknowledged, and since when."""
        self.to_send: list[int] = []
        self.pipe: deque[int] = deque()
        """Sent, and not received by the broker yet."""

    def make(self, timestamp_ms: int, now_ms: int) -> None:
        sequence = self.next_sequence
        value = b"%d:%d" % (self.producer_id, sequence)
        batch = batch_of(
            [value], timestamps=[timestamp_ms], producer_id=self.producer_id, producer_epoch=0, sequence=sequence
        )
        self.batches[sequence] = batch, now_ms
        self.to_send.append(sequence)
        self.next_sequence += 1

    def on_answer(self, sequence: int, code: ErrorCode) -> None:
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self.batches.pop(sequence, None)
        else:
            # The Java client and librdkafka begin a new epoch if this is the batch that has to come next.
            is_first = sequence == min(self.batches)
            assert code in RETRIED or not is_first, f"sequence {sequence} is refused for good: {code.name}"
            self.again([sequence])

    def again(self, sequences: list[int]) -> None:
        self.to_send = sorted({*self.to_send, *(each for each in sequences if each in self.batches)})

    def on_disconnect(self) -> None:
        self.pipe.clear()
        self.again(list(self.batches))


class History:
    def __init__(self, home: Path, seed: int) -> None:
        self.home = home
        self.random = random.Random(seed)
        self.directory = home / "orders-0"
        self.now_ms = NOON_MS
        self.clients = [Client(7_000 + number) for number in range(CLIENTS)]
        self.invented = 10**6
        self.told: dict[int, set[bytes]] = {}
        """By the offsets that clients were told: the ends of the batches that they had sent."""
        self.lives = 0
        self.open(clean=True, recovery_point=0)

    def open(self, *, clean: bool, recovery_point: int) -> None:
        self.disk = FaultyDisk()
        self.producers = Producers(ProducerLimit(LIMIT))
        self.log = open_log(
            self.directory,
            disk=self.disk,
            observer=self.producers,
            clean=clean,
            recovery_point=recovery_point,
            now_ms=self.now_ms,
            **SETTINGS,
        )
        self.partition = Partition(
            "orders",
            0,
            uuid.UUID(int=1),
            log=self.log,
            producers=self.producers,
            flusher=Flusher(ManualRuntime()),
            config=TopicConfig(**SETTINGS),
            leader_epoch=0,
        )
        self.absent = self.random.choice([0, 1, 2, 3])
        """Requests that come before the partition is there."""

    # What the broker does with a request, as `k00_produce` does

    def produce(self, batch: bytearray) -> ErrorCode:
        if self.absent:
            self.absent -= 1
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        received = bytearray(batch)
        if self.random.random() < 0.2:
            received[self.random.randrange(EPOCH_AT, len(received))] ^= 1 << self.random.randrange(8)
        chance = self.random.random()
        if chance < 0.05:
            self.partition.note_refused(received, self.now_ms, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if chance < 0.1:
            self.disk.fail("write_at", errno.ENOSPC, suffix=".log", times=1)
        try:
            offset, _, _ = self.partition.append(memoryview(received), self.now_ms)
            self.told.setdefault(offset, set()).add(bytes(batch[-10:]))
        except StrandlineError as error:
            self.partition.note_refused(received, self.now_ms, error_code(error))
            return ErrorCode(error_code(error))
        finally:
            self.disk.faults.clear()
        return ErrorCode.NONE

    # Steps

    def step(self) -> None:
        steps = (
            (self.make, 6),
            (self.send, 10),
            (self.receive, 10),
            (self.disconnect, 1),
            (self.invent, 3),
            (self.pass_time, 2),
            (self.expire, 1),
            (self.restart, 1),
        )
        self.random.choices([step for step, _ in steps], [weight for _, weight in steps])[0]()
        self.check()

    def make(self) -> None:
        client = self.random.choice(self.clients)
        for _ in range(self.random.randint(1, IN_FLIGHT_MAX - len(client.batches) + 1) - 1):
            client.make(self.random.choice([5, self.now_ms - 400 * DAY_MS, self.now_ms]), self.now_ms)

    def send(self) -> None:
        client = self.random.choice(self.clients)
        for _ in range(self.random.randint(1, IN_FLIGHT_MAX)):
            if client.to_send:
                client.pipe.append(client.to_send.pop(0))

    def receive(self) -> None:
        client = self.random.choice(self.clients)
        for _ in range(self.random.randint(1, IN_FLIGHT_MAX)):
            if client.pipe:
                self.receive_one(client, client.pipe.popleft())

    def receive_one(self, client: Client, sequence: int) -> None:
        if sequence in client.batches:
            code = self.produce(client.batches[sequence][0])
            if self.random.random() < 0.05:
                client.on_disconnect()
            else:
                client.on_answer(sequence, code)

    def disconnect(self) -> None:
        self.random.choice(self.clients).on_disconnect()

    def invent(self) -> None:
        for _ in range(self.random.randint(1, LIMIT)):
            self.invented += 1
            self.produce(batch_of([b"x"], timestamps=[5], producer_id=self.invented, producer_epoch=0, sequence=0))

    def pass_time(self) -> None:
        since = [at_ms for client in self.clients for _, at_ms in client.batches.values()]
        if since:
            left_ms = min(since) + PATIENCE_MS - self.now_ms
            self.now_ms += self.random.randint(0, max(0, min(40_000, left_ms)))
        else:
            self.now_ms += self.random.choice([60_000, 400_000, 2 * DAY_MS])

    def expire(self) -> None:
        self.producers.expire(before_ms=self.now_ms - DAY_MS)

    def restart(self) -> None:
        recovery_point = self.log.flushed_offset
        clean = self.random.random() < 0.5
        if clean:
            self.log.close()
            recovery_point = self.log.flushed_offset
        else:
            self.lives += 1
            copy = self.home / str(self.lives) / "orders-0"
            shutil.copytree(self.directory, copy)
            abandon(self.log)
            shutil.rmtree(self.directory)
            self.directory = copy
            if self.random.random() < 0.3:
                for path in copy.glob("*.snapshot"):
                    path.unlink()
        for client in self.clients:
            client.on_disconnect()
        self.open(clean=clean, recovery_point=recovery_point)

    def finish(self) -> None:
        for _ in range(3_000):
            if not any(client.batches for client in self.clients):
                return
            self.now_ms += 300
            self.send()
            self.receive()
        raise AssertionError("a batch is refused for ever")

    # What must hold

    def check(self) -> None:
        count = len(self.producers.entries)
        assert count <= LIMIT, f"{count} producers are remembered"
        assert self.producers.limit.count == count

    def begin_again(self) -> None:
        """Some programs end, and are started again: each has a new producer id."""
        self.check_log()
        for at, client in enumerate(self.clients):
            if self.random.random() < 0.6:
                self.clients[at] = Client(client.producer_id + 10)

    def check_log(self) -> None:
        stored: dict[int, list[int]] = {client.producer_id: [] for client in self.clients}
        for record in records_in(self.log):
            assert record.value is not None
            ends = self.told.get(record.offset, set())
            assert all(record.value in end for end in ends), f"{ends} were told {record.offset}: {record.value!r}"
            if b":" in record.value:
                producer_id, sequence = map(int, record.value.split(b":"))
                stored.setdefault(producer_id, []).append(sequence)
        for client in self.clients:
            found = stored[client.producer_id]
            acknowledged = [each for each in range(client.next_sequence) if each not in client.batches]
            assert len(found) == len(set(found)), f"{client.producer_id}: stored twice: {found}"
            assert found == sorted(found), f"{client.producer_id}: out of order: {found}"
            missing = set(acknowledged) - set(found)
            assert not missing, f"{client.producer_id}: acknowledged, but was never stored: {missing}"


@pytest.mark.parametrize(
    "seed",
    [
        *range(3),
        *(pytest.param(seed, marks=pytest.mark.lengthy("random walks beside a model")) for seed in range(3, 40)),
    ],
)
def test_every_record_is_stored_once_and_in_order(tmp_path: Path, seed: int) -> None:
    print("seed", seed)
    history = History(tmp_path, seed)
    for _ in range(6):
        for _ in range(40):
            history.step()
        history.check_log()
        history.finish()
        history.begin_again()
        # Days later; those that stayed go on in mid-sequence.
        history.now_ms += 2 * DAY_MS
        history.expire()
    abandon(history.log)

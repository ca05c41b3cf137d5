"""A reader that takes a large answer in crumbs while its topic is deleted, made anew, rolled or trimmed."""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.hostile.batches import batch, produce
from tests.hostile.peer import ROUTES, Closed, Peer, answer_of, request
from tests.hostile.process import MIB, descriptors, resident_bytes, settled_descriptors, until
from tests.hostile.stage import stage
from tests.unit.log.engine import append, batch_of, open_log

from strandline.codec.columns import columns_of
from strandline.codec.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from strandline.codec.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from strandline.codec.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from strandline.codec.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.log.trimming import trim_now

SEED = 3_331
KIB = 1024
NOISE, NOISE_PARTITIONS = "noise", 40
_names = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    # So few files may be open that segments are closed and opened all the time.
    properties = {"open.files.max": "16", "log.segment.delete.delay.ms": "0"}
    with stage({NOISE: NOISE_PARTITIONS}, properties=properties) as log:
        yield log


class Story:
    """A topic with known values, and a reader in the middle of reading all of it."""

    def __init__(
        self, broker: EmbeddedBroker, *, partitions: int = 4, batches: int = 8, value_bytes: int = 200_000
    ) -> None:
        self.broker = broker
        self.topic = f"slow-{next(_names)}"
        self.partitions = partitions
        self.admin = Peer(broker.port)
        self.create()
        self.values = {n: self.fill(n, batches, value_bytes) for n in range(partitions)}
        self.reader = Peer(broker.port, receive_buffer_bytes=4 * KIB)
        self.received = b""

    def create(self) -> None:
        topic = CreatableTopic(name=self.topic, num_partitions=self.partitions, replication_factor=1)
        answer = self.admin.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 7)
        assert answer.topics[0].error_code == 0

    def fill(self, partition: int, batches: int, value_bytes: int) -> list[bytes]:
        rng = random.Random(f"{SEED} {self.topic} {partition} {batches}")
        values = [rng.randbytes(value_bytes) for _ in range(batches)]
        for value in values:
            answer = self.admin.ask(produce(self.topic, batch([value]), partition=partition), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0
        return values

    def begin(self) -> None:
        partitions = [FetchPartition(partition=n, partition_max_bytes=50 * MIB) for n in range(self.partitions)]
        topics = [FetchTopic(topic=self.topic, partitions=partitions)]
        self.reader.send(request(FetchRequest(max_bytes=50 * MIB, topics=topics), 11))
        self.received += self.reader.receive(KIB)

    def make_noise(self) -> None:
        """Have so many other files opened that those of the story are closed."""
        for partition in range(NOISE_PARTITIONS):
            self.admin.ask(produce(NOISE, batch(), partition=partition), 9)

    def delete(self) -> None:
        deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name=self.topic)], timeout_ms=5000)
        assert self.admin.ask(deletion, 6).responses[0].error_code == 0

    def finish(self) -> dict[int, list[bytes]] | None:
        """What the reader got in the end; None if the broker hung up on it."""
        try:
            for _ in range(50):
                self.received += self.reader.receive(KIB)
            (size_bytes,) = struct.unpack_from(">i", self.received)
            self.received += self.reader.receive(size_bytes + 4 - len(self.received))
        except Closed:
            return None
        answer = answer_of(ROUTES[1], 11, self.received[4:])
        return {
            each.partition_index: [record.value for columns in columns_of(each.records) for record in columns]
            for topic in answer.responses
            for each in topic.partitions
            if each.error_code == 0
        }

    def close(self) -> None:
        self.reader.close()
        self.admin.close()


@pytest.fixture
def story(broker: EmbeddedBroker) -> Iterator[Story]:
    made = Story(broker)
    made.make_noise()
    yield made
    made.close()


@pytest.mark.slow
def test_it_gets_every_byte(story: Story) -> None:
    story.begin()
    assert story.finish() == story.values


def test_while_its_topic_is_deleted(story: Story) -> None:
    pid = story.broker.pid
    story.begin()
    story.delete()
    until(lambda: not list(story.broker.data.glob(f"{story.topic}-*")), "the directories are gone")
    got = story.finish()
    assert got is None or got == story.values
    story.reader.close()
    until(lambda: deleted_files_open(pid, story.topic) == 0, "the deleted files are let go")


def deleted_files_open(pid: int, topic: str) -> int:
    found = 0
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found += topic in str(entry.readlink())
        except FileNotFoundError:
            continue
    return found


def test_while_its_topic_is_deleted_and_made_anew(story: Story) -> None:
    """The new topic's files have the old names: not one byte of them may come."""
    story.begin()
    story.delete()
    story.create()
    for partition in range(story.partitions):
        story.fill(partition, 9, 200_000)
    got = story.finish()
    assert got is None or got == story.values


def test_while_its_topic_is_deleted_and_it_vanishes(story: Story) -> None:
    pid = story.broker.pid
    story.begin()
    story.delete()
    story.reader.reset()
    until(lambda: deleted_files_open(pid, story.topic) == 0, "the deleted files are let go")
    until(lambda: not list(story.broker.data.glob(f"{story.topic}-*")), "the directories are gone")


def test_while_its_topic_grows_and_rolls(story: Story) -> None:
    story.begin()
    for partition in range(story.partitions):
        story.fill(partition, 3, 200_000)
    # What was promised with the answer's first bytes is what comes, whatever was appended since.
    assert story.finish() == story.values


def test_many_slow_readers_cost_descriptors_and_little_memory(broker: EmbeddedBroker) -> None:
    story = Story(broker)
    pid = broker.pid
    descriptors_before, before = settled_descriptors(pid), resident_bytes(pid)
    readers = []
    for _ in range(50):
        reader = Peer(broker.port, receive_buffer_bytes=4 * KIB)
        partitions = [FetchPartition(partition=n, partition_max_bytes=50 * MIB) for n in range(story.partitions)]
        fetch = FetchRequest(max_bytes=50 * MIB, topics=[FetchTopic(topic=story.topic, partitions=partitions)])
        reader.send(request(fetch, 11))
        reader.receive(KIB)
        readers.append(reader)
    grown = resident_bytes(pid) - before
    print(f"50 slow readers of 6 MiB each: memory grew by {grown / MIB:.1f} MiB")
    # Batches wait in their files, not in memory.
    assert grown < 16 * MIB
    for reader in readers:
        reader.close()
    story.close()
    until(lambda: descriptors(pid) <= descriptors_before + 10, "descriptors are freed")


def test_small_slices_that_no_client_reads_wait_in_their_files(broker: EmbeddedBroker) -> None:
    """A slice of each partition, each small enough to be copied: an answer of 12 MiB for each reader."""
    story = Story(broker, partitions=200, batches=1, value_bytes=60_000)
    pid = broker.pid

    def grown_by(partitions: int) -> int:
        before = resident_bytes(pid)
        readers = [Peer(broker.port, receive_buffer_bytes=4 * KIB) for _ in range(20)]
        wanted = [FetchPartition(partition=n, partition_max_bytes=MIB) for n in range(partitions)]
        fetch = FetchRequest(max_bytes=50 * MIB, topics=[FetchTopic(topic=story.topic, partitions=wanted)])
        for reader in readers:
            reader.send(request(fetch, 11))
            reader.receive(KIB)
        grown = resident_bytes(pid) - before
        for reader in readers:
            reader.close()
        return grown

    # The control comes first and twice, so that caches of this many partitions are warm.
    control = [grown_by(1), grown_by(1)][-1]
    grown = grown_by(story.partitions)
    story.close()
    print(f"20 readers of 12 MiB each: memory grew by {grown / MIB:.1f} MiB, of 60 KB each by {control / MIB:.1f} MiB")
    assert grown < control + 24 * MIB


@pytest.mark.slow
def test_answers_that_no_client_reads_hold_up_its_next_requests(broker: EmbeddedBroker) -> None:
    """Thousand requests for metadata at once on each connection: one answer waits, and the other requests with it."""
    story = Story(broker, partitions=200, batches=1, value_bytes=10)
    pid = broker.pid
    metadata = MetadataRequest(topics=[MetadataRequestTopic(name=story.topic)])
    answer_bytes = len(story.admin.ask_raw(request(metadata, 9)) or b"")
    before = resident_bytes(pid)
    readers = [Peer(broker.port, receive_buffer_bytes=4 * KIB) for _ in range(20)]
    for reader in readers:
        reader.send(request(metadata, 9) * 1000)
        reader.receive(KIB)
    # Each request of another peer is a turn of the loop, in which 32 requests of a connection would be started.
    assert all(story.admin.is_served() for _ in range(200))
    grown = resident_bytes(pid) - before
    for reader in readers:
        reader.close()
    story.close()
    print(f"20 x 1000 answers of {answer_bytes} bytes: memory grew by {grown / MIB:.1f} MiB")
    assert answer_bytes * 20_000 > 64 * MIB, "too little was asked for to show anything"
    assert grown < 16 * MIB


def test_a_held_slice_outlives_trim_and_roll(tmp_path: Path) -> None:
    """At the engine: trimming and rolling take nothing from whoever holds a slice."""
    log = open_log(tmp_path / "orders-0", segment_bytes=20_000)
    values = [bytes([65 + n % 26]) * 3000 for n in range(40)]
    for value in values:
        append(log, batch_of([value]))
    held = log.read(0, size_bytes_max=1 << 20)
    assert held is not None
    before = held.read()
    assert [record.value for columns in columns_of(before) for record in columns] == values[
        : len(list(columns_of(before)))
    ]
    trim_now(log, 30)
    for value in values:
        append(log, batch_of([value]))
    assert held.read() == before
    name = held.segment.path.name
    held.release()
    assert not list(log.directory.glob(f"{name}*")), "the files of a trimmed segment stay after the last reader"
    log.close()

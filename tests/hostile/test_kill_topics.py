"""kill -9 while topics are made and deleted: what was acknowledged holds, and no half topic is left."""

from __future__ import annotations

import random
import re
import shutil
import threading
from pathlib import Path

import pytest
from tests.crash.harness import new_seed
from tests.hostile.batches import batch, produce
from tests.hostile.peer import Closed, Peer
from tests.hostile.process import until

import strandline
from strandline.codec.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from strandline.codec.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from strandline.codec.messages.metadata_request import MetadataRequest
from strandline.codec.messages.produce_response import PartitionProduceResponse
from strandline.errors import ErrorCode
from strandline.local.embedded_broker import EmbeddedBroker

PARTITIONS = 3
_LOG = re.compile(r"(.+)-(\d+)")


class Churn(threading.Thread):
    """Makes topics and deletes some of them, on one connection, until that breaks; remembers what it was told."""

    def __init__(self, port: int, topics: Topics, rng: random.Random, *, kill_after: int) -> None:
        super().__init__(name="churn")
        self._peer = Peer(port)
        self._topics = topics
        self._rng = rng
        self._kill_after = kill_after
        self.deep_enough = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        done = 0
        try:
            while True:
                if self._topics.present and self._rng.random() < 0.45:
                    self._drop(self._rng.choice(sorted(self._topics.present)))
                else:
                    self._make(self._topics.new_name())
                done += 1
                if done >= self._kill_after:
                    self.deep_enough.set()
        except (Closed, OSError):
            pass  # The broker was killed; what was under way is unknown.
        except BaseException as error:
            self.failure = error
        finally:
            self.deep_enough.set()
            self._peer.close()

    def _make(self, name: str) -> None:
        self._topics.unknown.add(name)
        topic = CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=1)
        answer = self._peer.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 7)
        assert answer.topics[0].error_code == 0
        # A topic is made with a record in it, so that files are more than names.
        stored = self._peer.ask(produce(name, batch([name.encode()]), partition=1), 9)
        assert stored.responses[0].partition_responses[0].error_code == 0
        self._topics.unknown.discard(name)
        self._topics.present.add(name)
        self._topics.with_record.add(name)

    def _drop(self, name: str) -> None:
        self._topics.present.discard(name)
        self._topics.unknown.add(name)
        deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=5000)
        assert self._peer.ask(deletion, 6).responses[0].error_code == 0
        self._topics.unknown.discard(name)
        self._topics.absent.add(name)


class Topics:
    """What must be there, what must not, and what may or may not."""

    def __init__(self) -> None:
        self.present: set[str] = set()
        self.absent: set[str] = set()
        self.unknown: set[str] = set()
        self.with_record: set[str] = set()
        """Those whose first record was acknowledged before a kill."""
        self._made = 0

    def new_name(self) -> str:
        self._made += 1
        return f"churn-{self._made}"

    def check(self, log: EmbeddedBroker) -> None:
        with Peer(log.port) as peer:
            found = {
                topic.name: len(topic.partitions)
                for topic in peer.ask(MetadataRequest(topics=None), 9).topics
                if topic.error_code == 0
            }
            assert self.present <= found.keys(), f"acknowledged and missing: {sorted(self.present - found.keys())}"
            assert not self.absent & found.keys(), f"deleted and back: {sorted(self.absent & found.keys())}"
            assert found.keys() <= self.present | self.unknown
            assert set(found.values()) <= {PARTITIONS}, f"a topic with some of its partitions: {found}"
            for name in sorted(found)[-5:]:
                for partition in range(PARTITIONS):
                    result = _store(peer, name, partition)
                    if name in self.with_record and partition == 1:
                        assert result.base_offset >= 1, "the topic's record is gone"
        self._check_directories(log.data, set(found))
        # From here on it is known what became of them.
        self.present |= self.unknown & found.keys()
        self.absent |= self.unknown - found.keys()
        self.unknown.clear()

    def _check_directories(self, data: Path, found: set[str]) -> None:
        expected = {f"{name}-{partition}" for name in found for partition in range(PARTITIONS)}
        until(lambda: not list(data.glob("*-delete")), "a start removes what the one before left")
        there = {path.name for path in data.iterdir() if path.is_dir()} - {"__cluster_metadata-0"}
        assert there == expected, f"left over: {sorted(there - expected)}, missing: {sorted(expected - there)}"
        assert all((data / name / "partition.metadata").is_file() for name in expected)
        temporary = list(data.glob("*/*.tmp"))
        assert not temporary, f"left over: {temporary}"


def _store(peer: Peer, name: str, partition: int) -> PartitionProduceResponse:
    """Store a record as soon as the partition is recovered: the broker answers before all of them are."""
    answers: list[PartitionProduceResponse] = []

    def is_answered() -> bool:
        stored = peer.ask(produce(name, batch(), partition=partition), 9)
        answers.append(stored.responses[0].partition_responses[0])
        return answers[-1].error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER

    until(is_answered, f"{name}-{partition} is recovered")
    assert answers[-1].error_code == 0
    return answers[-1]


def run(kills: int, directory: Path) -> None:
    rng = random.Random(new_seed())
    topics = Topics()
    with strandline.embedded(data=directory / "data") as log:
        for _ in range(kills):
            churn = Churn(log.port, topics, rng, kill_after=rng.randint(1, 12))
            churn.start()
            assert churn.deep_enough.wait(60)
            # Part of the schedule of faults: how far into the next request the broker comes.
            threading.Event().wait(rng.uniform(0.0, 0.01))
            log.kill()
            churn.join(60)
            assert churn.failure is None, churn.failure
            log.start()
            topics.check(log)
    print(f"{kills} kills: {len(topics.present)} topics there, {len(topics.absent)} gone")
    assert topics.present or topics.absent


@pytest.mark.slow
def test_a_directory_that_outlived_its_topic(tmp_path: Path) -> None:
    """The kill that comes between the record of a deletion and the directory: only what nobody knows is kept."""
    with strandline.embedded(data=tmp_path / "data") as log:
        log.create_topic("deleted")
        log.stop()
        shutil.copytree(log.data / "deleted-0", tmp_path / "copy")
        log.start()
        with Peer(log.port) as peer:
            deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name="deleted")], timeout_ms=5000)
            assert peer.ask(deletion, 6).responses[0].error_code == 0
        log.kill()
        shutil.rmtree(log.data / "deleted-0", ignore_errors=True)
        shutil.copytree(tmp_path / "copy", log.data / "deleted-0")
        shutil.copytree(tmp_path / "copy", log.data / "stranger-0")
        metadata = "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAg\n"
        (log.data / "stranger-0" / "partition.metadata").write_text(metadata)
        log.start()
        until(lambda: not list(log.data.glob("*-delete")), "a start removes what the one before left")
        left = sorted(path.name for path in log.data.iterdir() if path.is_dir())
        assert left[0] == "__cluster_metadata-0"
        assert len(left) == 2, left
        assert re.fullmatch(r"stranger-0\.[0-9a-f]{32}-stray", left[1])


@pytest.mark.slow
def test_five_kills(tmp_path: Path) -> None:
    run(5, tmp_path)


@pytest.mark.slow
def test_two_hundred_kills(tmp_path: Path) -> None:
    run(200, tmp_path)

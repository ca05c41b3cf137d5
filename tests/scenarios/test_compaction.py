"""A compacted topic, from its clients' side: cleaned by itself and when asked, over restarts and kills at any step."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.scenarios.compaction_ground import (
    AT_ONCE,
    BY_HAND,
    QUICK,
    TOPIC,
    compact_now,
    folded,
    make,
    names,
    put,
    read,
    rounds,
    until,
)

import strandline
from strandline.errors import ErrorCode
from strandline.runtime.fault_points import SWAP_POINTS, VARIABLE


def checkpoint(data: Path) -> dict[str, int]:
    path = data / "cleaner-offset-checkpoint"
    if not path.exists():
        return {}
    lines = [line.split(" ") for line in path.read_text().splitlines()[2:]]
    return {f"{topic}-{partition}": int(offset) for topic, partition, offset in lines}


def test_a_topic_is_compacted_by_itself_and_every_key_keeps_its_last_value(tmp_path: Path) -> None:
    written = rounds(20)
    with strandline.embedded(data=tmp_path, properties=QUICK) as log:
        make(log.bootstrap, AT_ONCE)
        offsets = put(log.bootstrap, written)
        assert offsets == list(range(200))
        until(lambda: checkpoint(tmp_path).get(f"{TOPIC}-0", 0) > 150, "the topic is cleaned")
        found = read(log.bootstrap)
        assert folded(found) == {key: value for key, value in written if value}
        assert len(found) < 100, "most of it is gone"
        assert [(key, value) for _, key, value in found] == [written[offset] for offset, _, _ in found], (
            "every record that stays has the offset it was given"
        )
        log.restart()
        assert read(log.bootstrap) == found
        log.kill()
        log.restart()
        assert folded(read(log.bootstrap)) == folded(found)


def test_it_is_compacted_when_asked_with_its_last_records(tmp_path: Path) -> None:
    written = rounds(7)
    with strandline.embedded(data=tmp_path, properties=QUICK) as log:
        make(log.bootstrap, BY_HAND)
        put(log.bootstrap, written)
        told = compact_now(log.port)
        assert (told.error_code, told.error_message) == (0, None)
        assert (told.records_before, told.records_after) == (70, 10)
        assert told.clean_up_to == 70
        assert told.bytes_after < told.bytes_before / 5
        found = read(log.bootstrap)
        assert [offset for offset, _, _ in found] == list(range(60, 70))
        again = compact_now(log.port)
        assert (again.error_code, again.bytes_before, again.clean_up_to) == (0, 0, 70)
        assert not [name for name in names(tmp_path) if name.endswith((".cleaned", ".swap"))]
        put(log.bootstrap, [(b"key 3", b"later")])
        assert compact_now(log.port).clean_up_to == 71
        assert len(read(log.bootstrap)) == 10


def test_what_cannot_be_compacted_is_answered_with_a_reason(tmp_path: Path) -> None:
    with strandline.embedded(data=tmp_path) as log:
        make(log.bootstrap, {"cleanup.policy": "delete"})
        told = compact_now(log.port)
        assert told.error_code == ErrorCode.POLICY_VIOLATION
        assert told.error_message == f"cleanup.policy of {TOPIC} is delete"
        assert compact_now(log.port, topic="nowhere").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with strandline.embedded(data=tmp_path, properties={"log.cleaner.enable": "false"}) as log:
        make(log.bootstrap, BY_HAND, topic="other")
        told = compact_now(log.port, topic="other")
        assert told.error_message == "the cleaner is off: log.cleaner.enable=false"


@pytest.mark.slow
def test_a_damaged_batch_sets_one_log_aside_and_the_others_go_on(tmp_path: Path) -> None:
    with strandline.embedded(data=tmp_path, properties=QUICK) as log:
        make(log.bootstrap, BY_HAND)
        make(log.bootstrap, BY_HAND, topic="sound")
        for topic in (TOPIC, "sound"):
            put(log.bootstrap, rounds(7), topic=topic)
        segment = tmp_path / f"{TOPIC}-0" / "00000000000000000000.log"
        content = bytearray(segment.read_bytes())
        content[content.index(b"round 1 of")] ^= 1
        segment.write_bytes(content)
        told = compact_now(log.port)
        assert told.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert told.error_message
        assert "CRC" in told.error_message
        assert compact_now(log.port, topic="sound").error_code == 0
        assert segment.read_bytes() == content, "it is as it was"
        assert not [name for name in names(tmp_path) if name.endswith((".cleaned", ".swap"))]


@pytest.mark.slow
def test_an_open_transaction_is_not_touched_and_an_aborted_one_goes(tmp_path: Path) -> None:
    with strandline.embedded(data=tmp_path, properties=QUICK) as log:
        make(log.bootstrap, BY_HAND)
        put(log.bootstrap, rounds(3))
        settings = {"bootstrap.servers": log.bootstrap, "transaction.timeout.ms": 60_000}
        aborted = Producer(settings | {"transactional.id": "aborted"})
        aborted.init_transactions(30)
        aborted.begin_transaction()
        for key in range(10):
            aborted.produce(TOPIC, b"never", b"key %d" % key)
        aborted.flush(30)
        aborted.abort_transaction(30)
        still_open = Producer(settings | {"transactional.id": "open"})
        still_open.init_transactions(30)
        still_open.begin_transaction()
        still_open.produce(TOPIC, b"perhaps", b"key 0")
        still_open.flush(30)
        told = compact_now(log.port)
        assert told.error_code == 0
        assert told.clean_up_to <= 41
        expected = dict(rounds(3))
        assert folded(read(log.bootstrap, **{"isolation.level": "read_committed"})) == expected
        still_open.commit_transaction(30)
        committed = {"isolation.level": "read_committed"}
        until(lambda: read(log.bootstrap, **committed)[-1][2] == b"perhaps", "the marker is there")
        told = compact_now(log.port)
        assert told.error_code == 0
        assert told.clean_up_to >= 42
        found = read(log.bootstrap, **committed)
        assert folded(found) == expected | {b"key 0": b"perhaps"}
        everything = read(log.bootstrap, **{"isolation.level": "read_uncommitted"})
        assert everything == found, "nothing of the aborted transaction is left"


@pytest.mark.slow
def test_coordinators_find_their_state_in_what_was_compacted(tmp_path: Path) -> None:
    """Groups and transactions live on compacted topics: hundreds of commits become one, and a restart knows it."""
    properties = QUICK | {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
    with strandline.embedded(data=tmp_path, properties=properties) as log:
        make(log.bootstrap, BY_HAND)
        put(log.bootstrap, rounds(30))
        consumer = Consumer({"bootstrap.servers": log.bootstrap, "group.id": "many", "enable.auto.commit": False})
        for position in range(300):
            consumer.commit(offsets=[TopicPartition(TOPIC, 0, position)], asynchronous=False)
        settings = {"bootstrap.servers": log.bootstrap, "transactional.id": "writer"}
        producer = Producer(settings)
        producer.init_transactions(30)
        for number in range(20):
            producer.begin_transaction()
            producer.produce(TOPIC, b"%d" % number, b"key 0")
            producer.commit_transaction(30)
        del producer
        for topic in ("__consumer_offsets", "__transaction_state"):
            told = compact_now(log.port, topic=topic)
            assert (told.error_code, told.error_message) == (0, None)
            assert told.records_after < told.records_before / 5
        for end in (log.stop, log.kill):
            end()
            log.start()
            (found,) = consumer.committed([TopicPartition(TOPIC, 0)], timeout=30)
            assert found.offset == 299
            producer = Producer(settings)
            producer.init_transactions(30)
            producer.begin_transaction()
            producer.produce(TOPIC, b"after", b"key 1")
            producer.commit_transaction(30)
            del producer
        consumer.close()
        compact_now(log.port)
        found_last = folded(read(log.bootstrap, **{"isolation.level": "read_committed"}))
        assert (found_last[b"key 0"], found_last[b"key 1"]) == (b"19", b"after")


BY_DEFAULT = ("swap-half-gone",)


@pytest.mark.parametrize(
    "point",
    [point if point in BY_DEFAULT else pytest.param(point, marks=pytest.mark.slow) for point in SWAP_POINTS],
)
def test_a_kill_at_any_step_of_the_swap_loses_nothing(tmp_path: Path, point: str) -> None:
    written = rounds(9)
    expected = dict(written)
    marker = tmp_path / "killed"
    data = tmp_path / "data"
    fault = {VARIABLE: f"{point}:kill:{marker}"}
    with strandline.embedded(data=data, properties=QUICK, environ=fault) as log:
        make(log.bootstrap, AT_ONCE)
        # The first segments are cleaned while the last are written, perhaps: then the rest is written to the next life.
        producer = Producer({"bootstrap.servers": log.bootstrap, "linger.ms": 0, "batch.num.messages": 1})
        for key, value in written:
            producer.produce(TOPIC, value, key, partition=0)
            producer.poll(0)
        until(lambda: producer.poll(0) + 1 and not log.running, f"killed at {point}")
        assert marker.exists()
        log.kill()
        # As the kill left it.
        shutil.copytree(data, tmp_path / "left")
        log.start()
        assert producer.flush(60) == 0
        assert folded(read(log.bootstrap)) == expected
        until(lambda: checkpoint(data).get(f"{TOPIC}-0", 0) > 30, "it is cleaned in the end")
        assert folded(read(log.bootstrap)) == expected
    assert not [name for name in names(data) if name.endswith((".cleaned", ".swap"))]


@pytest.mark.slow
def test_a_worker_that_is_killed_costs_a_pause(tmp_path: Path) -> None:
    """What it was cleaning is set aside for a while, and cleaned when asked."""
    with strandline.embedded(data=tmp_path, properties=QUICK) as log:
        make(log.bootstrap, BY_HAND)
        put(log.bootstrap, rounds(7))
        assert compact_now(log.port).error_code == 0
        put(log.bootstrap, rounds(7))
        for pid in workers_of(log.pid):
            os.kill(pid, 9)
        until(lambda: not workers_of(log.pid), "the worker is gone")
        told = compact_now(log.port)
        assert told.error_code == 0
        assert len(read(log.bootstrap)) == 10


def workers_of(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(each) for path in children for each in path.read_text().split()]

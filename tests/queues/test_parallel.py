"""`strandline.parallel` on a real node: keys in order, retries, rebalances, kills, and what a restart repeats."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.queues.conftest import eventually, write
from tests.queues.programs import Program, running

import strandline
from strandline import queue
from strandline.queue.finished_offsets import decode_finished

pytestmark = pytest.mark.timeout(180)
PROGRAM = "parallel_program.py"


def settings_of(node: Any, group: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": node.bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
    }


def write_keys(node: Any, topic: str, keys: int, rounds: int) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap})
    for number in range(rounds):
        for key in range(keys):
            producer.produce(topic, b"%d" % number, key=b"key %d" % key)
    assert producer.flush(30) == 0


def committed(node: Any, group: str, topic: str) -> dict[int, tuple[int, str]]:
    """Return what a group has committed: offset and metadata."""
    reader = Consumer({"bootstrap.servers": node.bootstrap, "group.id": group})
    try:
        found = reader.committed([TopicPartition(topic, index) for index in range(2)], 10)
        return {each.partition: (each.offset, each.metadata or "") for each in found if each.offset >= 0}
    finally:
        reader.close()


class Handled:
    """Records in the order in which their handlers ended, and the keys that were under way together."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.by_key: dict[bytes | None, list[int]] = {}
        self.running: Counter[bytes | None] = Counter()
        self.most = 0

    def handle(self, task: queue.QueueTask) -> None:
        with self.lock:
            self.running[task.key] += 1
            assert self.running[task.key] == 1, "two records of one key at a time"
            self.most = max(self.most, self.running.total())
        time.sleep(random.random() * 0.004)
        with self.lock:
            self.running[task.key] -= 1
            self.by_key.setdefault(task.key, []).append(int(task.value or b"0"))

    @property
    def count(self) -> int:
        with self.lock:
            return sum(map(len, self.by_key.values()))


def test_keys_are_in_order_and_others_go_on_meanwhile(node: Any, topic: str, group: str) -> None:
    write_keys(node, topic, keys=20, rounds=25)
    handled = Handled()
    with strandline.parallel(settings_of(node, group), topic, handled.handle, workers=8):
        eventually(lambda: handled.count == 500, "all were handled")
    assert all(numbers == list(range(25)) for numbers in handled.by_key.values())
    assert len(handled.by_key) == 20
    assert handled.most > 2
    ends = committed(node, group, topic)
    assert sum(offset for offset, _ in ends.values()) == 500
    assert all(not metadata for _, metadata in ends.values())


def test_a_record_that_fails_holds_up_only_its_key(node: Any, topic: str, group: str) -> None:
    write_keys(node, topic, keys=4, rounds=5)
    seen: list[tuple[bytes | None, bytes | None, int]] = []
    may_succeed = threading.Event()

    async def handle(task: queue.QueueTask) -> None:
        seen.append((task.key, task.value, task.attempt))
        if task.key == b"key 1" and task.value == b"2" and not may_succeed.is_set():
            raise queue.Retry("not yet")

    with strandline.parallel(settings_of(node, group), [topic], handle, workers=4):
        eventually(lambda: len({(key, value) for key, value, _ in seen}) == 4 * 5 - 2, "the other keys are done")
        eventually(lambda: max(attempt for *_, attempt in seen) > 2, "it is tried again")
        may_succeed.set()
        eventually(lambda: (b"key 1", b"4", 1) in seen, "its key goes on")
    of_key = [value for key, value, _ in seen if key == b"key 1"]
    assert sorted(of_key, key=int) == of_key


def test_poison_is_handed_over_and_counts_as_done(node: Any, topic: str, group: str) -> None:
    write(node.bootstrap, topic, [b"bad", b"worse", b"fine"], partition=0)
    poison: list[tuple[bytes | None, int, str]] = []
    fine: list[bytes | None] = []

    def handle(task: queue.QueueTask) -> None:
        if task.value == b"bad":
            raise ValueError("bad")
        if task.value == b"worse":
            raise queue.Reject("worse")
        fine.append(task.value)

    def on_poison(task: queue.QueueTask, error: BaseException) -> None:
        poison.append((task.value, task.attempt, str(error)))

    with strandline.parallel(settings_of(node, group), topic, handle, retries=2, on_poison=on_poison):
        eventually(lambda: len(poison) == 2 and fine, "all are decided")
        eventually(lambda: committed(node, group, topic).get(0, (0, ""))[0] == 3, "all are committed")
    assert sorted(poison) == [(b"bad", 3, "bad"), (b"worse", 1, "worse")]


@pytest.mark.slow
def test_two_consumers_share_and_hand_over(node: Any, topic: str, group: str) -> None:
    """The second one joins while the first works: what it takes over is not worked twice, and nothing is lost."""
    write_keys(node, topic, keys=20, rounds=20)
    first, second = Handled(), Handled()
    with strandline.parallel(settings_of(node, group), topic, first.handle, workers=4):
        eventually(lambda: first.count > 50, "the first one works")
        with strandline.parallel(settings_of(node, group), topic, second.handle, workers=4):
            eventually(lambda: first.count + second.count >= 400, "all were handled")
    together = {key: first.by_key.get(key, []) + second.by_key.get(key, []) for key in first.by_key | second.by_key}
    assert {key: Counter(numbers) for key, numbers in together.items()} == {
        b"key %d" % key: Counter(range(20)) for key in range(20)
    }


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_partitions_that_were_lost_while_paused_are_read_when_they_come_back(
    node: Any, topic: str, group: str, assignor: str
) -> None:
    write_keys(node, topic, keys=100, rounds=4)
    gate = threading.Event()
    handled: set[tuple[bytes | None, bytes | None]] = set()

    def handle(task: queue.QueueTask) -> None:
        gate.wait()
        handled.add((task.key, task.value))

    settings = settings_of(node, group) | {"partition.assignment.strategy": assignor, "heartbeat.interval.ms": 300}
    with strandline.parallel(settings, topic, handle, workers=4, grace_s=0.1):
        other = Consumer(settings | {"enable.auto.commit": False})
        other.subscribe([topic])
        eventually(lambda: other.poll(0.05) is None and len(other.assignment()) == 1, "the other one has a partition")
        gate.set()
        eventually(lambda: len(handled) >= 100, "the first one goes on with the other partition")
        other.close()
        eventually(lambda: len(handled) == 400, "all were handled")


def finished(node: Any, group: str, topic: str) -> set[tuple[int, int]]:
    """Return what the commits of a group say is done."""
    found: set[tuple[int, int]] = set()
    for partition, (offset, metadata) in committed(node, group, topic).items():
        found |= {(partition, each) for each in range(offset)}
        found |= {
            (partition, each) for first, last in decode_finished(offset, metadata) for each in range(first, last + 1)
        }
    return found


def done_by(program: Program) -> list[tuple[int, int]]:
    """Return partition and offset of what a program has done, in its order."""
    return [(int(line.split()[1]), int(line.split()[2])) for line in list(program.lines)]


def test_a_killed_consumer_leaves_only_what_was_not_finished(node: Any, topic: str, group: str) -> None:
    """Two records are stuck at the beginning; two hundred behind them are done, and are not done again."""
    for partition in range(2):
        values = [b"stuck" if number == 1 else b"%d" % number for number in range(100)]
        write(node.bootstrap, topic, values, partition=partition)
    everything = {(partition, offset) for partition in range(2) for offset in range(100)}
    stuck = {(0, 1), (1, 1)}
    with running(PROGRAM, node.bootstrap, group, topic) as program:
        eventually(lambda: finished(node, group, topic) == everything - stuck, "all others are done and committed")
        assert {offset for offset, _ in committed(node, group, topic).values()} == {1}
        program.kill()
    assert set(done_by(program)) == everything - stuck
    write(node.bootstrap, topic, [b"new"], partition=0)
    with running(PROGRAM, node.bootstrap, group, topic) as again:
        eventually(lambda: (0, 100) in done_by(again), "the next consumer goes on", within_s=90)
        eventually(lambda: (0, 100) in finished(node, group, topic), "and commits")
        assert done_by(again) == [(0, 100)], "nothing was repeated"
        assert {offset for offset, _ in committed(node, group, topic).values()} == {1}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_whenever_it_is_killed_nothing_is_lost(node: Any, topic: str, group: str, seed: int) -> None:
    chance = random.Random(seed)
    total = 3000
    write(node.bootstrap, topic, [b"%d" % number for number in range(total)])
    everything = {
        (partition, offset) for partition, end_offset in ends_of(node, topic).items() for offset in range(end_offset)
    }
    done: list[tuple[int, int]] = []
    for _ in range(4):
        before = finished(node, group, topic)
        target = chance.randrange(1, total // 4)
        with running(PROGRAM, node.bootstrap, group, topic) as program:
            eventually(partial(has_done, program, target), "it works", within_s=90)
            program.kill()
        assert not before & set(done_by(program)), "what was committed as done was done again"
        done += done_by(program)
    with running(PROGRAM, node.bootstrap, group, topic) as program:
        eventually(lambda: finished(node, group, topic) == everything, "all are done and committed", within_s=120)
        program.kill()
    assert set(done + done_by(program)) == everything, "a record was committed as done that no handler has done"


def has_done(program: Program, number: int) -> bool:
    return len(program.lines) >= number


def ends_of(node: Any, topic: str) -> dict[int, int]:
    reader = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "ends"})
    try:
        return {index: reader.get_watermark_offsets(TopicPartition(topic, index), 10)[1] for index in range(2)}
    finally:
        reader.close()

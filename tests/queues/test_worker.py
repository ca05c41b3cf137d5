"""`queue.worker` on a real node: what becomes of tasks that are done, fail, take long, or lose their worker."""

from __future__ import annotations

import asyncio
import os
import resource
import threading
import time
from collections import Counter
from contextlib import ExitStack
from typing import Any

import pytest
from tests.queues.conftest import EARLIEST, SHORT, eventually, write
from tests.queues.programs import running

from strandline import queue
from strandline.client.failures import ClusterFailed
from strandline.client.group_settings import set_group_settings
from strandline.client.shares.share_consumer import ShareConsumer
from strandline.client.shares.shared_records import ACCEPT, RELEASE

pytestmark = pytest.mark.timeout(180)


class Notes:
    """Tasks that a handler has seen, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.seen: list[queue.QueueTask] = []

    def add(self, task: queue.QueueTask) -> None:
        with self._lock:
            self.seen.append(task)

    @property
    def values(self) -> list[bytes]:
        with self._lock:
            return [task.value or b"" for task in self.seen]

    def attempts(self, value: bytes) -> list[int]:
        with self._lock:
            return [task.attempt for task in self.seen if task.value == value]


def names(number: int) -> list[bytes]:
    return [b"task %d" % each for each in range(number)]


def test_each_task_is_done_once(node: Any, topic: str, group: str) -> None:
    write(node.bootstrap, topic, names(200))
    notes = Notes()
    with queue.worker(node.bootstrap, group, topic, notes.add, group_settings=EARLIEST) as worker:
        eventually(lambda: len(notes.seen) >= 200, "all tasks were handled")
    assert sorted(notes.values) == sorted(names(200))
    assert (worker.counts.accepted, worker.counts.lost) == (200, 0)
    first = notes.seen[0]
    assert (first.topic, first.attempt, first.key) == (topic, 1, first.value)
    # A later worker gets nothing of it.
    write(node.bootstrap, topic, [b"one more"])
    later = Notes()
    with queue.worker(node.bootstrap, group, topic, later.add):
        eventually(lambda: later.seen, "the new task came")
    assert later.values == [b"one more"]


def test_a_process_may_have_thousands_of_files(node: Any, topic: str, group: str) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    write(node.bootstrap, topic, [b"task"])
    notes = Notes()
    with ExitStack() as stack:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        while stack.enter_context(open(os.devnull, "rb")).fileno() < 1_100:
            pass
        with queue.worker(node.bootstrap, group, topic, notes.add, group_settings=EARLIEST) as worker:
            eventually(lambda: worker.counts.accepted == 1, "the task is done")


def test_coroutines_run_on_one_loop_and_at_a_time(node: Any, topic: str, group: str) -> None:
    write(node.bootstrap, topic, names(40))
    notes, running, most = Notes(), set(), []
    threads: set[int] = set()

    async def handle(task: queue.QueueTask) -> None:
        running.add(task.name)
        most.append(len(running))
        threads.add(threading.get_ident())
        await asyncio.sleep(0.05)
        running.discard(task.name)
        notes.add(task)

    with queue.worker(node.bootstrap, group, topic, handle, concurrency=10, group_settings=EARLIEST):
        eventually(lambda: len(notes.seen) == 40, "all tasks were handled")
    assert sorted(notes.values) == sorted(names(40))
    assert len(threads) == 1
    assert 1 < max(most) <= 10


def test_what_fails_comes_again_and_what_is_rejected_does_not(node: Any, topic: str, group: str) -> None:
    write(node.bootstrap, topic, [b"fine", b"twice", b"never", b"hopeless"], partition=0)
    notes = Notes()

    def handle(task: queue.QueueTask) -> None:
        notes.add(task)
        if task.value == b"twice" and task.attempt < 3:
            raise ValueError("not yet")
        if task.value == b"never":
            raise queue.Reject("no")
        if task.value == b"hopeless":
            raise queue.Retry("again")

    with queue.worker(node.bootstrap, group, topic, handle, group_settings=EARLIEST) as worker:
        eventually(lambda: len(notes.attempts(b"hopeless")) == 5, "the last delivery of the group")
        eventually(lambda: len(notes.attempts(b"twice")) == 3, "it succeeded")
        write(node.bootstrap, topic, [b"last"], partition=0)
        eventually(lambda: b"last" in notes.values, "others go on")
    assert notes.attempts(b"twice") == [1, 2, 3]
    assert notes.attempts(b"never") == [1]
    assert notes.attempts(b"hopeless") == [1, 2, 3, 4, 5]
    assert worker.counts.rejected == 1
    assert worker.counts.released == 2 + 5


def test_a_worker_gives_up_after_its_own_number_of_retries(node: Any, topic: str, group: str) -> None:
    write(node.bootstrap, topic, [b"hopeless"])
    notes = Notes()

    def handle(task: queue.QueueTask) -> None:
        notes.add(task)
        raise queue.Retry("again")

    with queue.worker(node.bootstrap, group, topic, handle, retries=1, group_settings=EARLIEST) as worker:
        eventually(lambda: worker.counts.rejected, "it was rejected")
    assert notes.attempts(b"hopeless") == [1, 2]


@pytest.mark.slow
def test_a_lock_is_renewed_while_the_handler_works(node: Any, topic: str, group: str) -> None:
    """The lock lasts two seconds; another worker waits for the task all the time."""
    write(node.bootstrap, topic, [b"long"])
    notes, may_end = Notes(), threading.Event()

    def handle(task: queue.QueueTask) -> None:
        notes.add(task)
        may_end.wait(60)

    with (
        queue.worker(node.bootstrap, group, topic, handle, group_settings=SHORT) as first,
        queue.worker(node.bootstrap, group, topic, handle) as second,
    ):
        eventually(lambda: notes.seen, "one of them has it")
        time.sleep(4.5)
        may_end.set()
        eventually(lambda: first.counts.accepted + second.counts.accepted == 1, "it was accepted")
    assert notes.attempts(b"long") == [1]
    assert first.counts.lost + second.counts.lost == 0


def test_a_handler_that_takes_too_long_loses_its_task(node: Any, topic: str, group: str) -> None:
    write(node.bootstrap, topic, [b"stuck"])
    notes, may_end = Notes(), threading.Event()

    def handle(task: queue.QueueTask) -> None:
        notes.add(task)
        if task.attempt == 1:
            may_end.wait(60)

    with queue.worker(
        node.bootstrap, group, topic, handle, concurrency=2, timeout_s=1.5, group_settings=SHORT
    ) as worker:
        eventually(lambda: notes.attempts(b"stuck") == [1, 2], "another handler got it")
        eventually(lambda: worker.counts.accepted == 1, "and did it")
        may_end.set()
    assert worker.counts.accepted == 1, "the first one came too late"


def test_a_stop_finishes_what_runs_and_releases_the_rest(node: Any, topic: str, group: str) -> None:
    write(node.bootstrap, topic, names(6), partition=0)
    notes, may_end, stopped = Notes(), threading.Event(), threading.Event()

    def handle(task: queue.QueueTask) -> None:
        notes.add(task)
        may_end.wait(60)

    worker = queue.worker(
        node.bootstrap, group, topic, handle, concurrency=2, prefetch=4, group_settings=EARLIEST
    ).start()
    eventually(lambda: len(notes.seen) == 2, "two handlers run")
    time.sleep(0.3)

    def stop() -> None:
        worker.stop()
        stopped.set()

    threading.Thread(target=stop, daemon=True).start()
    rest = Notes()
    with queue.worker(node.bootstrap, group, topic, rest.add) as other:
        eventually(lambda: len(rest.seen) == 4, "another worker gets what was not begun, before its lock ends", 20.0)
        assert not stopped.is_set()
        may_end.set()
        assert stopped.wait(30)
        eventually(lambda: other.counts.accepted == 4, "it is done")
    assert sorted(notes.values + rest.values) == sorted(names(6))
    assert worker.counts.accepted == 2


def test_a_stop_does_not_wait_for_ever(node: Any, topic: str, group: str) -> None:
    write(node.bootstrap, topic, [b"stuck"])
    notes, may_end = Notes(), threading.Event()

    def handle(task: queue.QueueTask) -> None:
        notes.add(task)
        may_end.wait(60)

    worker = queue.worker(node.bootstrap, group, topic, handle, grace_s=0.5, group_settings=EARLIEST).start()
    eventually(lambda: notes.seen, "the handler runs")
    worker.stop()
    rest = Notes()
    with queue.worker(node.bootstrap, group, topic, rest.add):
        eventually(lambda: rest.attempts(b"stuck") == [2], "another worker gets it")
    may_end.set()


def test_lanes_serve_the_urgent_topic_first(node: Any, group: str, topic: str) -> None:
    urgent = f"{topic}-urgent"
    node.create_topic(urgent, 1)
    write(node.bootstrap, topic, names(60))
    notes, began, may_go = Notes(), threading.Event(), threading.Event()

    def handle(task: queue.QueueTask) -> None:
        notes.add(task)
        began.set()
        may_go.wait(60)
        time.sleep(0.005)

    with queue.worker(
        node.bootstrap, group, handler=handle, lanes=[urgent, topic], concurrency=2, group_settings=EARLIEST
    ):
        assert began.wait(60)
        # The urgent ones come while sixty others wait.
        write(node.bootstrap, urgent, [b"urgent %d" % each for each in range(10)])
        may_go.set()
        eventually(lambda: len(notes.seen) == 70, "all were handled")
    last_urgent = max(at for at, task in enumerate(notes.seen) if task.topic == urgent)
    before = sum(task.topic == topic for task in notes.seen[:last_urgent])
    assert before <= 12, f"{before} tasks of the other lane came before the last urgent one"


@pytest.mark.slow
def test_a_task_whose_lock_is_gone_does_not_spoil_the_others(node: Any, topic: str, group: str) -> None:
    """A broker stores all acknowledgements of a request or none; the consumer sends those it still holds again."""
    write(node.bootstrap, topic, names(5), partition=0)
    set_group_settings(node.bootstrap, group, SHORT)
    lost: list[tuple[int, str]] = []
    consumer = ShareConsumer(node.bootstrap, group, [topic])
    consumer.on_lost = lambda record, reason: lost.append((record.offset, reason))
    try:
        records: list[Any] = []
        while len(records) < 5:
            records += consumer.poll(records_max=5 - len(records), wait_s=0.2)
        until = time.monotonic() + 2.6
        while time.monotonic() < until:
            for record in records[1:]:
                consumer.renew(record)
            consumer.poll(records_max=0, wait_s=0.1)
        for record in records:
            consumer.acknowledge(record, ACCEPT)
        for _ in range(12):
            consumer.poll(records_max=0, wait_s=0.02)
        assert [offset for offset, _ in lost] == [0]
        again: list[Any] = []
        eventually(lambda: again.extend(consumer.poll(records_max=5, wait_s=0.2)) or again, "it comes again")
        assert [(record.offset, record.delivery_count) for record in again] == [(0, 2)]
    finally:
        consumer.close()


def test_what_one_session_held_is_not_acknowledged_by_the_next(node: Any, topic: str, group: str) -> None:
    write(node.bootstrap, topic, [b"held"], partition=0)
    set_group_settings(node.bootstrap, group, EARLIEST)
    lost: list[int] = []
    # A client.id is free text, unlike the name of the software.
    consumer = ShareConsumer(node.bootstrap, group, [topic], client_id="orders <1>")
    consumer.on_lost = lambda record, reason: lost.append(record.offset)
    try:
        records: list[Any] = []
        eventually(lambda: records.extend(consumer.poll(records_max=1, wait_s=0.2)) or records, "it came")
        records[0].session.connection.close()
        again: list[Any] = []
        eventually(lambda: again.extend(consumer.poll(records_max=1, wait_s=0.2)) or again, "it came again")
        assert again[0].offset == records[0].offset
        consumer.acknowledge(records[0], ACCEPT)
        assert lost == [records[0].offset]
        consumer.acknowledge(again[0], RELEASE)
        third: list[Any] = []
        eventually(lambda: third.extend(consumer.poll(records_max=1, wait_s=0.2)) or third, "it is not done")
        assert third[0].delivery_count == 3
    finally:
        consumer.close()


def test_a_group_of_another_type_is_refused_in_a_sentence(node: Any, topic: str, group: str) -> None:
    from confluent_kafka import Consumer

    plain = Consumer({"bootstrap.servers": node.bootstrap, "group.id": group})
    plain.subscribe([topic])
    eventually(lambda: plain.poll(0.1) or plain.assignment(), "a classic group is there")
    worker = queue.worker(node.bootstrap, group, topic, print)
    with pytest.raises(ClusterFailed, match="another type"):
        worker.run()
    plain.close()


def test_arguments_are_checked(node: Any) -> None:
    with pytest.raises(TypeError, match="handler"):
        queue.worker(node.bootstrap, "g", "t")
    with pytest.raises(ValueError, match="either topics or lanes"):
        queue.worker(node.bootstrap, "g", "t", print, lanes=["a"])
    with pytest.raises(ValueError, match="concurrency"):
        queue.worker(node.bootstrap, "g", "t", print, concurrency=0)
    with pytest.raises(ClusterFailed, match=r"INVALID_CONFIG|share\.auto"):
        queue.worker(node.bootstrap, "g", "t", print, group_settings={"share.auto.offset.reset": "sometimes"})


@pytest.mark.slow
def test_workers_share_what_is_there(node: Any, topic: str, group: str) -> None:
    write(node.bootstrap, topic, names(300))
    done: Counter[bytes] = Counter()
    notes = [Notes() for _ in range(6)]

    def handler(number: int) -> Any:
        def handle(task: queue.QueueTask) -> None:
            notes[number].add(task)
            time.sleep(0.005)

        return handle

    workers = [
        queue.worker(node.bootstrap, group, topic, handler(number), concurrency=2, group_settings=EARLIEST).start()
        for number in range(6)
    ]
    eventually(lambda: sum(len(each.seen) for each in notes) >= 300, "all were handled")
    for worker in workers:
        worker.stop()
    for each in notes:
        done.update(each.values)
    assert done == Counter(names(300))
    assert sum(1 for each in notes if each.seen) > 2, "more workers than partitions had work"


@pytest.mark.slow
def test_a_killed_worker_leaves_its_tasks_to_others_at_once(node: Any, topic: str, group: str) -> None:
    """The lock lasts thirty seconds; the broker releases it when the connection ends."""
    write(node.bootstrap, topic, [b"stuck", b"fine"], partition=0)
    notes = Notes()
    with ExitStack() as stack:
        program = stack.enter_context(running("worker_program.py", node.bootstrap, group, topic))
        eventually(lambda: "began 0" in program.lines and "done 1" in program.lines, "it works")
        for _ in range(3):
            stack.enter_context(queue.worker(node.bootstrap, group, topic, notes.add))
        program.kill()
        began_s = time.monotonic()
        eventually(lambda: notes.attempts(b"stuck") == [2], "another worker has it")
        assert time.monotonic() - began_s < 25
    assert set(notes.values) <= {b"stuck", b"fine"}


@pytest.mark.slow
def test_a_worker_that_is_terminated_finishes_and_leaves(node: Any, topic: str, group: str) -> None:
    write(node.bootstrap, topic, [b"slow", b"slow"], partition=0)
    with running("worker_program.py", node.bootstrap, group, topic) as program:
        eventually(lambda: "began 0" in program.lines, "it works")
        program.process.terminate()
        program.wait()
    assert program.process.returncode == 0
    assert program.lines[-1] == "stopped"
    began = {line.split()[1] for line in program.lines if line.startswith("began")}
    assert began == {line.split()[1] for line in program.lines if line.startswith("done")}
    rest = Notes()
    with queue.worker(node.bootstrap, group, topic, rest.add):
        write(node.bootstrap, topic, [b"last"], partition=0)
        eventually(lambda: b"last" in rest.values, "others go on")
    assert {str(task.offset) for task in rest.seen} == {"0", "1", "2"} - began

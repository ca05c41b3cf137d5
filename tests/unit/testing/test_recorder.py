"""A recorder hands out process numbers once, keeps operations in order of completion, and wakes those who wait."""

from __future__ import annotations

import threading

import pytest
from tests.unit.testing.histories import poll, send

from strandline.testing.client_threads import ClientThread, payload_of, value_of
from strandline.testing.recorder import Recorder


def test_processes_are_numbered_once() -> None:
    recorder = Recorder()
    assert len({recorder.new_process() for _ in range(100)}) == 100


def test_only_acknowledged_sends_count() -> None:
    recorder = Recorder()
    ops = [send(0, "a", 0), send(0, "b", outcome="info"), send(0, "c", outcome="fail"), poll(1, (0, "a"))]
    for op in ops:
        recorder.add(op)
    assert recorder.acknowledged == 1
    assert recorder.ops() == ops


def test_waiting_ends_with_the_acknowledgement() -> None:
    recorder = Recorder()

    def add_three() -> None:
        for number in range(3):
            recorder.add(send(0, str(number), number))

    thread = threading.Thread(target=add_three)
    thread.start()
    recorder.wait_acknowledged(3, timeout_s=30)
    thread.join()
    assert recorder.acknowledged == 3


def test_waiting_in_vain_says_how_far_it_came() -> None:
    recorder = Recorder()
    recorder.add(send(0, "a", 0))
    with pytest.raises(TimeoutError, match="1 of 2 sends acknowledged within 0 s"):
        recorder.wait_acknowledged(2, timeout_s=0)


def test_waiting_for_an_operation_ignores_earlier_ones() -> None:
    recorder = Recorder()
    recorder.add(send(0, "early", 0))
    with pytest.raises(TimeoutError):
        recorder.wait_op(lambda op: op.process == 0, timeout_s=0)
    # Unwanted operations keep coming until the wait is over, so it must look at each and not only at the first.
    done = threading.Event()

    def add_until_done() -> None:
        for number in range(1, 1_000_000):
            recorder.add(send(number % 3, str(number), number))
            if done.wait(0.001):
                return

    thread = threading.Thread(target=add_until_done)
    thread.start()
    assert recorder.wait_op(lambda op: op.process == 2, timeout_s=30).process == 2
    done.set()
    thread.join()


def test_a_failure_in_a_client_thread_is_raised_where_it_is_stopped() -> None:
    class Broken(ClientThread):
        def work(self) -> None:
            raise RuntimeError("broken on purpose")

    thread = Broken(Recorder(), "broken")
    thread.start()
    with pytest.raises(RuntimeError, match="on purpose"):
        thread.stop()


@pytest.mark.parametrize("size_bytes", [5, 6, 7, 100])
def test_payload_names_its_value(size_bytes: int) -> None:
    payload = payload_of("3:17", size_bytes)
    assert len(payload) == max(size_bytes, 5)
    assert value_of(payload) == "3:17"


def test_damage_in_the_filler_is_a_value_that_nobody_sent() -> None:
    damaged = payload_of("3:17", 100)[:-1] + b"y"
    assert value_of(damaged) == "damaged 3:17"
    assert value_of(b"3\xff:17 xx") == "3\\xff:17"
    assert value_of(None) == ""

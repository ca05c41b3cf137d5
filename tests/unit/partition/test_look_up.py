"""A search by time on the loop: what is at hand at once, what is large one after the other, and nobody left waiting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.unit.log.engine import NOON_MS, append, batch_of, open_log
from tests.unit.log.manual_runtime import ManualRuntime

from strandline.codec.columns import Compression
from strandline.errors import CorruptLog
from strandline.log.partition_log import PartitionLog
from strandline.log.segment.time_lookup import OPENS, FoundTime, Search, search_time
from strandline.partition.look_up import LookUp
from strandline.partition.serial_gate import SerialGate

COUNT = 4_000


def a_log(path: Path, *, codec: Compression) -> PartitionLog:
    log = open_log(path)
    append(log, batch_of([b"v" * 30] * COUNT, timestamps=[NOON_MS + at for at in range(COUNT)], codec=codec))
    return log


class Asked:
    """A look-up, and what its asker heard."""

    def __init__(self, search: Search, runtime: ManualRuntime, serial_gate: SerialGate) -> None:
        self.heard: list[tuple[FoundTime | None, BaseException | None]] = []
        LookUp(search, runtime, serial_gate, lambda *answer: self.heard.append(answer)).resume()


def last_record(log: PartitionLog) -> Search:
    return search_time(log.segments, NOON_MS + COUNT - 1, start_offset=0, limit_offset=COUNT)


def test_one_large_batch_is_opened_at_a_time(tmp_path: Path) -> None:
    runtime, serial_gate = ManualRuntime(), SerialGate()
    logs = [a_log(tmp_path / f"orders-{number}", codec=Compression.GZIP) for number in range(4)]
    asked = [Asked(last_record(log), runtime, serial_gate) for log in logs]
    while not all(each.heard for each in asked):
        assert len(runtime.jobs) <= 1, "an opened batch takes memory, and flushes need threads"
        if runtime.jobs:
            runtime.finish_job()
        else:
            runtime.turn()
    assert [each.heard for each in asked] == [[(FoundTime(COUNT - 1, NOON_MS + COUNT - 1, 0), None)]] * 4
    left: list[bool] = []
    serial_gate.enter(lambda: left.append(True))
    assert left == [True], "everybody who came in has left"
    for log in logs:
        assert all(segment.references == 0 for segment in log.segments)
        log.close()


def test_one_that_fails_lets_the_next_in(tmp_path: Path) -> None:
    runtime, serial_gate = ManualRuntime(), SerialGate()
    log = a_log(tmp_path / "orders-0", codec=Compression.GZIP)

    def damaged() -> Search:
        yield OPENS
        yield lambda: None
        raise CorruptLog("a hole in the file")

    first = Asked(damaged(), runtime, serial_gate)
    second = Asked(last_record(log), runtime, serial_gate)
    runtime.settle()
    ((found, error),) = first.heard
    assert found is None
    assert isinstance(error, CorruptLog)
    assert second.heard[0][1] is None
    log.close()


def test_what_a_thread_raised_comes_back_to_the_search(tmp_path: Path) -> None:
    runtime = ManualRuntime()
    seen: list[Any] = []

    def search() -> Search:
        def read() -> None:
            raise OSError(5, "Input/output error")

        try:
            yield read
        except OSError as error:
            seen.append(error.errno)
            raise
        return None

    asked = Asked(search(), runtime, SerialGate())
    runtime.settle()
    assert seen == [5]
    ((found, error),) = asked.heard
    assert found is None
    assert isinstance(error, OSError)


def test_small_batches_are_answered_before_anybody_waits(tmp_path: Path) -> None:
    runtime, serial_gate = ManualRuntime(), SerialGate()
    serial_gate.enter(lambda: None)  # A caller is in, and stays.
    log = open_log(tmp_path / "orders-0")
    append(log, batch_of([b"v"], codec=Compression.ZSTD))
    asked = Asked(search_time(log.segments, NOON_MS, start_offset=0, limit_offset=1), runtime, serial_gate)
    assert asked.heard == [(FoundTime(0, NOON_MS, 0), None)]
    log.close()

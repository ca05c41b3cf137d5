"""The `.snapshot` files: when they are written, which are kept, and that they never tell of what was cut."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.log.engine import NOON_MS, abandon, append, batch_of, crash, open_log

from strandline.log.partition_log import PartitionLog
from strandline.log.truncation import truncate_to
from strandline.partition.producers import BATCHES_KEPT, Producers


def send(log: PartitionLog, producer_id: int, sequence: int, *, count: int = 1) -> int:
    return append(log, batch_of([b"v"] * count, producer_id=producer_id, producer_epoch=0, sequence=sequence))


def snapshots(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in directory.glob("*.snapshot"))


def newest(producers: Producers) -> dict[int, tuple[int, int]]:
    """Of each producer the last sequence and its offset."""
    return {each: entry.batches[-1][1:3] for each, entry in producers.entries.items()}


def test_one_is_written_at_each_roll_and_at_the_end(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0", observer=Producers())
    for sequence in range(4):
        send(log, 7, sequence)
        if sequence % 2:
            log.roll(NOON_MS)
    send(log, 7, 4)
    assert snapshots(log.directory) == [2, 4]
    log.close()
    assert snapshots(log.directory) == [2, 4, 5]


def test_clean_stops_do_not_pile_them_up(tmp_path: Path) -> None:
    for sequence in range(8):
        log = open_log(tmp_path / "orders-0", observer=Producers(), clean=True)
        send(log, 7, sequence)
        if sequence == 3:
            log.roll(NOON_MS)
        log.close()
    assert snapshots(tmp_path / "orders-0") == [4, 7, 8], "one for the second segment, the last two stops"


def test_a_log_without_an_observer_writes_none(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0")
    send(log, 7, 0)
    log.roll(NOON_MS)
    log.close()
    assert snapshots(tmp_path / "orders-0") == []


def test_one_of_what_was_cut_is_never_believed(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0", observer=Producers())
    for sequence in range(10):
        send(log, 7, sequence)
    log.close()
    # The snapshot of the stop lies in the middle of a segment, so it does not go with one.
    log = open_log(tmp_path / "orders-0", observer=(producers := Producers()), clean=True)
    truncate_to(log, 5)
    assert snapshots(log.directory) == []
    for sequence in range(7):
        send(log, 8, sequence)
    truncate_to(log, 11)
    assert newest(producers) == {7: (4, 4), 8: (5, 10)}
    log.close()


@pytest.mark.parametrize("left", [b"", b"\x00\x01", b"\x00" * 200, b"\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00"])
def test_a_torn_one_is_dropped_and_the_batches_read_instead(tmp_path: Path, left: bytes) -> None:
    log = open_log(tmp_path / "orders-0", observer=Producers())
    for sequence in range(6):
        send(log, 7, sequence)
        send(log, 9, sequence * 2, count=2)
        if sequence == 3:
            log.roll(NOON_MS)
    log.close()
    for path in log.directory.glob("*.snapshot"):
        path.write_bytes(left)
    again = open_log(tmp_path / "orders-0", observer=(producers := Producers()), clean=True)
    assert newest(producers) == {7: (5, 15), 9: (11, 17)}
    again.close()


def test_after_a_crash_the_whole_window_of_the_last_segment_is_known(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0", observer=Producers())
    send(log, 7, 0)
    log.roll(NOON_MS)
    newest = BATCHES_KEPT + 2
    for sequence in range(1, newest + 1):
        send(log, 7, sequence)
    copy = crash(log, tmp_path / "copy-0")
    abandon(log)
    again = open_log(copy, observer=(producers := Producers()), recovery_point=5)
    assert [batch[0] for batch in producers.entries[7].batches] == list(range(3, newest + 1))
    assert producers.check(7, 0, 3, 3) == 3
    again.close()


def test_after_a_clean_stop_the_whole_window_is_known(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0", observer=Producers())
    for sequence in range(5):
        send(log, 7, sequence)
    log.close()
    again = open_log(tmp_path / "orders-0", observer=(producers := Producers()), clean=True)
    assert [producers.check(7, 0, sequence, sequence) for sequence in range(6)] == [0, 1, 2, 3, 4, None]
    again.close()


def test_after_a_crash_right_behind_a_roll_the_whole_window_is_known(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0", observer=Producers())
    for sequence in range(5):
        send(log, 7, sequence)
    log.roll(NOON_MS)
    send(log, 7, 5)
    copy = crash(log, tmp_path / "copy-0")
    abandon(log)
    again = open_log(copy, observer=(producers := Producers()), recovery_point=5)
    assert [producers.check(7, 0, sequence, sequence) for sequence in range(7)] == [0, 1, 2, 3, 4, 5, None]
    again.close()


DAY_MS = 86_400_000


@pytest.mark.parametrize("clean", [True, False])
def test_when_a_producer_appended_is_known_after_a_restart(tmp_path: Path, clean: bool) -> None:
    """What a snapshot holds says so. What is read from the log counts as appended when the log was opened."""
    log = open_log(tmp_path / "orders-0", observer=Producers())
    append(log, batch_of([b"v"], producer_id=7, producer_epoch=0, sequence=0, timestamps=[5]), now_ms=NOON_MS)
    log.roll(NOON_MS)
    later_ms = NOON_MS + DAY_MS
    append(log, batch_of([b"v"], producer_id=8, producer_epoch=0, sequence=0, timestamps=[5]), now_ms=later_ms)
    directory = log.directory
    if clean:
        log.close()
    else:
        directory = crash(log, tmp_path / "copy-0")
        abandon(log)
    opened_ms = later_ms + DAY_MS
    again = open_log(directory, observer=(producers := Producers()), clean=clean, recovery_point=1, now_ms=opened_ms)
    appended = {producer_id: entry.appended_ms for producer_id, entry in producers.entries.items()}
    assert appended == ({7: NOON_MS, 8: later_ms} if clean else {7: opened_ms, 8: opened_ms})
    producers.expire(before_ms=later_ms)
    assert set(producers.entries) == ({8} if clean else {7, 8})
    again.close()


def test_what_a_cut_brings_back_did_not_expire_meanwhile(tmp_path: Path) -> None:
    """A cut reads the log again. What it finds was appended long after the log was opened."""
    log = open_log(tmp_path / "orders-0", observer=(producers := Producers()))
    for sequence in range(3):
        append(
            log,
            batch_of([b"v"], producer_id=7, producer_epoch=0, sequence=sequence, timestamps=[5]),
            now_ms=NOON_MS + DAY_MS + sequence,
        )
    truncate_to(log, 1)
    producers.expire(before_ms=NOON_MS + DAY_MS)
    assert producers.check(7, 0, 0, 0) == 0
    log.close()

"""What a clean stop notes of all logs in one place instead of in files of each, and when the next start believes it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.log.engine import NOON_MS, append, batch_of
from tests.unit.log.test_log_directory import ORDERS, a_directory
from tests.unit.log.test_producer_snapshots import newest, send, snapshots

from strandline.config.topic_config import TopicConfig
from strandline.log import checkpoints
from strandline.log.log_directory import LogDirectory
from strandline.log.partition_log import PartitionLog
from strandline.log.segment.segment_counts import count_marker
from strandline.partition.producers import Producers


def open_orders(directory: LogDirectory) -> tuple[PartitionLog, Producers]:
    producers = Producers()
    return directory.open_log(ORDERS, TopicConfig(), now_ms=NOON_MS, observer=producers), producers


def stop(directory: LogDirectory, log: PartitionLog) -> None:
    """As a node stops."""
    log.write_out(keeps_notes=True)
    log.close()
    directory.write_checkpoints({ORDERS: (log, log.log_end_offset)})
    directory.close(clean=True)


def plain(log: PartitionLog) -> None:
    append(log, batch_of([b"v"] * 3))


def note(path: Path, file_name: str, offset: int) -> None:
    (path / file_name).write_bytes(checkpoints.format_offsets({ORDERS: offset}))


def test_a_log_with_nothing_to_say_gets_no_files(tmp_path: Path) -> None:
    directory = a_directory(tmp_path)
    log, _ = open_orders(directory)
    for _ in range(5):
        plain(log)
    stop(directory, log)
    assert sorted(path.suffix for path in log.directory.iterdir() if path.suffix) == [".index", ".log", ".timeindex"]
    again = a_directory(tmp_path)
    opened, producers = open_orders(again)
    assert (opened.log_end_offset, opened.learnt_from) == (15, 15), "no batch is read for producers"
    assert producers.is_blank
    assert opened.active.counts is not None
    assert opened.active.counts.is_plain
    # And it grows from there: what is not plain is counted from the first batch on.
    send(opened, 7, 0)
    stop(again, opened)
    last = a_directory(tmp_path)
    opened, producers = open_orders(last)
    assert newest(producers) == {7: (0, 15)}
    stop(last, opened)


def test_producers_get_their_snapshot_and_nothing_else(tmp_path: Path) -> None:
    directory = a_directory(tmp_path)
    log, _ = open_orders(directory)
    send(log, 7, 0)
    stop(directory, log)
    assert snapshots(log.directory) == [1]
    assert not list(log.directory.glob("*.counts"))
    again = a_directory(tmp_path)
    opened, producers = open_orders(again)
    assert (newest(producers), opened.learnt_from) == ({7: (0, 0)}, 1)
    assert opened.active.counts is not None
    stop(again, opened)


def test_a_marker_gets_its_count(tmp_path: Path) -> None:
    directory = a_directory(tmp_path)
    log, _ = open_orders(directory)
    plain(log)
    size = len(batch := batch_of([b"as long as a marker"]))
    append(log, batch)
    count_marker(log.active, 3, size)
    stop(directory, log)
    assert list(log.directory.glob("*.counts"))
    again = a_directory(tmp_path)
    opened, _ = open_orders(again)
    assert opened.active.counts is not None
    assert opened.active.counts.total(4) == 3
    stop(again, opened)


@pytest.mark.parametrize("offset", [0, 5, 7, 100])
def test_a_note_of_another_end_is_not_believed(tmp_path: Path, offset: int) -> None:
    directory = a_directory(tmp_path)
    log, _ = open_orders(directory)
    for sequence in range(6):
        send(log, 7, sequence)
    stop(directory, log)
    (log.directory / f"{6:020}.snapshot").unlink()
    note(tmp_path, checkpoints.NO_PRODUCER_OFFSETS, offset)
    note(tmp_path, checkpoints.PLAIN_END_OFFSETS, offset)
    again = a_directory(tmp_path)
    opened, producers = open_orders(again)
    assert newest(producers) == {7: (5, 5)}
    assert opened.active.counts is None, "to be counted when somebody asks"
    stop(again, opened)


def test_what_another_version_wrote_since_is_believed_first(tmp_path: Path) -> None:
    """Kafka, or an older version, stopped cleanly at the same end, and knows nothing of the note."""
    directory = a_directory(tmp_path)
    log, _ = open_orders(directory)
    send(log, 7, 0)
    stop(directory, log)
    note(tmp_path, checkpoints.NO_PRODUCER_OFFSETS, 1)
    again = a_directory(tmp_path)
    opened, producers = open_orders(again)
    assert newest(producers) == {7: (0, 0)}
    stop(again, opened)


def test_a_snapshot_that_the_power_cut_took_is_not_taken_for_no_producers(tmp_path: Path) -> None:
    directory = a_directory(tmp_path)
    log, _ = open_orders(directory)
    send(log, 7, 0)
    stop(directory, log)
    (log.directory / f"{1:020}.snapshot").unlink()
    again = a_directory(tmp_path)
    opened, producers = open_orders(again)
    assert newest(producers) == {7: (0, 0)}
    stop(again, opened)


def test_after_a_crash_nothing_is_believed(tmp_path: Path) -> None:
    directory = a_directory(tmp_path)
    log, _ = open_orders(directory)
    send(log, 7, 0)
    stop(directory, log)
    note(tmp_path, checkpoints.NO_PRODUCER_OFFSETS, 1)
    (log.directory / f"{1:020}.snapshot").unlink()
    (tmp_path / checkpoints.CLEAN_SHUTDOWN).unlink()
    again = a_directory(tmp_path)
    opened, producers = open_orders(again)
    assert newest(producers) == {7: (0, 0)}
    stop(again, opened)


def test_notes_outlive_a_process_that_did_not_open_the_log(tmp_path: Path) -> None:
    directory = a_directory(tmp_path)
    log, _ = open_orders(directory)
    plain(log)
    stop(directory, log)
    idle = a_directory(tmp_path)
    idle.write_checkpoints({})
    idle.close(clean=True)
    again = a_directory(tmp_path)
    opened, _ = open_orders(again)
    assert opened.learnt_from == 3
    assert opened.active.counts is not None
    stop(again, opened)


def test_a_damaged_end_can_be_left_behind(tmp_path: Path) -> None:
    """Where the log ended stands in two places apart from it, as it does with a snapshot."""
    directory = a_directory(tmp_path)
    log, _ = open_orders(directory)
    for _ in range(4):
        plain(log)
    stop(directory, log)
    path = log.active.path
    spoilt = bytearray(path.read_bytes())
    spoilt[-3] ^= 1
    path.write_bytes(spoilt)
    again = a_directory(tmp_path)
    opened, _ = open_orders(again)
    assert (opened.log_end_offset, opened.active.base_offset) == (12, 12)
    stop(again, opened)


@pytest.mark.parametrize("file_name", [checkpoints.NO_PRODUCER_OFFSETS, checkpoints.PLAIN_END_OFFSETS])
def test_a_file_of_notes_that_is_none(tmp_path: Path, file_name: str) -> None:
    directory = a_directory(tmp_path)
    log, _ = open_orders(directory)
    plain(log)
    stop(directory, log)
    (tmp_path / file_name).write_bytes(b"neither\n")
    again = a_directory(tmp_path)
    assert again.was_clean, "it only costs time"
    opened, producers = open_orders(again)
    assert producers.is_blank
    stop(again, opened)

"""A data directory: its lock, its checkpoints in Kafka's words, and how a crash is told from a clean stop."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.log.engine import NOON_MS, UnsyncedDisk, abandon, fill, offsets_in
from tests.unit.log.faulty_disk import FaultyDisk

from strandline.config.topic_config import TopicConfig
from strandline.errors import CorruptLog
from strandline.ids import TopicPartition
from strandline.log import checkpoints
from strandline.log.disk import Disk
from strandline.log.log_directory import LogDirectory
from strandline.log.partition_log import PartitionLog
from strandline.log.trimming import trim_now
from strandline.log.truncation import begin_truncation, cancel_truncation, restart_at, truncate_to

ORDERS = TopicPartition("orders", 0)
SMALL = TopicConfig(segment_bytes=500)


def a_directory(path: Path, disk: Disk | None = None) -> LogDirectory:
    return LogDirectory(path, disk=disk or UnsyncedDisk(), open_files_max=100)


def open_orders(directory: LogDirectory, name: TopicPartition = ORDERS) -> PartitionLog:
    return directory.open_log(name, SMALL, now_ms=NOON_MS)


OFFSETS = st.dictionaries(
    st.builds(
        TopicPartition,
        st.text(alphabet="abcXYZ019._-", min_size=1, max_size=20),
        st.integers(min_value=0, max_value=2**31 - 1),
    ),
    st.integers(min_value=0, max_value=2**63 - 1),
    max_size=20,
)


@settings(max_examples=60, deadline=None, print_blob=True)
@given(OFFSETS)
def test_a_checkpoint_both_ways(offsets: dict[TopicPartition, int]) -> None:
    assert checkpoints.parse_offsets(checkpoints.format_offsets(offsets)) == offsets


def test_a_checkpoint_is_kafkas_text() -> None:
    text = b"0\n2\norders 0 17\n__consumer_offsets 49 5\n"
    offsets = {TopicPartition("orders", 0): 17, TopicPartition("__consumer_offsets", 49): 5}
    assert checkpoints.parse_offsets(text) == offsets
    assert checkpoints.format_offsets(offsets) == text


@pytest.mark.parametrize(
    "text",
    [b"", b"1\n0\n", b"0\n", b"0\n2\norders 0 17\n", b"0\n1\norders 0\n", b"0\n1\norders zero 17\n", b"\xff\xfe"],
)
def test_a_checkpoint_that_is_none(text: bytes) -> None:
    with pytest.raises(CorruptLog):
        checkpoints.parse_offsets(text)


def test_only_one_process_owns_a_directory(tmp_path: Path) -> None:
    """`lockf` belongs to a process, so the second owner must be one."""
    directory = a_directory(tmp_path)
    program = (
        "import sys; from pathlib import Path; from strandline.log.disk import RealDisk\n"
        "from strandline.errors import DirectoryLocked\n"
        "try: RealDisk().lock(Path(sys.argv[1]))\n"
        "except DirectoryLocked as error: sys.exit(str(error))\n"
    )
    taken = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False)
    assert taken.returncode == 1
    assert "is in use" in taken.stderr
    directory.close(clean=True)
    free = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False)
    assert (free.returncode, free.stderr) == (0, "")


def test_a_clean_stop_is_believed_once(tmp_path: Path) -> None:
    directory = a_directory(tmp_path)
    assert not directory.was_clean
    log = open_orders(directory)
    fill(log, 10)
    log.close()
    directory.write_checkpoints({ORDERS: (log, 10)})
    directory.close(clean=True)
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    again = a_directory(tmp_path)
    assert again.was_clean
    assert not (tmp_path / ".kafka_cleanshutdown").exists(), "a crash from here on must be seen as one"
    opened = open_orders(again)
    assert opened.flushed_offset == 10
    abandon(opened)
    again.close(clean=False)
    crashed = a_directory(tmp_path)
    assert not crashed.was_clean
    crashed.close(clean=False)


def test_after_a_crash_recovery_begins_at_the_checkpoint(tmp_path: Path) -> None:
    disk = FaultyDisk()
    directory = a_directory(tmp_path, disk)
    log = open_orders(directory)
    while len(log.segments) < 6:
        fill(log, 1)
    log.flush_now()
    directory.write_checkpoints({ORDERS: (log, log.log_end_offset)})
    fill(log, 4)
    end = log.log_end_offset
    abandon(log)
    directory.close(clean=False)
    # Whatever lies below the checkpoint's segment is not read again: spoiling it does not show.
    first = log.segments[0].path
    spoilt = bytearray(first.read_bytes())
    spoilt[100] ^= 1
    first.write_bytes(spoilt)
    again = a_directory(tmp_path)
    opened = open_orders(again)
    assert opened.log_end_offset == end
    opened.close()
    again.close(clean=False)
    # Without the checkpoint everything is read, and the damage found.
    (tmp_path / checkpoints.RECOVERY_POINTS).unlink()
    unknown = a_directory(tmp_path)
    with pytest.raises(CorruptLog):
        open_orders(unknown)
    unknown.close(clean=False)


def test_a_checkpoint_that_cannot_be_read_costs_time_only(tmp_path: Path) -> None:
    directory = a_directory(tmp_path)
    log = open_orders(directory)
    fill(log, 10)
    log.close()
    directory.write_checkpoints({ORDERS: (log, 10)})
    directory.close(clean=True)
    (tmp_path / checkpoints.RECOVERY_POINTS).write_bytes(b"0\n7\nor")
    again = a_directory(tmp_path)
    assert again.recovery_points == {}
    assert not again.was_clean
    opened = open_orders(again)
    assert offsets_in(opened) == list(range(10))
    opened.close()
    again.close(clean=True)


def test_checkpoints_say_what_each_log_is(tmp_path: Path) -> None:
    directory = a_directory(tmp_path)
    log = open_orders(directory)
    other = open_orders(directory, TopicPartition("payments", 3))
    fill(log, 20)
    fill(other, 2)
    log.flush_now()
    trim_now(log, 1)
    directory.write_checkpoints({ORDERS: (log, 15), TopicPartition("payments", 3): (other, 2)})
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n2\norders 0 20\npayments 3 0\n"
    assert (tmp_path / "replication-offset-checkpoint").read_text() == "0\n2\norders 0 15\npayments 3 2\n"
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n1\norders 0 1\n", "where it is not 0"
    trim_now(log, log.base_offsets[1])
    directory.write_checkpoints({ORDERS: (log, 20), TopicPartition("payments", 3): (other, 2)})
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n1\norders 0 5\n", "where a segment begins too"
    log.close()
    other.close()
    directory.close(clean=True)


def test_where_the_cleaner_has_come_is_lowered_before_a_log_is_cut_and_not_else(tmp_path: Path) -> None:
    """Kafka's recovery point may be below it. A log that is cut has something else there afterwards."""
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 15\n")
    directory = a_directory(tmp_path)
    log = open_orders(directory)
    fill(log, 20)
    assert directory.cleaner_offsets == {ORDERS: 15}
    directory.write_checkpoints({ORDERS: (log, 20)})
    assert (tmp_path / "cleaner-offset-checkpoint").read_text() == "0\n1\norders 0 15\n"
    log.flush_now()
    begin_truncation(log, 7)
    directory.write_checkpoints({ORDERS: (log, 20)})
    (line,) = (tmp_path / "cleaner-offset-checkpoint").read_text().splitlines()[2:]
    assert int(line.split()[-1]) <= 7
    truncate_to(log, 7)
    log.close()
    directory.close(clean=True)


def test_unchanged_checkpoints_are_not_written_again(tmp_path: Path) -> None:
    disk = FaultyDisk()
    directory = a_directory(tmp_path, disk)
    log = open_orders(directory)
    directory.write_checkpoints({ORDERS: (log, 0)})
    before = disk.calls["write_whole"]
    directory.write_checkpoints({ORDERS: (log, 0)})
    assert disk.calls["write_whole"] == before
    log.close()
    directory.close(clean=True)


def test_a_topic_made_anew_does_not_inherit_the_offsets_of_its_namesake(tmp_path: Path) -> None:
    """Otherwise, after a crash, a torn tail of the new log would be called damage and its records hidden."""
    directory = a_directory(tmp_path)
    log = open_orders(directory)
    fill(log, 50)
    log.flush_now()
    trim_now(log, 41)
    directory.write_checkpoints({ORDERS: (log, 50)})
    log.delete(directory.delete_path(ORDERS))
    directory.remove_deleted()
    log = open_orders(directory)
    fill(log, 5)
    assert (log.log_start_offset, log.flushed_offset) == (0, 0)
    log.active.file().truncate(log.active.size_bytes - 1)
    abandon(log)
    directory.close(clean=False)
    again = a_directory(tmp_path)
    opened = open_orders(again)
    assert offsets_in(opened) == [0, 1, 2, 3]
    opened.close()
    again.close(clean=True)


def namesake_deleted(directory: LogDirectory, wanted: frozenset[str]) -> None:
    """Make a log whose records are committed, write some of its checkpoints, and delete it."""
    log = open_orders(directory)
    fill(log, 50)
    directory.save(directory.changed_checkpoints({ORDERS: (log, 50)}, wanted=wanted))
    log.delete(directory.delete_path(ORDERS))
    directory.remove_deleted()


def checkpoints_known(path: Path) -> list[str]:
    """Name the checkpoints that know the log after a crash."""
    return [each.name for each in path.glob("*-checkpoint") if "orders 0" in each.read_text()]


@pytest.mark.parametrize("name", sorted(checkpoints.ALL - {checkpoints.LOG_START_OFFSETS}))
def test_a_topic_made_anew_is_known_by_no_checkpoint_of_its_namesake(tmp_path: Path, name: str) -> None:
    """A high watermark of the old topic would show records of the new one that were never committed."""
    directory = a_directory(tmp_path)
    namesake_deleted(directory, frozenset({name}))
    assert checkpoints_known(tmp_path) == [name]
    abandon(open_orders(directory))
    assert not checkpoints_known(tmp_path)


def test_a_topic_made_anew_on_a_full_disk_does_not_inherit_offsets_either(tmp_path: Path) -> None:
    disk = FaultyDisk()
    directory = a_directory(tmp_path, disk)
    namesake_deleted(directory, checkpoints.ALL)
    disk.fail("write_whole", errno.ENOSPC, after=1, times=1)
    with pytest.raises(OSError, match="space"):
        open_orders(directory)
    directory.note_unopened(ORDERS)
    abandon(open_orders(directory))
    assert not checkpoints_known(tmp_path)


def test_which_directories_are_partitions(tmp_path: Path) -> None:
    directory = a_directory(tmp_path)
    for name in (
        "orders-0",
        "a-b-12",
        "x.y_z-3",
        "orders-0.0123456789abcdef-delete",
        "orders-1.99-stray",
        "orders",
        "-1",
    ):
        (tmp_path / name).mkdir()
    (tmp_path / "file-7").write_text("not a directory")
    assert directory.partition_directories() == [
        TopicPartition("a-b", 12),
        TopicPartition("orders", 0),
        TopicPartition("x.y_z", 3),
    ]
    directory.remove_deleted()
    assert not list(tmp_path.glob("*-delete"))
    assert len(list(tmp_path.glob("*-stray"))) == 1, "what belongs to nobody is kept for a person"
    directory.close(clean=True)


def test_the_longest_topic_name_can_be_deleted_and_put_aside(tmp_path: Path) -> None:
    directory = a_directory(tmp_path)
    name = TopicPartition("n" * 249, 1023)
    log = open_orders(directory, name)
    log.delete(directory.delete_path(name))
    (tmp_path / str(name)).mkdir()
    assert directory.put_aside(name).is_dir()
    directory.remove_deleted()
    directory.close(clean=True)


def test_partition_metadata_is_kafkas_text_and_flushed_before_any_record(tmp_path: Path) -> None:
    disk = FaultyDisk()
    directory = a_directory(tmp_path, disk)
    log = open_orders(directory)
    assert directory.topic_id_of(ORDERS) is None
    directory.write_topic_id(log, "qKDTUexlR-CB4YyJNLrBRQ")
    assert (log.directory / "partition.metadata").read_text() == "version: 0\ntopic_id: qKDTUexlR-CB4YyJNLrBRQ\n"
    assert directory.topic_id_of(ORDERS) == "qKDTUexlR-CB4YyJNLrBRQ"
    fill(log, 1)
    fault = disk.fail("datasync", errno.EIO, suffix="partition.metadata", times=0)
    job = log.begin_flush()
    assert job is not None
    fault.repaired = False
    fault.times = 1
    with pytest.raises(OSError, match=r"partition\.metadata"):
        job.run()
    log.end_flush(job, None)
    log.close()
    directory.close(clean=True)


def test_a_topic_trimmed_and_deleted_before_any_other_checkpoint_leaves_no_start_to_its_namesake(
    tmp_path: Path,
) -> None:
    directory = a_directory(tmp_path)
    log = open_orders(directory)
    fill(log, 50)
    trim_now(log, 41)
    directory.save(directory.changed_start_offsets({ORDERS: log}))
    log.delete(directory.delete_path(ORDERS))
    log = open_orders(directory)
    fill(log, 5)
    assert log.log_start_offset == 0
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n0\n"
    abandon(log)
    directory.close(clean=False)


def test_a_thread_that_comes_late_does_not_write_what_is_older(tmp_path: Path) -> None:
    directory = a_directory(tmp_path)
    log = open_orders(directory)
    fill(log, 50)
    trim_now(log, 10)
    older = directory.changed_start_offsets({ORDERS: log})
    trim_now(log, 20)
    newer = directory.changed_start_offsets({ORDERS: log})
    directory.save(newer)
    directory.save(older)
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n1\norders 0 20\n"
    log.close()
    directory.close(clean=True)


def test_segments_below_the_start_that_a_crash_left_go_away_at_the_next_start(tmp_path: Path) -> None:
    directory = a_directory(tmp_path)
    log = open_orders(directory)
    fill(log, 50)
    log.flush_now()
    assert len(log.cut_front(41)) > 1, "and then nobody deletes them"
    directory.save(directory.changed_start_offsets({ORDERS: log}))
    abandon(log)
    directory.close(clean=False)
    again = a_directory(tmp_path)
    log = open_orders(again)
    assert (log.log_start_offset, log.log_end_offset) == (41, 50)
    assert sorted(path.name for path in log.directory.glob("*.log")) == [
        f"{base:020d}.log" for base in log.base_offsets
    ]
    assert log.base_offsets[1] > 41 if len(log.base_offsets) > 1 else True
    log.close()
    again.close(clean=True)


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_node_that_never_opened_its_logs_forgets_nothing_of_them(tmp_path: Path, is_clean: bool) -> None:
    """A node that waits for its cluster writes checkpoints meanwhile, and may be stopped before it opens any log."""
    directory = a_directory(tmp_path)
    log = open_orders(directory)
    fill(log, 10)
    log.flush_now()
    trim_now(log, 4)
    directory.write_checkpoints({ORDERS: (log, 8)})
    abandon(log)
    directory.close(clean=False)
    waiting = a_directory(tmp_path)
    waiting.write_checkpoints({})
    waiting.close(clean=is_clean)
    after = a_directory(tmp_path)
    assert (after.recovery_points, after.high_watermarks) == ({ORDERS: 10}, {ORDERS: 8})
    assert open_orders(after).log_start_offset == 4


@pytest.mark.parametrize("was_clean", [True, False])
def test_a_stop_before_the_logs_were_opened_is_as_clean_as_the_one_before(tmp_path: Path, was_clean: bool) -> None:
    directory = a_directory(tmp_path)
    log = open_orders(directory)
    fill(log, 10)
    directory.write_checkpoints({ORDERS: (log, 10)})
    if was_clean:
        log.close()
    else:
        abandon(log)
    directory.close(clean=was_clean)
    waiting = a_directory(tmp_path)
    waiting.write_checkpoints({})
    waiting.close(clean=True)
    assert a_directory(tmp_path).was_clean == was_clean


def test_where_tombstones_were_removed_is_known_after_a_crash(tmp_path: Path) -> None:
    directory = a_directory(tmp_path)
    log = open_orders(directory)
    fill(log, 20)
    log.flush_now()
    log.tombstone_horizon = 12
    directory.save(directory.raised_tombstone_horizon(ORDERS, 12))
    begin_truncation(log, 20, tombstone_horizon=15)
    directory.write_checkpoints({ORDERS: (log, 20)})
    assert (tmp_path / "tombstone-horizon-checkpoint").read_text() == "0\n1\norders 0 15\n", "before it counts"
    cancel_truncation(log)
    directory.write_checkpoints({ORDERS: (log, 20)})
    directory.close(clean=False)
    again = a_directory(tmp_path)
    log = open_orders(again)
    assert log.tombstone_horizon == 12
    truncate_to(log, 7)
    assert log.tombstone_horizon == 7
    begin_truncation(log, 0, tombstone_horizon=9)
    restart_at(log, 3, NOON_MS)
    again.write_checkpoints({ORDERS: (log, 3)})
    assert log.tombstone_horizon == 9
    assert (tmp_path / "tombstone-horizon-checkpoint").read_text() == "0\n1\norders 0 9\n"
    log.close()
    again.close(clean=True)


@pytest.mark.parametrize("text", [None, "torn"])
def test_without_a_word_on_it_any_tombstone_that_was_cleaned_may_be_gone(tmp_path: Path, text: str | None) -> None:
    """Kafka wrote the directory, or an older version, or the file cannot be read."""
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 15\n")
    if text is not None:
        (tmp_path / "tombstone-horizon-checkpoint").write_text(text)
    directory = a_directory(tmp_path)
    assert directory.tombstone_horizons == {ORDERS: 15}
    directory.save(directory.changed_cleaner_offsets())
    directory.cleaner_offsets[ORDERS] = 20
    directory.save(directory.changed_cleaner_offsets())
    directory.close(clean=False)
    again = a_directory(tmp_path)
    assert again.tombstone_horizons == {ORDERS: 15}, "what is cleaned from now on is noted where it happens"
    again.close(clean=False)

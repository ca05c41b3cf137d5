"""One log on a disk that loses power at any moment: what was flushed is there, and what is there was written."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.simulator.world.disk import CAPACITY_BYTES, SimDisk, SimFile

from strandline.codec.columns import Record, decode_batch, encode_batch
from strandline.codec.record_batch import HEADER_SIZE, parse_header
from strandline.config.topic_config import TopicConfig
from strandline.errors import CorruptLog, DiskFailed
from strandline.ids import TopicPartition
from strandline.log.log_directory import LogDirectory
from strandline.log.partition_log import PartitionLog
from strandline.log.truncation import begin_truncation, truncate_to

DATA = Path("data")
NAME = TopicPartition("orders", 0)


def epochs_known(log: PartitionLog) -> list[tuple[int, int]]:
    return list(zip(log.leader_epochs.epochs, log.leader_epochs.start_offsets, strict=True))


def epochs_written(log: PartitionLog) -> list[tuple[int, int]]:
    """Each epoch with its first offset, as the batches say."""
    first: dict[int, int] = {}
    for batch in log.batches():
        header = parse_header(batch)
        first.setdefault(header.leader_epoch, header.base_offset)
    return list(first.items())


def _append(log: PartitionLog, *values: bytes, leader_epoch: int = 0) -> None:
    for value in values:
        batch = bytearray(encode_batch([Record(value=value)]))
        log.append(batch, parse_header(batch), leader_epoch=leader_epoch, now_ms=0)


def _values_after_a_start(disk: SimDisk) -> list[bytes | None]:
    log = LogDirectory(DATA, disk=disk, open_files_max=8).open_log(NAME, TopicConfig(), now_ms=0)
    return [record.value for batch in log.batches() for record in decode_batch(batch)]


@pytest.mark.parametrize("seed", range(300))
def test_flushed_records_survive_any_chain_of_kills_and_power_cuts(seed: int) -> None:
    rng = random.Random(seed)
    disk = SimDisk(rng)
    disk.make_directory(DATA)
    disk.sync_all()
    written: list[bytes] = []
    flushed = 0
    now_ms = epoch = 0
    for _ in range(8):
        directory = LogDirectory(DATA, disk=disk, open_files_max=8)
        log = directory.open_log(NAME, TopicConfig(segment_ms=50), now_ms=now_ms)
        found = [record.value for batch in log.batches() for record in decode_batch(batch)]
        assert found == written[: len(found)], "the log is not what was written"
        assert len(found) >= flushed, "flushed records are gone"
        assert epochs_known(log) == epochs_written(log), "the epochs are not those of the batches"
        written = found
        for _ in range(rng.randint(0, 6)):
            now_ms += rng.randint(0, 30)
            values = [b"%d" % rng.getrandbits(40) for _ in range(rng.randint(1, 4))]
            batch = bytearray(encode_batch([Record(timestamp_ms=now_ms, value=value) for value in values]))
            if rng.random() < 0.2:
                # The disk is full for a moment, and takes a part of the batch; that is cut, and things go on.
                disk.used_bytes, disk.capacity_bytes = 0, rng.randrange(80)
            try:
                log.append(batch, parse_header(batch), leader_epoch=epoch, now_ms=now_ms)
            except DiskFailed:
                continue
            finally:
                disk.capacity_bytes = CAPACITY_BYTES
            epoch += rng.random() < 0.3
            written += values
            if rng.random() < 0.5:
                log.flush_now()
                flushed = len(written)
            if rng.random() < 0.2:
                directory.write_checkpoints({NAME: (log, log.log_end_offset)})
        if rng.random() < 0.5:
            disk.process_died()
        else:
            disk.power_cut()


def test_names_that_a_killed_process_left_unsynced_are_synced_by_the_next() -> None:
    """A directory made just before a kill -9; the next process flushes records into it; the power goes."""
    for seed in range(40):
        disk = SimDisk(random.Random(seed))
        disk.make_directory(DATA)
        disk.sync_all()
        LogDirectory(DATA, disk=disk, open_files_max=8).open_log(NAME, TopicConfig(), now_ms=0)
        disk.process_died()
        log = LogDirectory(DATA, disk=disk, open_files_max=8).open_log(NAME, TopicConfig(), now_ms=0)
        _append(log, b"acknowledged")
        log.flush_now()
        disk.power_cut()
        after = LogDirectory(DATA, disk=disk, open_files_max=8).open_log(NAME, TopicConfig(), now_ms=0)
        assert after.log_end_offset == 1


def test_the_part_of_a_batch_that_a_full_disk_took_does_not_come_back_before_flushed_records() -> None:
    """It was cut, the log went on in a new segment, that was flushed, and the power took the cut back."""
    for seed in range(60):
        disk = SimDisk(random.Random(seed))
        disk.make_directory(DATA)
        disk.sync_all()
        log = LogDirectory(DATA, disk=disk, open_files_max=8).open_log(NAME, TopicConfig(), now_ms=0)
        for value in (b"first", b"refused", b"second"):
            batch = bytearray(encode_batch([Record(value=value)]))
            if value == b"refused":
                disk.used_bytes, disk.capacity_bytes = 0, 40
                with pytest.raises(DiskFailed):
                    log.append(batch, parse_header(batch), leader_epoch=0, now_ms=0)
                disk.capacity_bytes = CAPACITY_BYTES
                log.roll(0)
            else:
                log.append(batch, parse_header(batch), leader_epoch=0, now_ms=0)
                log.flush_now()
        disk.power_cut()
        after = LogDirectory(DATA, disk=disk, open_files_max=8).open_log(NAME, TopicConfig(), now_ms=0)
        assert after.log_end_offset == 2


def test_what_was_cut_does_not_come_back_in_front_of_a_new_segment() -> None:
    """A follower is cut, goes on, rolls, and the power takes back that its file was cut, but not the new segment."""
    came_back = 0
    for seed in range(60):
        disk = SimDisk(random.Random(seed))
        disk.make_directory(DATA)
        disk.sync_all()
        directory = LogDirectory(DATA, disk=disk, open_files_max=8)
        log = directory.open_log(NAME, TopicConfig(), now_ms=0)
        _append(log, b"kept", b"cut", b"cut")
        log.flush_now()
        directory.write_checkpoints({NAME: (log, 1)})
        begin_truncation(log, 1)
        directory.lower_recovery_point(NAME, 1)
        truncate_to(log, 1)
        log.roll(0)
        _append(log, b"new", b"newer", leader_epoch=1)
        disk.power_cut()
        values = _values_after_a_start(disk)
        assert values == [b"kept", b"new", b"newer"][: len(values)]
        came_back += len(values) > 1
    assert came_back, "now and then the new segment is there"


def test_a_cut_is_on_disk_when_it_is_made() -> None:
    for seed in range(20):
        disk, log = _a_log_that_is_cut(seed)
        truncate_to(log, 1)
        disk.power_cut()
        assert _values_after_a_start(disk) == [b"kept"]


def test_a_cut_that_a_kill_left_unsynced_is_synced_before_the_next_roll(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the power may bring back what was cut, and with it a segment that begins in the middle of it."""

    class Killed(Exception):
        pass

    def killed(_: SimFile) -> None:
        raise Killed

    for seed in range(40):
        disk, log = _a_log_that_is_cut(seed)
        with monkeypatch.context() as patched:
            patched.setattr(SimFile, "datasync", killed)
            with pytest.raises(Killed):
                truncate_to(log, 1)
        disk.process_died()
        log = LogDirectory(DATA, disk=disk, open_files_max=8).open_log(NAME, TopicConfig(), now_ms=0)
        log.roll(0)
        disk.power_cut()
        assert _values_after_a_start(disk) == [b"kept"]


def _a_log_that_is_cut(seed: int) -> tuple[SimDisk, PartitionLog]:
    """It holds `kept` and, flushed as well, what is about to be cut."""
    disk = SimDisk(random.Random(seed))
    disk.make_directory(DATA)
    disk.sync_all()
    directory = LogDirectory(DATA, disk=disk, open_files_max=8)
    log = directory.open_log(NAME, TopicConfig(), now_ms=0)
    _append(log, b"kept", b"cut", b"cut")
    log.flush_now()
    directory.lower_recovery_point(NAME, 1)
    return disk, log


def test_epochs_that_are_learnt_anew_are_all_written_or_none() -> None:
    """Recovery reads the last segments first, and the whole log only because the file of epochs is lost."""
    for seed in range(40):
        disk = SimDisk(random.Random(seed))
        disk.make_directory(DATA)
        directory = LogDirectory(DATA, disk=disk, open_files_max=8)
        log = directory.open_log(NAME, TopicConfig(), now_ms=0)
        for epoch in (1, 1, 2):
            _append(log, b"v", leader_epoch=epoch)
            log.roll(0)
        log.flush_now()
        directory.write_checkpoints({NAME: (log, 3)})
        disk.remove(DATA / "orders-0" / "leader-epoch-checkpoint")
        disk.sync_all()
        disk.process_died()
        for _ in range(3):
            found = LogDirectory(DATA, disk=disk, open_files_max=8).open_log(NAME, TopicConfig(), now_ms=0)
            assert epochs_known(found) == [(1, 0), (2, 2)]
            disk.power_cut()


def test_a_segment_that_recovery_dropped_stays_dropped() -> None:
    """It stood behind a torn one. Once that is cut, recovery cannot see that the two do not belong together."""
    for seed in range(40):
        disk = SimDisk(random.Random(seed))
        disk.make_directory(DATA)
        log = LogDirectory(DATA, disk=disk, open_files_max=8).open_log(NAME, TopicConfig(), now_ms=0)
        _append(log, b"kept")
        torn = log.active.path
        log.roll(0)
        _append(log, b"dropped")
        disk.open(torn).write_at(disk.size(torn), b"a part of a batch")
        disk.sync_all()
        disk.process_died()
        for _ in range(3):
            assert _values_after_a_start(disk) == [b"kept"]
            disk.power_cut()


def test_a_log_that_is_closed_while_a_flush_hangs_is_flushed_all_the_same() -> None:
    for seed in range(20):
        disk = SimDisk(random.Random(seed))
        disk.make_directory(DATA)
        disk.sync_all()
        directory = LogDirectory(DATA, disk=disk, open_files_max=8)
        log = directory.open_log(NAME, TopicConfig(), now_ms=0)
        _append(log, b"written")
        # A thread has it, and the disk does not answer.
        assert log.begin_flush() is not None
        log.close()
        directory.write_checkpoints({NAME: (log, 1)})
        directory.close(clean=True)
        disk.power_cut()
        assert _values_after_a_start(disk) == [b"written"]


def test_a_cut_that_a_full_disk_stopped_half_way_leaves_no_recovery_point_above_it() -> None:
    disk = SimDisk(random.Random(1))
    disk.make_directory(DATA)
    disk.sync_all()
    directory = LogDirectory(DATA, disk=disk, open_files_max=8)
    log = directory.open_log(NAME, TopicConfig(index_interval_bytes=10), now_ms=0)
    for epoch in range(6):
        _append(log, b"%d" % epoch, leader_epoch=epoch)
    log.flush_now()
    directory.write_checkpoints({NAME: (log, 3)})
    directory.lower_recovery_point(NAME, 3)
    disk.used_bytes, disk.capacity_bytes = 0, 0
    with pytest.raises(DiskFailed, match="No space"):
        truncate_to(log, 3)
    disk.capacity_bytes = CAPACITY_BYTES
    directory.write_checkpoints({NAME: (log, 3)})
    disk.process_died()
    after = LogDirectory(DATA, disk=disk, open_files_max=8).open_log(
        NAME, TopicConfig(index_interval_bytes=10), now_ms=0
    )
    assert after.log_end_offset >= 3


@pytest.mark.parametrize("seed", range(300))
def test_a_log_that_was_cut_and_written_anew_is_one_of_the_two(seed: int) -> None:
    """What came after the cut was not flushed. What is found is what was there before or after, or a part of it, and
    the epochs are those of the records: by them a leader sees which of the two it is. Nothing is opened where the disk
    wrote later pages first: a hole with records behind it may be one in records that were flushed."""
    rng = random.Random(seed)
    disk = SimDisk(rng)
    disk.make_directory(DATA)
    disk.sync_all()
    directory = LogDirectory(DATA, disk=disk, open_files_max=8)
    log = directory.open_log(NAME, TopicConfig(), now_ms=0)

    def append(epoch: int, count: int) -> None:
        for _ in range(count):
            _append(log, b"%d" % rng.getrandbits(40), leader_epoch=epoch)

    append(1, 5)
    append(2, rng.randint(1, 6))
    log.flush_now()
    directory.write_checkpoints({NAME: (log, 5)})
    before = list(log.batches())
    cut = rng.randint(3, len(before) - 1)
    begin_truncation(log, cut)
    directory.lower_recovery_point(NAME, cut)
    truncate_to(log, cut)
    append(4, rng.randint(0, 6))
    after = list(log.batches())
    if rng.random() < 0.3:
        log.flush_now()
    reordered = rng.random() < 0.5
    disk.power_cut(reordered=reordered)
    try:
        found_log = LogDirectory(DATA, disk=disk, open_files_max=8).open_log(NAME, TopicConfig(), now_ms=0)
    except CorruptLog:
        left = disk.read_whole(log.active.path)
        assert reordered
        assert bytes(HEADER_SIZE) in left
        assert left.rstrip(b"\0")[left.index(bytes(HEADER_SIZE)) :], "nothing stands behind the hole"
        return
    found = list(found_log.batches())
    assert found in (before[: len(found)], after[: len(found)])
    assert len(found) >= cut, "nothing below the cut was touched"
    for offset, batch in enumerate(found):
        assert found_log.leader_epochs.epoch_of(offset) == parse_header(batch).leader_epoch

"""A disk that fails during a truncation, at every single call: the log is as it was, or as it should be, or offline."""

from __future__ import annotations

import errno
import shutil
import uuid
from pathlib import Path

import pytest
from tests.unit.log.engine import NOON_MS, abandon, batch_of, open_log, records_in
from tests.unit.log.faulty_disk import FaultyDisk
from tests.unit.log.manual_runtime import ManualRuntime
from tests.unit.partition.test_transactions import transactional

from strandline.config.topic_config import TopicConfig
from strandline.errors import DiskFailed
from strandline.log.flusher import Flusher
from strandline.log.leader_epochs import FILE_NAME, LeaderEpochs
from strandline.log.truncation import begin_truncation
from strandline.partition import following
from strandline.partition.following import make_follower
from strandline.partition.partition import Partition
from strandline.partition.producers import Producers
from strandline.partition.transaction_appends import append_marker, begin_verification

SETTINGS = {"flush_mode": "async", "segment_bytes": 1500, "index_interval_bytes": 100}
BATCHES = 36
CUTS = (7, 16, 30)
"""In the first segment, in the middle, and in the last, where no epoch is dropped."""


class Follower:
    """A log with several segments, epochs, producers, and transactions open, committed and aborted."""

    def __init__(self, directory: Path, *, clean: bool = True, recovery_point: int = 0) -> None:
        self.disk = FaultyDisk()
        producers = Producers()
        self.log = open_log(
            directory, disk=self.disk, observer=producers, clean=clean, recovery_point=recovery_point, **SETTINGS
        )
        self.partition = Partition(
            "orders",
            0,
            uuid.UUID(int=1),
            log=self.log,
            producers=producers,
            flusher=Flusher(ManualRuntime()),
            config=TopicConfig(**SETTINGS),
            leader_epoch=4,
            high_watermark=0,
        )

    def write(self) -> None:
        partition = self.partition
        for number in range(BATCHES):
            if number in (6, 14, 28):
                partition.leader_epoch += 1
            if number % 9 == 8:
                append_marker(
                    partition,
                    7,
                    0,
                    is_commit=number == 8,
                    coordinator_epoch=number,
                    transaction_version=1,
                    now_ms=NOON_MS,
                    on_committed=lambda error: None,
                )
            elif number % 3 == 0:
                sequence = self.next_sequence(7)
                guard = begin_verification(partition, 7, 0, sequence)
                partition.append(transactional(7, sequence), NOON_MS, guard=guard)
            else:
                sequence = self.next_sequence(8)
                batch = batch_of([b"%d" % number * 20], producer_id=8, producer_epoch=0, sequence=sequence)
                partition.append(memoryview(batch), NOON_MS)
        self.log.flush_now()

    def next_sequence(self, producer_id: int) -> int:
        entry = self.partition.producers.entries.get(producer_id)
        return 0 if entry is None else entry.last_sequence + 1

    def follow(self) -> None:
        make_follower(self.partition, 2, leader_epoch=9, partition_epoch=1)

    def cut(self, offset: int) -> None:
        begin_truncation(self.log, offset)
        following.truncate_to(self.partition, offset)

    def state(self) -> dict[str, object]:
        log, producers = self.log, self.partition.producers
        return {
            "records": [(record.offset, record.value) for record in records_in(log)],
            "end": log.log_end_offset,
            "epochs": (list(log.leader_epochs.epochs), list(log.leader_epochs.start_offsets)),
            "producers": {
                producer_id: (entry.epoch, entry.batches, entry.coordinator_epoch)
                for producer_id, entry in producers.entries.items()
            },
            "open": dict(producers.open_transactions),
            "unstable": producers.first_unstable_offset,
            "aborted": [segment.transaction_index.to_bytes() for segment in log.segments],
        }

    def saved_epochs(self) -> LeaderEpochs:
        return LeaderEpochs.parse((self.log.directory / FILE_NAME).read_text())


def epochs_below(epochs: LeaderEpochs, end_offset: int) -> tuple[list[int], list[int]]:
    count = sum(start < end_offset for start in epochs.start_offsets)
    return epochs.epochs[:count], epochs.start_offsets[:count]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("written") / "orders-0"
    follower = Follower(directory)
    follower.write()
    assert len(follower.log.segments) >= 3
    assert len(follower.log.leader_epochs.epochs) == 4
    follower.log.close()
    return directory


@pytest.mark.lengthy("a case for each place where it may fail")
@pytest.mark.parametrize("offset", CUTS)
@pytest.mark.parametrize("error_number", [errno.ENOSPC, errno.EIO], ids=errno.errorcode.get)
def test_wherever_the_disk_fails_nothing_is_left_half_cut(
    written: Path, tmp_path: Path, error_number: int, offset: int
) -> None:
    follower = Follower(shutil.copytree(written, tmp_path / "whole" / "orders-0"))
    follower.follow()
    before = follower.state()
    whole = follower.log.leader_epochs
    follower.cut(offset)
    after = follower.state()
    abandon(follower.log)
    outcomes = []
    for call in range(1000):
        directory = shutil.copytree(written, tmp_path / str(call) / "orders-0")
        follower = Follower(directory)
        follower.follow()
        fault = follower.disk.fail("*", error_number, after=call, times=1)
        try:
            follower.cut(offset)
        except DiskFailed:
            outcomes.append("offline" if follower.log.failure else "as it was")
        else:
            outcomes.append("cut")
        fault.repaired = True
        if follower.log.failure is None:
            state = follower.state()
            assert state == (after if outcomes[-1] == "cut" else before), call
            assert follower.saved_epochs().latest == follower.log.leader_epochs.latest, call
            assert follower.log.unsynced.segments or follower.log.unflushed == 0, "a request would wait for ever"
            follower.cut(offset)
            assert follower.state() == after, call
            assert follower.saved_epochs().latest == follower.log.leader_epochs.latest, call
        abandon(follower.log)
        # A crash at any of these points: what is found is of one piece, and is cut again.
        again = Follower(directory, clean=False, recovery_point=min(follower.log.flushed_offset, offset))
        again.follow()
        epochs = again.log.leader_epochs
        assert (epochs.epochs, epochs.start_offsets) == epochs_below(whole, again.log.log_end_offset), call
        if again.log.log_end_offset > offset:
            again.cut(offset)
        assert again.state() == after, call
        abandon(again.log)
        shutil.rmtree(directory)
        if not fault.hits:
            break
    assert outcomes[-1] == "cut"
    assert len(outcomes) > 10
    # The epochs are the only file that has to be written: it is the first, and worth a second try.
    assert ("as it was" in outcomes) == (before["epochs"] != after["epochs"])

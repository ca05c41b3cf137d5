"""Where an epoch began, in a log out of which the cleaner took its first batches: never after its true beginning.

A replica that has more of the epoch before is cut where the next one began. Too late, and what was never committed
stays in its log; too early, and it fetches the rest again.
"""

from __future__ import annotations

from pathlib import Path

from tests.unit.log.engine import NOON_MS, abandon, batch_of, open_log

from strandline.codec.record_batch import HEADER, LEADER_FIELDS, PREFIX_SIZE
from strandline.log.leader_epochs import FILE_NAME
from strandline.log.partition_log import PartitionLog
from strandline.log.run_appends import append_fetched

CLEANED = ((0, 0), (12, 2), (31, 3), (40, 5))
"""Offset and epoch of the batches that are left. Epoch 2 began at 12, epoch 3 at 26."""
TRUE_EPOCHS = "0\n4\n0 0\n2 12\n3 26\n5 40\n"


def fetch(log: PartitionLog, *batches: tuple[int, int]) -> None:
    """Take batches as a leader sends them."""
    run = bytearray()
    for offset, epoch in batches:
        batch = batch_of([b"v"])
        LEADER_FIELDS.pack_into(batch, 0, offset, len(batch) - PREFIX_SIZE, epoch)
        run += batch
    size = len(run) // len(batches)
    headers = [HEADER.unpack_from(run, at * size) for at in range(len(batches))]
    append_fetched(log, run, headers, now_ms=NOON_MS)


def epochs_of(log: PartitionLog) -> list[tuple[int, int]]:
    return list(zip(log.leader_epochs.epochs, log.leader_epochs.start_offsets, strict=True))


def test_of_a_log_that_is_fetched(tmp_path: Path) -> None:
    log = open_log(tmp_path / "table-0")
    fetch(log, *CLEANED[:2])
    fetch(log, *CLEANED[2:])
    assert epochs_of(log) == [(0, 0), (2, 1), (3, 13), (5, 32)]
    assert log.leader_epochs.end_offset(2, 41) == (2, 13), "26 in truth: no replica keeps what lies behind it"
    abandon(log)


def test_without_their_file(tmp_path: Path) -> None:
    for clean in (True, False):
        directory = tmp_path / f"table-{clean}"
        log = open_log(directory)
        fetch(log, *CLEANED)
        log.close()
        (directory / FILE_NAME).unlink()
        again = open_log(directory, clean=clean, recovery_point=41)
        assert epochs_of(again) == [(0, 0), (2, 1), (3, 13), (5, 32)]
        abandon(again)


def test_their_file_is_believed_below_the_recovery_point(tmp_path: Path) -> None:
    """Also where a lost index has all batches read again."""
    directory = tmp_path / "table-0"
    log = open_log(directory)
    fetch(log, *CLEANED[:2])
    log.roll(NOON_MS)
    fetch(log, *CLEANED[2:])
    log.close()
    (directory / FILE_NAME).write_text(TRUE_EPOCHS)
    for index in directory.glob("*.index"):
        index.unlink()
    again = open_log(directory, recovery_point=41)
    assert epochs_of(again) == [(0, 0), (2, 12), (3, 26), (5, 40)]
    assert (directory / FILE_NAME).read_text() == TRUE_EPOCHS
    abandon(again)


def test_behind_the_recovery_point_the_batches_are_believed(tmp_path: Path) -> None:
    """The file may be of a log that was cut and written anew, which a power cut took back."""
    directory = tmp_path / "table-0"
    log = open_log(directory)
    fetch(log, *CLEANED)
    log.close()
    (directory / FILE_NAME).write_text("0\n3\n0 0\n2 12\n7 20\n")
    again = open_log(directory, recovery_point=13)
    assert epochs_of(again) == [(0, 0), (2, 12), (3, 13), (5, 32)]
    abandon(again)

"""Which epoch wrote what: the file in Kafka's words, and what of it a crash, a cut or a trim leaves."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.log.engine import abandon, append, batch_of, crash, fill, open_log

from strandline.errors import CorruptLog
from strandline.log.leader_epochs import FILE_NAME, LeaderEpochs
from strandline.log.trimming import trim_now
from strandline.log.truncation import truncate_to


def of(*entries: tuple[int, int]) -> LeaderEpochs:
    epochs = LeaderEpochs()
    for epoch, start in entries:
        epochs.note(epoch, start)
    return epochs


def entries(epochs: LeaderEpochs) -> list[tuple[int, int]]:
    return list(zip(epochs.epochs, epochs.start_offsets, strict=True))


CASES = [
    ([], "0\n0\n"),
    ([(0, 0)], "0\n1\n0 0\n"),
    ([(0, 0), (3, 17), (4, 1 << 40)], "0\n3\n0 0\n3 17\n4 1099511627776\n"),
]


@pytest.mark.parametrize(("pairs", "text"), CASES)
def test_the_file_both_ways(pairs: list[tuple[int, int]], text: str) -> None:
    assert of(*pairs).format() == text
    assert entries(LeaderEpochs.parse(text)) == pairs


@pytest.mark.parametrize(
    "text", ["", "1\n0\n", "0\n", "0\nmany\n", "0\n2\n0 0\n", "0\n1\n0\n", "0\n1\n0 0 0\n", "0\n1\nx y\n"]
)
def test_a_file_that_is_none(text: str) -> None:
    with pytest.raises(CorruptLog):
        LeaderEpochs.parse(text)


def test_an_epoch_begins_once_and_never_goes_back() -> None:
    epochs = of((1, 0))
    assert not epochs.note(1, 5)
    assert not epochs.note(0, 5)
    assert epochs.note(4, 5)
    assert entries(epochs) == [(1, 0), (4, 5)]


def test_who_wrote_an_offset() -> None:
    epochs = of((1, 10), (4, 20), (5, 20), (9, 30))
    assert [epochs.epoch_of(offset) for offset in (0, 9, 10, 19, 20, 29, 30, 1000)] == [-1, -1, 1, 1, 5, 5, 9, 9]


def test_where_an_epoch_ends() -> None:
    """What OffsetForLeaderEpoch answers, case by case as Kafka's epoch cache does."""
    epochs = of((2, 10), (4, 20), (7, 30))
    assert epochs.end_offset(7, 45) == (7, 45)
    assert epochs.end_offset(4, 45) == (4, 30)
    assert epochs.end_offset(5, 45) == (4, 30), "an epoch that wrote nothing: the one before it"
    assert epochs.end_offset(2, 45) == (2, 20)
    assert epochs.end_offset(1, 45) == (1, 10), "before all that is known: nothing of it is here"
    assert epochs.end_offset(8, 45) == (-1, -1), "not known yet"
    assert of().end_offset(0, 45) == (-1, -1)


def test_cutting_the_end() -> None:
    for end, left in ((40, 3), (30, 2), (21, 2), (20, 1), (10, 0), (0, 0)):
        epochs = of((2, 10), (4, 20), (7, 30))
        assert epochs.truncate_end(end) == (left < 3)
        assert epochs.epochs == [2, 4, 7][:left]


def test_cutting_the_start() -> None:
    for start, left in (
        (0, [(2, 10), (4, 20), (7, 30)]),
        (10, [(2, 10), (4, 20), (7, 30)]),
        (15, [(2, 15), (4, 20), (7, 30)]),
        (20, [(4, 20), (7, 30)]),
        (29, [(4, 29), (7, 30)]),
        (100, [(7, 100)]),
    ):
        epochs = of((2, 10), (4, 20), (7, 30))
        assert epochs.truncate_start(start) == (left != [(2, 10), (4, 20), (7, 30)])
        assert entries(epochs) == left


def test_a_log_writes_its_epochs_down_before_their_first_batch(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0")
    for epoch in (0, 0, 3, 3, 5):
        append(log, batch_of([b"a", b"b"]), leader_epoch=epoch)
        assert f"\n{epoch} " in (log.directory / FILE_NAME).read_text()
    assert (log.directory / FILE_NAME).read_text() == "0\n3\n0 0\n3 4\n5 8\n"
    truncate_to(log, 8)
    assert (log.directory / FILE_NAME).read_text() == "0\n2\n0 0\n3 4\n"
    trim_now(log, 6)
    assert (log.directory / FILE_NAME).read_text() == "0\n1\n3 6\n"
    log.close()


@pytest.mark.parametrize("left", [None, b"", b"0\n", b"\xff\xfe", b"0\n3\n0 0\n", b"0\n0\n"])
def test_a_lost_or_torn_file_is_learnt_again_from_the_batches(tmp_path: Path, left: bytes | None) -> None:
    log = open_log(tmp_path / "orders-0", segment_bytes=300)
    for epoch in (0, 2, 7):
        fill(log, 5, leader_epoch=epoch)
    path = crash(log, tmp_path / "copy-0") / FILE_NAME
    if left is None:
        path.unlink()
    else:
        path.write_bytes(left)
    again = open_log(tmp_path / "copy-0", segment_bytes=300)
    assert entries(again.leader_epochs) == [(0, 0), (2, 5), (7, 10)]
    assert path.read_text() == "0\n3\n0 0\n2 5\n7 10\n"
    again.close()
    log.close()


def test_an_epoch_whose_batches_were_torn_off_is_forgotten(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0")
    fill(log, 3, leader_epoch=1)
    append(log, batch_of([b"v"]), leader_epoch=2)
    log.active.file().truncate(log.active.size_bytes - 1)
    abandon(log)
    again = open_log(tmp_path / "orders-0")
    assert entries(again.leader_epochs) == [(1, 0)]
    assert (again.directory / FILE_NAME).read_text() == "0\n1\n1 0\n"
    again.close()


def test_a_file_that_was_torn_anywhere_is_refused() -> None:
    whole = "0\n3\n0 0\n4 66\n5 144\n"
    assert LeaderEpochs.parse(whole).start_offsets == [0, 66, 144]
    for size in range(len(whole)):
        with pytest.raises(CorruptLog):
            LeaderEpochs.parse(whole[:size])
    with pytest.raises(CorruptLog, match="goes back"):
        LeaderEpochs.parse("0\n2\n4 66\n5 1\n")

"""A damaged segment is made whole of what is sound in it and of what comes from elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.log.engine import open_log, split
from tests.unit.log.test_read_verification import CONFIG, END, a_log, flip, reopen

from strandline.codec.record_batch import check_run, parse_header
from strandline.log.cleaning.job import CleanedGroup
from strandline.log.maintenance.segment_rebuild import Hole, RebuiltSegment, rebuild_indexes
from strandline.log.partition_log import PartitionLog
from strandline.partition.producers import Producers


def mend(log: PartitionLog, at: int, whole: dict[int, bytes]) -> tuple[CleanedGroup, list[Hole]]:
    """Make segment `at` anew; what it lacks comes from `whole`."""
    segment = log.segments[at]
    made = RebuiltSegment(segment, log.end_of(segment.base_offset))
    holes = []
    while copied := made.copy_some():
        if isinstance(copied, Hole):
            holes.append(copied)
            run = b"".join(batch for base, batch in whole.items() if copied.start_offset <= base < copied.end_offset)
            headers, size = check_run(memoryview(run), next_offset=copied.start_offset, leader_epoch=9)
            assert size == len(run)
            made.add(run, headers)
    return made.finish(), holes


@pytest.mark.parametrize("batch", [0, 1, 4, -1])
def test_one_damaged_batch_is_all_that_is_asked_for(tmp_path: Path, batch: int) -> None:
    whole = a_log(tmp_path)
    path = sorted(tmp_path.glob("*.log"))[1]
    original = path.read_bytes()
    index = path.with_suffix(".index").read_bytes(), path.with_suffix(".timeindex").read_bytes()
    batches = split(original)
    damaged = batches[batch]
    flip(path, 8 * (original.index(damaged) + 70))
    log = reopen(tmp_path)
    group, [hole] = mend(log, 1, whole)
    assert hole.start_offset <= parse_header(damaged).base_offset < hole.end_offset
    assert hole.end_offset - hole.start_offset < log.end_of(log.segments[1].base_offset) - log.segments[1].base_offset
    assert (tmp_path / (path.name + ".cleaned")).read_bytes() == original
    assert (tmp_path / (path.stem + ".index.cleaned")).read_bytes() == index[0]
    assert (tmp_path / (path.stem + ".timeindex.cleaned")).read_bytes() == index[1]
    assert (group.replaced, group.end_offset) == ((int(path.stem),), log.base_offsets[2])
    assert not list(tmp_path.glob("*.counts.cleaned"))
    log.close()


def test_several_damaged_places_are_several_holes(tmp_path: Path) -> None:
    whole = a_log(tmp_path)
    path = sorted(tmp_path.glob("*.log"))[0]
    original = path.read_bytes()
    flip(path, 8 * 70)
    flip(path, 8 * (len(original) - 10))
    log = reopen(tmp_path)
    _, holes = mend(log, 0, whole)
    assert len(holes) == 2
    assert holes[-1].end_offset == log.base_offsets[1]
    assert (tmp_path / (path.name + ".cleaned")).read_bytes() == original
    log.close()


def test_a_sound_segment_has_no_holes(tmp_path: Path) -> None:
    whole = a_log(tmp_path)
    log = reopen(tmp_path)
    _, holes = mend(log, 0, whole)
    assert holes == []
    log.close()


def test_what_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    a_log(tmp_path)
    log = reopen(tmp_path)
    made = RebuiltSegment(log.segments[0], log.end_of(log.segments[0].base_offset))
    made.copy_some()
    made.discard()
    assert not list(tmp_path.glob("*.cleaned"))
    log.close()


def test_indexes_are_built_anew_as_they_were(tmp_path: Path) -> None:
    a_log(tmp_path)
    path = sorted(tmp_path.glob("*.index"))[1]
    original = path.read_bytes()
    assert original
    path.write_bytes(b"\xff" * len(original))
    log = open_log(tmp_path, observer=Producers(), clean=True, recovery_point=END, **CONFIG)
    rebuild_indexes(log.segments[1])
    assert path.read_bytes() == original
    log.close()

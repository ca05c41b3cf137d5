"""A scrub finds every bit that changed in a log's files, says where, and finds nothing where nothing changed."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.unit.log.engine import UnsyncedDisk, fill, offsets_in, open_log, split
from tests.unit.log.test_read_verification import CONFIG, END, a_log, flip, gap

from strandline.codec.record_batch import parse_header
from strandline.errors import CorruptLog, DamagedRecords
from strandline.log.leader_epochs import FILE_NAME, LeaderEpochs
from strandline.log.maintenance.scrubbing import ScrubbedSegment, ScrubFinding, job_params, scrub
from strandline.log.segment.digest import DIGEST_SUFFIX, Digest
from strandline.log.truncation import truncate_to
from strandline.partition.producers import Producers

SEED = 20_261_117


def scrubbed(directory: Path, end_offset: int, *, stop: bool = False) -> list[ScrubFinding]:
    """What a scrub of all files there finds."""
    files = sorted(directory.glob("*.log"))
    bases = [int(path.stem) for path in files]
    segments = [
        ScrubbedSegment(base, path.stat().st_size, end)
        for base, path, end in zip(bases, files, [*bases[1:], end_offset], strict=True)
    ]
    epochs = LeaderEpochs.parse((directory / FILE_NAME).read_text())
    slept: list[float] = []
    reports: list[dict[str, Any]] = []
    result = scrub(
        job_params(directory, segments, epochs, bytes_per_s=1000.0),
        disk=UnsyncedDisk(),
        report=reports.append,
        is_stopped=lambda: stop,
        sleep=slept.append,
    )
    assert result["is_stopped"] is stop
    findings = [ScrubFinding(*each) for each in result["findings"]]
    if not stop:
        assert [report["base_offset"] for report in reports] == bases
        assert result["bytes_read"] == sum(segment.size_bytes for segment in segments)
        assert sum(slept) >= result["bytes_read"] / 1000 - 0.001
    return findings


def test_a_sound_log_is_found_sound_and_left_alone(tmp_path: Path) -> None:
    a_log(tmp_path)
    before = {path: path.read_bytes() for path in sorted(tmp_path.iterdir())}
    assert scrubbed(tmp_path, END) == []
    assert {path: path.read_bytes() for path in sorted(tmp_path.iterdir())} == before


def test_a_stopped_scrub_reads_nothing(tmp_path: Path) -> None:
    a_log(tmp_path)
    assert scrubbed(tmp_path, END, stop=True) == []


@pytest.mark.slow
def test_every_bit_is_found_where_it_is(tmp_path: Path) -> None:
    a_log(tmp_path)
    print("seed", SEED)
    seed = random.Random(SEED)
    for path in sorted(tmp_path.glob("*.log")):
        content = path.read_bytes()
        batches = split(content)
        starts = [sum(map(len, batches[:number])) for number in range(len(batches))]
        bits = [
            *range(8 * 27),
            *range(8 * starts[3], 8 * (starts[3] + 27)),
            *range(8 * starts[-1], 8 * starts[-1] + 27),
        ]
        bits += [seed.randrange(8 * len(content)) for _ in range(60)]
        for bit in bits:
            flip(path, bit)
            [first, *_] = scrubbed(tmp_path, END)
            assert (first.base_offset, first.is_index) == (int(path.stem), False)
            damaged = max(start for start in starts if start <= bit // 8)
            assert first.position in (damaged, *starts[: starts.index(damaged) + 2][-2:]), f"bit {bit}"
            path.write_bytes(content)


def test_a_file_that_ends_early_is_found(tmp_path: Path) -> None:
    a_log(tmp_path)
    path = sorted(tmp_path.glob("*.log"))[0]
    size, end = path.stat().st_size, int(sorted(tmp_path.glob("*.log"))[1].stem)
    path.write_bytes(path.read_bytes()[:-5])
    epochs = LeaderEpochs.parse((tmp_path / FILE_NAME).read_text())
    found = scrub(
        job_params(tmp_path, [ScrubbedSegment(0, size, end)], epochs, bytes_per_s=0),
        disk=UnsyncedDisk(),
        report=lambda _: None,
        is_stopped=lambda: False,
        sleep=lambda _: None,
    )["findings"]
    assert len(found) == 1
    assert "ends after" in found[0][3]


def test_a_file_that_is_gone_is_nobodys_damage(tmp_path: Path) -> None:
    a_log(tmp_path)
    found = scrub(
        job_params(tmp_path, [ScrubbedSegment(7777, 100, 8888)], LeaderEpochs(), bytes_per_s=0),
        disk=UnsyncedDisk(),
        report=lambda _: None,
        is_stopped=lambda: False,
        sleep=lambda _: None,
    )["findings"]
    assert found == []


def test_an_index_that_is_out_of_order_is_told_apart(tmp_path: Path) -> None:
    a_log(tmp_path)
    path = sorted(tmp_path.glob("*.index"))[0]
    path.write_bytes(b"\xff" + path.read_bytes()[1:])
    [found] = scrubbed(tmp_path, END)
    assert found.is_index


def test_two_damaged_places_are_both_found(tmp_path: Path) -> None:
    a_log(tmp_path)
    path = sorted(tmp_path.glob("*.log"))[0]
    flip(path, 8 * 100)
    flip(path, 8 * (path.stat().st_size - 10))
    assert len(scrubbed(tmp_path, END)) == 2


def thinned(directory: Path) -> int:
    """A log as a follower of a cleaned one has it, closed; where it ends."""
    log = open_log(directory, observer=Producers(), **CONFIG)
    fill(log, 1)
    for step in range(40):
        gap(log, 2 + step % 3)
    log.close()
    return log.log_end_offset


@pytest.mark.lengthy("a case for each bit of a header")
def test_where_records_are_missing_a_digest_holds_the_others_in_place(tmp_path: Path) -> None:
    original = tmp_path / "orders-0"
    end = thinned(original)
    assert scrubbed(original, end) == []
    assert len(list(original.glob("*" + DIGEST_SUFFIX))) == len(list(original.glob("*.log"))) > 2
    assert scrubbed(original, end) == [], "what is noted once is true ever after"
    path = sorted(original.glob("*.log"))[1]
    start = len(split(path.read_bytes())[0])
    for bit in range(8 * start, 8 * (start + 17)):
        copy = tmp_path / "copy"
        shutil.copytree(original, copy)
        flip(copy / path.name, bit)
        assert scrubbed(copy, end), f"bit {bit}"
        log = open_log(copy, observer=Producers(), clean=True, recovery_point=end, **CONFIG)
        with pytest.raises((DamagedRecords, CorruptLog)):
            offsets_in(log)
        log.close()
        shutil.rmtree(copy)
    log = open_log(original, observer=Producers(), clean=True, recovery_point=end, **CONFIG)
    assert len(offsets_in(log)) == 41
    log.close()


def test_what_is_cut_loses_its_digest(tmp_path: Path) -> None:
    end = thinned(tmp_path)
    assert scrubbed(tmp_path, end) == []
    bases = [int(path.stem) for path in sorted(tmp_path.glob("*.log"))]
    log = open_log(tmp_path, observer=Producers(), clean=True, recovery_point=end, **CONFIG)
    offsets = offsets_in(log)
    truncate_to(log, max(offset for offset in offsets if offset < bases[2]))
    assert [int(path.stem) for path in sorted(tmp_path.glob("*" + DIGEST_SUFFIX))] == bases[:1]
    log.close()


def test_a_digest_of_another_file_counts_for_nothing(tmp_path: Path) -> None:
    digest = Digest()
    end = thinned(tmp_path)
    path = sorted(tmp_path.glob("*.log"))[0]
    digest.add(path.read_bytes())
    content = digest.to_bytes()
    again = Digest.parse(content, size_bytes=path.stat().st_size)
    assert again is not None
    assert (again.starts, again.checksums) == (digest.starts, digest.checksums)
    assert Digest.parse(content, size_bytes=path.stat().st_size + 1) is None
    for at in range(len(content)):
        changed = bytearray(content)
        changed[at] ^= 1
        assert Digest.parse(bytes(changed), size_bytes=path.stat().st_size) is None
    path.with_suffix(DIGEST_SUFFIX).write_bytes(content[:-1])
    assert scrubbed(tmp_path, end) == []
    assert parse_header(path.read_bytes()).base_offset == 0

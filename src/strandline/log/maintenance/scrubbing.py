"""Reading a log's files again, at a bounded rate, to find what changed on the disk: a job of the storage worker.

Every batch of every named segment is checked (`batch_validation`), and every entry of the offset index along with it.
Behind a fault the check goes on where the index names the next batch. Segments with gaps get a `.digest`, or are held
against the one they have. Nothing else is written, and nothing is repaired here: the broker looks at each finding once
more, because the log may have been truncated or cleaned meanwhile, and decides.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from strandline.log.disk import Disk, File
from strandline.log.leader_epochs import LeaderEpochs
from strandline.log.segment.batch_validation import ANY_OFFSET, LOOSE, OFFSET_LIMIT, check_batches
from strandline.log.segment.digest import DIGEST_SUFFIX, Digest
from strandline.log.segment.file_names import INDEX_SUFFIX, LOG_SUFFIX, file_stem
from strandline.log.segment.index import OffsetIndex

PIECE_BYTES: Final = 1024 * 1024
FINDINGS_MAX: Final = 100
"""Findings that are reported for one segment: it is repaired as a whole, however many there are."""


class ScrubbedSegment(NamedTuple):
    base_offset: int
    size_bytes: int
    end_offset: int
    """Above all of its offsets: the next segment's base, or where the log ended."""
    is_sealed: bool = True
    """What grows gets no digest: it would be of another file soon."""


class ScrubFinding(NamedTuple):
    base_offset: int
    """Of the segment."""
    position: int
    offset: int
    """About: the offset after the last batch that is sound."""
    fault: str
    is_index: bool = False
    """Whether the log is sound, and only its index is not."""


def job_params(
    directory: Path, segments: list[ScrubbedSegment], epochs: LeaderEpochs, *, bytes_per_s: float
) -> dict[str, Any]:
    return {
        "directory": str(directory),
        "segments": [list(each) for each in segments],
        "epochs": list(map(list, zip(epochs.epochs, epochs.start_offsets, strict=True))),
        "bytes_per_s": bytes_per_s,
    }


def scrub(
    params: dict[str, Any],
    *,
    disk: Disk,
    report: Callable[[dict[str, Any]], object],
    is_stopped: Callable[[], bool],
    sleep: Callable[[float], object],
) -> dict[str, Any]:
    """Check what `job_params` names; {"findings": ..., "bytes_read": ...}, each segment reported when it is done."""
    epochs = LeaderEpochs()
    for epoch, start_offset in params["epochs"]:
        epochs.note(epoch, start_offset)
    findings: list[ScrubFinding] = []
    total = 0
    for fields in params["segments"]:
        if is_stopped():
            break
        segment = ScrubbedSegment(*fields)
        reader = _SegmentScrub(Path(params["directory"]), segment, disk, epochs, params["bytes_per_s"], sleep)
        found = reader.findings(is_stopped)
        findings += found
        total += reader.bytes_read
        report(
            {"base_offset": segment.base_offset, "bytes_read": reader.bytes_read, "findings": list(map(list, found))}
        )
    return {"findings": list(map(list, findings)), "bytes_read": total, "is_stopped": is_stopped()}


class _SegmentScrub:
    def __init__(
        self,
        directory: Path,
        segment: ScrubbedSegment,
        disk: Disk,
        epochs: LeaderEpochs,
        bytes_per_s: float,
        sleep: Callable[[float], object],
    ) -> None:
        self._stem = directory / file_stem(segment.base_offset)
        self._segment = segment
        self._disk = disk
        self._epochs = epochs
        self._bytes_per_s = bytes_per_s
        self._sleep = sleep
        self.bytes_read = 0

    def findings(self, is_stopped: Callable[[], bool]) -> list[ScrubFinding]:
        segment = self._segment
        try:
            file = self._disk.open(self._stem.with_suffix(LOG_SUFFIX))
        except FileNotFoundError:
            return []  # Deleted, or swapped, since the job was made.
        try:
            content = self._read(INDEX_SUFFIX)
            index = OffsetIndex.parse(content)
            found: list[ScrubFinding] = []
            if not index.is_ordered(max(segment.size_bytes, file.size())):
                found.append(
                    ScrubFinding(segment.base_offset, 0, segment.base_offset, "the index is out of order", True)
                )
                index = OffsetIndex()
            for finding in self._walk(file, index, is_stopped):
                found.append(finding)
                if len(found) >= FINDINGS_MAX:
                    break
            return found
        finally:
            file.close()

    def _read(self, suffix: str) -> bytes:
        path = self._stem.with_suffix(suffix)
        try:
            return self._disk.read_whole(path) if self._disk.exists(path) else b""
        except FileNotFoundError:
            return b""

    def _walk(self, file: File, index: OffsetIndex, is_stopped: Callable[[], bool]) -> Iterator[ScrubFinding]:
        segment = self._segment
        known = Digest.parse(self._read(DIGEST_SUFFIX), size_bytes=segment.size_bytes)
        made = Digest()
        has_gap = is_damaged = False
        position, next_offset, wanted = 0, segment.base_offset, PIECE_BYTES
        while position < segment.size_bytes and not is_stopped():
            size = min(wanted, segment.size_bytes - position)
            piece = file.read_at(position, size)
            self._spend(len(piece))
            first = bisect_left(index.positions, position)
            last = bisect_right(index.positions, position + size) + 1
            entries = zip(index.positions[first:last], index.relative_offsets[first:last], strict=True)
            checked = check_batches(
                piece,
                next_offset=next_offset,
                epochs=self._epochs,
                limit_offset=segment.end_offset,
                entries=[(at - position, segment.base_offset + relative) for at, relative in entries],
                is_end=size == segment.size_bytes - position or len(piece) < size,
                batches_max=OFFSET_LIMIT,
            )
            made.add(memoryview(piece)[: checked.size_bytes])
            has_gap = has_gap or checked.has_gap
            position += checked.size_bytes
            self.bytes_read = position
            next_offset = checked.next_offset if checked.size_bytes else next_offset
            wanted = max(PIECE_BYTES, 0 if checked.size_bytes else checked.wanted_bytes)
            if checked.fault is not None and checked.fault != LOOSE:
                is_damaged = True
                yield ScrubFinding(segment.base_offset, position, max(next_offset, segment.base_offset), checked.fault)
            if checked.fault is not None:
                # On from the next batch that can be found without this one.
                at = bisect_right(index.positions, position)
                self.bytes_read = position = index.positions[at] if at < len(index.positions) else segment.size_bytes
                next_offset = ANY_OFFSET
        if not is_damaged and position >= segment.size_bytes:
            yield from self._compare(known, made, has_gap)

    def _compare(self, known: Digest | None, made: Digest, has_gap: bool) -> Iterator[ScrubFinding]:
        """Hold what the CRCs leave out against what was noted of it; or note it, if it needs to be."""
        if known is None:
            if has_gap and self._segment.is_sealed:
                self._disk.write_whole(self._stem.with_suffix(DIGEST_SUFFIX), made.to_bytes(), sync=True)
            return
        for start in known.starts:
            if known.block_at(start) != made.block_at(start):
                fault = "what no CRC covers is not what it was"
                yield ScrubFinding(self._segment.base_offset, start, self._segment.base_offset, fault)

    def _spend(self, size_bytes: int) -> None:
        if self._bytes_per_s > 0:
            self._sleep(size_bytes / self._bytes_per_s)

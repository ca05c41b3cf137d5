"""Completing or undoing a segment replacement that a crash interrupted, before the log is opened.

This follows Kafka's log loader, so that each of us can open what the other left. `.cleaned` counts for nothing. A
`.log.swap` is complete: the originals in its range are removed, and it gets its name. How far the renames had come
shows in its offset index, which is renamed first, while the log is renamed last:

    .log  .index  ...  .log.swap  .index.swap      old ones may be left under the plain names, and go
    .log.swap  .index                              the old ones are gone; what has a plain name is new

Kafka names the log first. Beside a `.cleaned` of the same base its `.log.swap` is half a segment; and one that lies
behind a `.cleaned`, with no original of its own, is half of a segment that Kafka was splitting in two.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Final

from strandline.codec.record_batch import BASE_OFFSET, BATCH_LENGTH, HEADER, HEADER_SIZE, LAST_OFFSET_DELTA, PREFIX_SIZE
from strandline.errors import CorruptLog
from strandline.log.cleaning.job import CLEANED_SUFFIX
from strandline.log.disk import Disk
from strandline.log.segment.file_names import DELETED_SUFFIX, INDEX_SUFFIX, LOG_SUFFIX, SNAPSHOT_SUFFIX, file_stem
from strandline.log.segment.index import OffsetIndex

SWAP_SUFFIX: Final = ".swap"


def in_order(suffixes: Sequence[str]) -> list[str]:
    """Return the order in which the files of a segment get their names: the index first, the log last."""
    return sorted(suffixes, key=lambda suffix: (suffix == LOG_SUFFIX, suffix != INDEX_SUFFIX, suffix))


def originals(names: Iterable[str], base_offset: int, replaced: Collection[int]) -> list[str]:
    """Return the files of the segments at the bases `replaced`, but not the snapshot at `base_offset`, still valid."""
    found = []
    for name in names:
        stem, dot, suffix = name.partition(".")
        if not stem.isdecimal() or "." in suffix or int(stem) not in replaced:
            continue
        if dot + suffix != SNAPSHOT_SUFFIX or int(stem) != base_offset:
            found.append(name)
    return found


def is_unfinished(names: Iterable[str]) -> bool:
    return any(name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX)) for name in names)


def finish_replacements(disk: Disk, directory: Path, names: Sequence[str]) -> int:
    """Make the directory, which holds `names`, whole. Return up to where, at least, it was cleaned before the crash."""
    cleaned, swapped = _bases(names, CLEANED_SUFFIX), _bases(names, SWAP_SUFFIX)
    end_offset = max(cleaned, default=0)
    for base_offset in swapped:
        if _is_whole(names, base_offset, cleaned):
            end_offset = max(end_offset, _finish(disk, directory, names, base_offset))
    for name in names:
        if name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX)):
            disk.remove(directory / name)
    # Before anything is appended: with the power gone, what was removed must not be back behind it.
    disk.sync_directory(directory)
    return end_offset


def _bases(names: Iterable[str], behind: str) -> list[int]:
    stems = [name.partition(".")[0] for name in names if name.endswith(behind)]
    return sorted({int(stem) for stem in stems if stem.isdecimal()})


def _is_whole(names: Collection[str], base_offset: int, cleaned: Sequence[int]) -> bool:
    stem = file_stem(base_offset)
    if stem + LOG_SUFFIX + SWAP_SUFFIX not in names or base_offset in cleaned:
        return False
    has_original = stem + LOG_SUFFIX in names or stem + LOG_SUFFIX + DELETED_SUFFIX in names
    return has_original or not cleaned or cleaned[0] > base_offset


def _finish(disk: Disk, directory: Path, names: Sequence[str], base_offset: int) -> int:
    """Complete one replacement. Return where its range ends, as far as its batches show.

    If the cleaner left nothing at the end of the range, originals there that the crash spared stay. They hold only
    superseded records, and the next cleaning removes them.
    """
    stem = file_stem(base_offset)
    end_offset = _end_of(disk, directory, stem, base_offset)
    is_named = stem + INDEX_SUFFIX + SWAP_SUFFIX not in names
    replaced = [each for each in _bases(names, "") if base_offset <= each < end_offset or each == base_offset]
    for name in originals(names, base_offset, replaced):
        if not (is_named and name.startswith(f"{stem}.")):
            disk.remove(directory / name)
    suffixes = [name[len(stem) : -len(SWAP_SUFFIX)] for name in names if name.startswith(f"{stem}.")]
    for suffix in in_order([each for each in suffixes if stem + each + SWAP_SUFFIX in names]):
        disk.rename(directory / (stem + suffix + SWAP_SUFFIX), directory / (stem + suffix))
    return end_offset


def _end_of(disk: Disk, directory: Path, stem: str, base_offset: int) -> int:
    """Return the offset behind the last batch of a segment that was written and synced as a whole."""
    path = directory / (stem + LOG_SUFFIX + SWAP_SUFFIX)
    index_path = directory / (stem + INDEX_SUFFIX + SWAP_SUFFIX)
    index = OffsetIndex.parse(disk.read_whole(index_path) if disk.exists(index_path) else b"")
    file = disk.open(path)
    try:
        size, end_offset = file.size(), base_offset
        position = index.boundary_before(max(0, size - 1))
        while position < size:
            head = file.read_at(position, HEADER_SIZE)
            header = HEADER.unpack(head) if len(head) == HEADER_SIZE else None
            if header is None or header[BATCH_LENGTH] + PREFIX_SIZE < HEADER_SIZE:
                raise CorruptLog(f"{path}: these bytes at position {position} are no batch header")
            end_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
            position += header[BATCH_LENGTH] + PREFIX_SIZE
        return end_offset
    finally:
        file.close()

"""The files that Strandline keeps beside a segment: counts of records, and digests of segments with gaps.

`log/segment/record_counts` and `log/segment/digest` draw their bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from strandline.cli.dump.items import Item
from strandline.codec.checksum import crc32c

_COUNTS: Final = struct.Struct(">hhIqIIIII")
_CHECKED_FROM: Final = 8
_OPEN_END: Final = 0xFFFF_FFFF
_DIGEST: Final = struct.Struct(">4sHIQ")
_BLOCK: Final = struct.Struct(">II")
_CRC_SIZE: Final = 4


def dump_counts(file: Path, base_offset: int) -> Iterator[Item]:
    content = file.read_bytes()
    if len(content) < _COUNTS.size:
        yield Item("damage", {"reason": f"counts of {len(content)} bytes"}, is_damage=True)
        return
    version, flags, crc, log_size, position, relative, records, end, before = _COUNTS.unpack_from(content)
    if crc32c(content[_CHECKED_FROM:]) != crc or len(content) != _COUNTS.size + before * 12:
        yield Item("damage", {"reason": "wrong CRC, or cut off"}, is_damage=True)
        return
    yield Item(
        "counts",
        {
            "version": version,
            "without_aborted": bool(flags & 1),
            "log_size_bytes": log_size,
            "end_offset": None if end == _OPEN_END else base_offset + end,
        },
    )
    columns = [struct.unpack_from(f">{before}I", content, _COUNTS.size + number * before * 4) for number in range(3)]
    for entry in [*zip(*columns, strict=True), (position, relative, records)]:
        fields = {"position": entry[0], "offset": base_offset + entry[1], "records_before": entry[2]}
        yield Item("entry", fields, depth=2)


def dump_digest(file: Path) -> Iterator[Item]:
    content = file.read_bytes()
    is_whole = (
        len(content) >= _DIGEST.size + _CRC_SIZE
        and int.from_bytes(content[-_CRC_SIZE:], "big") == crc32c(content[:-_CRC_SIZE])
        and (len(content) - _DIGEST.size - _CRC_SIZE) % _BLOCK.size == 0
    )
    if not is_whole:
        yield Item("damage", {"reason": "wrong CRC, or cut off"}, is_damage=True)
        return
    _, version, blocks, log_size = _DIGEST.unpack_from(content)
    yield Item("digest", {"version": version, "blocks": blocks, "log_size_bytes": log_size})
    for position, checksum in _BLOCK.iter_unpack(content[_DIGEST.size : -_CRC_SIZE]):
        yield Item("block", {"position": position, "crc": checksum}, depth=2)

"""A segment, or a metadata snapshot, batch by batch, with the records of the internal topics decoded."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strandline.cli.dump.items import Item
from strandline.codec.columns import Columns, Record, decode_batch
from strandline.codec.message_codec import decode_exact
from strandline.codec.record_batch import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    NO_PRODUCER_ID,
    BatchHeader,
    is_intact,
    parse_header,
)
from strandline.codec.transaction_marker import ABORT, COMMIT
from strandline.errors import CorruptBatch, PeerError

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# Control records: key = version int16, type int16. The value's first field is its version.
_CONTROL_TYPES = {
    0: ("abort", ""),
    1: ("commit", ""),
    2: ("leader_change", "leader_change_message:LeaderChangeMessage"),
    3: ("snapshot_header", "snapshot_header_record:SnapshotHeaderRecord"),
    4: ("snapshot_footer", "snapshot_footer_record:SnapshotFooterRecord"),
    5: ("kraft_version", "kraft_version_record:KRaftVersionRecord"),
    6: ("kraft_voters", "voters_record:VotersRecord"),
}


@dataclass
class Selection:
    """Which records to show."""

    records: bool = True
    from_offset: int = 0
    count_max: int | None = None

    @property
    def is_exhausted(self) -> bool:
        return self.count_max == 0

    def count_one(self) -> None:
        if self.count_max is not None:
            self.count_max -= 1


def dump_segment(file: Path, selection: Selection) -> Iterator[Item]:
    if not file.stat().st_size:
        return
    describe = _describer(file)
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
        position = 0
        while position < len(content) and not selection.is_exhausted:
            step = _end_of_batch(content, position)
            if isinstance(step, Item):
                yield step
                return
            header = parse_header(content[position : position + HEADER_SIZE])
            if header.last_offset >= selection.from_offset:
                # A copy, because a view into the map would forbid closing it while the caller holds a record.
                yield from _dump_batch(content[position:step], position, header, selection, describe)
            position = step


def _end_of_batch(content: mmap.mmap, position: int) -> int | Item:
    """Return where the batch ends, or the finding that makes it the last."""
    left = len(content) - position
    if left >= 12 and not any(content[position : position + 12]) and not any(content[position:]):
        return Item("preallocated", {"position": position, "size_bytes": left})
    if left < HEADER_SIZE:
        return Item("incomplete", {"position": position, "size_bytes": left, "reason": "the file ends in a header"})
    header = parse_header(content[position : position + HEADER_SIZE])
    if header.magic != 2 or header.length < HEADER_SIZE - 12:
        reason = f"no record batch: magic {header.magic}, length {header.length}"
        return Item("damage", {"position": position, "reason": reason}, is_damage=True)
    if header.size_bytes > left:
        reason = f"the batch says {header.size_bytes} bytes"
        return Item("incomplete", {"position": position, "size_bytes": left, "reason": reason})
    return position + header.size_bytes


def _dump_batch(
    batch: bytes, position: int, header: BatchHeader, selection: Selection, describe: Callable[[Record], dict[str, Any]]
) -> Iterator[Item]:
    yield Item("batch", _batch_fields(header, position))
    if not is_intact(batch):
        yield Item("damage", {"position": position, "reason": "wrong CRC"}, depth=2, is_damage=True)
        return
    if not selection.records:
        return
    try:
        columns = decode_batch(batch, check_crc=False)
    except PeerError as error:
        yield Item("damage", {"position": position, "reason": str(error)}, depth=2, is_damage=True)
        return
    yield from _dump_records(columns, selection, describe)


def _dump_records(
    columns: Columns, selection: Selection, describe: Callable[[Record], dict[str, Any]]
) -> Iterator[Item]:
    for record in columns.records():
        if record.offset < selection.from_offset:
            continue
        if selection.is_exhausted:
            return
        selection.count_one()
        fields: dict[str, Any] = {"offset": record.offset, "timestamp_ms": record.timestamp_ms}
        try:
            content = _control(record) if columns.is_control else describe(record)
        except PeerError as error:
            yield Item("record", fields | {"key": record.key, "value": record.value}, depth=2)
            yield Item("damage", {"offset": record.offset, "reason": str(error)}, depth=3, is_damage=True)
            continue
        if record.headers:
            content |= {"headers": dict(record.headers)}
        yield Item("control" if columns.is_control else "record", fields | content, depth=2)


def _batch_fields(header: BatchHeader, position: int) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "position": position,
        "size_bytes": header.size_bytes,
        "leader_epoch": header.leader_epoch,
        "codec": _codec(header.attributes & COMPRESSION_MASK),
        "timestamp_type": "append" if header.attributes & LOG_APPEND_TIME else "create",
        "max_timestamp_ms": header.max_timestamp,
    }
    if header.producer_id != NO_PRODUCER_ID:
        fields |= {
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "base_sequence": header.base_sequence,
        }
    flags = [name for name in ("transactional", "control") if getattr(header, f"is_{name}")]
    return fields | ({"flags": flags} if flags else {})


def _codec(number: int) -> str:
    return _CODECS[number] if number < len(_CODECS) else f"unknown ({number})"


def _describer(file: Path) -> Callable[[Record], dict[str, Any]]:
    """Return how the records of this file are shown: by the schemas of its topic, or as bytes."""
    topic = file.absolute().parent.name.rpartition("-")[0]
    if topic == "__cluster_metadata" or file.name.endswith(".checkpoint"):
        return _metadata_record
    if topic == "__consumer_offsets":
        return _coordinator_record
    if topic == "__transaction_state":
        return _transaction_record
    return _opaque_record


def _opaque_record(record: Record) -> dict[str, Any]:
    return {"key": record.key, "value": record.value}


def _metadata_record(record: Record) -> dict[str, Any]:
    from strandline.codec.internal_records import decode_metadata_record

    message = decode_metadata_record(record.value or b"")
    return {"type": type(message).__name__, "value": message}


def _coordinator_record(record: Record) -> dict[str, Any]:
    from strandline.codec.internal_records import decode_coordinator_record

    key, value = decode_coordinator_record(record.key or b"", record.value)
    return {"type": type(key).__name__.removesuffix("Key"), "key": key, "value": value}


def _transaction_record(record: Record) -> dict[str, Any]:
    from strandline.codec.internal_records import TRANSACTION_STATE, decode_coordinator_record

    key, value = decode_coordinator_record(record.key or b"", record.value, topic=TRANSACTION_STATE)
    return {"type": type(key).__name__.removesuffix("Key"), "key": key, "value": value}


def _control(record: Record) -> dict[str, Any]:
    key, value = record.key or b"", record.value or b""
    if len(key) < 4 or len(value) < 2:
        raise CorruptBatch(f"a control record with a key of {len(key)} and a value of {len(value)} bytes")
    _, number = struct.unpack_from(">hh", key)
    name, target = _CONTROL_TYPES.get(number, (f"unknown ({number})", ""))
    if number in (ABORT, COMMIT) and len(value) >= 6:
        return {"type": name, "coordinator_epoch": int.from_bytes(value[2:6], "big", signed=True)}
    if not target:
        return {"type": name, "value": value}
    from importlib import import_module

    module, message = target.split(":")
    cls = getattr(import_module(f"strandline.codec.messages.{module}"), message)
    return {"type": name, "value": decode_exact(cls, int.from_bytes(value[:2], "big"), value)}

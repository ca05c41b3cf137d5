"""The small files beside a segment: indexes, producer snapshots, checkpoints, properties."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path

from strandline.cli.dump.items import Item
from strandline.cli.dump.storage import dump_counts, dump_digest

_ON_THE_WAY = (".deleted", ".cleaned", ".swap")
"""Names of files that leave, or are yet to come, end with these."""
_INDEX = struct.Struct(">II")
_TIME_INDEX = struct.Struct(">qI")
_ABORTED_TRANSACTION = struct.Struct(">hqqqq")


def dump_plain_file(file: Path) -> Iterator[Item]:
    name = file.name
    for suffix in _ON_THE_WAY:
        name = name.removesuffix(suffix)
    if name.endswith(".index"):
        return _dump_index(file)
    if name.endswith(".timeindex"):
        return _dump_time_index(file)
    if name.endswith(".txnindex"):
        return _dump_aborted_transactions(file)
    if name.endswith(".snapshot"):
        return _dump_producer_snapshot(file)
    if name.endswith(".counts"):
        return dump_counts(file, _base_offset(file))
    if name.endswith(".digest"):
        return dump_digest(file)
    if name in ("quorum-state", ".kafka_cleanshutdown"):
        return _dump_json(file)
    if name == "leader-epoch-checkpoint":
        return _dump_checkpoint(file, ("leader_epoch", "start_offset"))
    if name == "scrub-checkpoint":
        return _dump_checkpoint(file, ("topic", "partition", "scrubbed_ms"))
    if name.endswith("-checkpoint"):
        return _dump_checkpoint(file, ("topic", "partition", "offset"))
    if name == "partition.metadata":
        return _dump_properties(file, ":")
    if name.endswith(".properties"):
        return _dump_properties(file, "=")
    return iter([Item("unknown", {"reason": "not a file that a log writes"})])


def _dump_index(file: Path) -> Iterator[Item]:
    """Entries grow strictly; what follows a zero or a smaller one is room that Kafka preallocated."""
    base_offset = _base_offset(file)
    content, rest = _entries(file, _INDEX.size)
    last = (-1, -1)
    for number, (relative_offset, position) in enumerate(_INDEX.iter_unpack(content)):
        if (relative_offset, position) == (0, 0) and not any(content[number * _INDEX.size :]):
            yield Item("preallocated", {"size_bytes": len(content) - number * _INDEX.size})
            break
        fields = {"offset": base_offset + relative_offset, "position": position}
        yield Item("entry", fields)
        if relative_offset <= last[0] or position <= last[1]:
            yield Item("damage", {"reason": "the entry does not grow", **fields}, is_damage=True)
        last = (relative_offset, position)
    yield from rest


def _dump_time_index(file: Path) -> Iterator[Item]:
    base_offset = _base_offset(file)
    content, rest = _entries(file, _TIME_INDEX.size)
    last = -1
    for number, (timestamp_ms, relative_offset) in enumerate(_TIME_INDEX.iter_unpack(content)):
        if (timestamp_ms, relative_offset) == (0, 0) and not any(content[number * _TIME_INDEX.size :]):
            yield Item("preallocated", {"size_bytes": len(content) - number * _TIME_INDEX.size})
            break
        fields = {"timestamp_ms": timestamp_ms, "offset": base_offset + relative_offset}
        yield Item("entry", fields)
        if timestamp_ms < last:
            yield Item("damage", {"reason": "time goes back", **fields}, is_damage=True)
        last = timestamp_ms
    yield from rest


def _dump_aborted_transactions(file: Path) -> Iterator[Item]:
    content, rest = _entries(file, _ABORTED_TRANSACTION.size)
    names = ("version", "producer_id", "first_offset", "last_offset", "last_stable_offset")
    last = _base_offset(file) - 1
    for values in _ABORTED_TRANSACTION.iter_unpack(content):
        fields = dict(zip(names, values, strict=True))
        yield Item("aborted", fields)
        if fields["version"] != 0:
            yield Item("damage", {"reason": "an unknown version", **fields}, is_damage=True)
        if fields["last_offset"] <= last or fields["first_offset"] > fields["last_offset"]:
            yield Item("damage", {"reason": "the offsets do not grow", **fields}, is_damage=True)
        last = fields["last_offset"]
    yield from rest


def _dump_producer_snapshot(file: Path) -> Iterator[Item]:
    """Version int16, CRC-32C uint32 of what follows it, then the entries."""
    from strandline.codec.checksum import crc32c
    from strandline.codec.message_codec import decode_exact
    from strandline.codec.messages.producer_snapshot import ProducerSnapshot
    from strandline.codec.producer_snapshot import ENTRY_SIZE

    content = file.read_bytes()
    if len(content) < 10:
        yield Item("damage", {"reason": f"a producer snapshot of {len(content)} bytes"}, is_damage=True)
        return
    version = int.from_bytes(content[:2], "big", signed=True)
    # Behind Kafka's entries there may be a part of Strandline's own.
    end = 10 + max(0, int.from_bytes(content[6:10], "big", signed=True)) * ENTRY_SIZE
    snapshot = decode_exact(ProducerSnapshot, version, content[2:end])
    yield Item(
        "snapshot", {"offset": _base_offset(file), "version": version, "producers": len(snapshot.producer_entries)}
    )
    if crc32c(content[6:]) != snapshot.crc:
        yield Item("damage", {"reason": "wrong CRC"}, is_damage=True)
    for entry in snapshot.producer_entries:
        fields = {spec.name: getattr(entry, spec.name) for spec in entry.FIELDS}
        fields["timestamp_ms"] = fields.pop("timestamp")
        yield Item("producer", fields, depth=2)


def _dump_checkpoint(file: Path, names: tuple[str, ...]) -> Iterator[Item]:
    """Yield the entries of a file that has a version, a count, then the entries, each on a line."""
    lines = file.read_text().splitlines()
    if not lines:
        yield Item("empty")
        return
    entries = lines[2:]
    if lines[0] != "0" or len(lines) < 2 or lines[1] != str(len(entries)):
        reason = f"version {lines[0]}, {lines[1] if len(lines) > 1 else 'no'} entries announced, {len(entries)} found"
        yield Item("damage", {"reason": reason}, is_damage=True)
    for line in entries:
        words = line.split(" ")
        if len(words) != len(names):
            yield Item("damage", {"reason": f"not {' '.join(names)}: {line!r}"}, is_damage=True)
            continue
        numbers = {name: word if name == "topic" else int(word) for name, word in zip(names, words, strict=True)}
        yield Item("entry", numbers)


def _dump_properties(file: Path, divider: str) -> Iterator[Item]:
    for line in file.read_text().splitlines():
        if line and not line.startswith("#"):
            key, _, value = line.partition(divider)
            yield Item("property", {key.strip(): value.strip()})


def _dump_json(file: Path) -> Iterator[Item]:
    for key, value in json.loads(file.read_text()).items():
        yield Item("property", {key: value})


def _entries(file: Path, size: int) -> tuple[bytes, list[Item]]:
    content = file.read_bytes()
    rest = len(content) % size
    if not rest:
        return content, []
    reason = f"the file ends {rest} bytes into an entry"
    return content[: len(content) - rest], [Item("damage", {"reason": reason}, is_damage=True)]


def _base_offset(file: Path) -> int:
    stem = file.name.partition(".")[0]
    if not stem.isdigit():
        raise ValueError(f"the name {file.name!r} does not begin with an offset")
    return int(stem)

"""A checkpoint of what a node has in the object store: what `storage restore` builds a cluster from.

    <cluster id>/checkpoint/<node id>-<directory id>/<number, 20 digits>

        magic "SLTC" | version uint16 = 1 | CRC-32C of the rest uint32 | nonce, 32 characters | JSON, deflated

A node writes the partitions that it leads, and the definitions of all topics. It names a segment as finished only if
its record says so, which comes behind its objects. Of several checkpoints the newest leader epoch decides for each
partition, and the newest metadata offset for the topics. A list of superseded checkpoints has the same form of key,
below `superseded`, and is written by a restore that has ended: what it names does not count for the next one.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

from strandline.codec.checksum import crc32c
from strandline.errors import CorruptLog, MalformedMessage
from strandline.tiers.records import RemoteSegment, SegmentAdded, TieredPartition, decode_event, encode_event

MAGIC: Final = b"SLTC"
VERSION: Final = 1
NONCE_LENGTH: Final = 32
SIZE_BYTES_MAX: Final = 1 << 30
_HEAD: Final = struct.Struct(">4sHI")


class TopicDefinition(NamedTuple):
    name: str
    id: UUID
    partitions: int
    replication_factor: int
    configs: dict[str, str]


class PartitionCheckpoint(NamedTuple):
    place: TieredPartition
    leader_epoch: int
    start_offset: int
    end_offset: int
    """The high watermark: what was acknowledged by then lies below it."""
    epochs: tuple[tuple[int, int], ...]
    """The leader epochs of its log."""
    segments: tuple[RemoteSegment, ...]


class TierCheckpoint(NamedTuple):
    node_id: int
    written_ms: int
    interval_ms: int
    metadata_offset: int
    topics: tuple[TopicDefinition, ...]
    partitions: tuple[PartitionCheckpoint, ...]

    def content(self) -> bytes:
        """Return what decides whether a new checkpoint is needed: all but the time."""
        return _json(self._replace(written_ms=0, metadata_offset=0))


def checkpoint_prefix(cluster_id: str) -> str:
    return f"{cluster_id}/checkpoint"


def checkpoint_key(prefix: str, number: int) -> str:
    return f"{prefix}/{number:020}"


def encode_checkpoint(checkpoint: TierCheckpoint, nonce: str) -> bytes:
    return _pack(_json(checkpoint), nonce)


def encode_superseded(keys: Iterable[str], nonce: str) -> bytes:
    return _pack(json.dumps({"superseded": sorted(keys)}).encode(), nonce)


def decode_checkpoint(data: bytes) -> TierCheckpoint:
    """Raise CorruptLog for what is no checkpoint."""
    found = _unpack(data)
    try:
        return TierCheckpoint(
            int(found["node"]),
            int(found["written_ms"]),
            int(found["interval_ms"]),
            int(found["metadata_offset"]),
            tuple(
                TopicDefinition(
                    str(each["name"]), UUID(each["id"]), int(each["partitions"]), int(each["replicas"]), each["configs"]
                )
                for each in found["topics"]
            ),
            tuple(_partition(each) for each in found["partitions"]),
        )
    except (ValueError, KeyError, TypeError, MalformedMessage) as error:
        raise CorruptLog(f"a checkpoint that cannot be read: {error}") from error


def decode_superseded(data: bytes) -> set[str]:
    """Raise CorruptLog for what is no list of superseded checkpoints."""
    try:
        return {str(key) for key in _unpack(data)["superseded"]}
    except (KeyError, TypeError) as error:
        raise CorruptLog(f"a list of checkpoints that cannot be read: {error}") from error


def newest_of(checkpoints: Iterable[TierCheckpoint]) -> tuple[tuple[TopicDefinition, ...], list[PartitionCheckpoint]]:
    """Return the topics, and the newest state of each of their partitions that a leader has written down."""
    topics: tuple[TopicDefinition, ...] = ()
    topics_at, best = -1, dict[tuple[UUID, int], tuple[tuple[int, int], PartitionCheckpoint]]()
    for each in checkpoints:
        if each.metadata_offset > topics_at:
            topics, topics_at = each.topics, each.metadata_offset
        for partition in each.partitions:
            rank = partition.leader_epoch, each.written_ms
            known = best.get(partition.place.key)
            if known is None or rank > known[0]:
                best[partition.place.key] = rank, partition
    ids = {topic.id for topic in topics}
    return topics, [best[key][1] for key in sorted(best) if key[0] in ids]


def _json(checkpoint: TierCheckpoint) -> bytes:
    return json.dumps(
        {
            "node": checkpoint.node_id,
            "written_ms": checkpoint.written_ms,
            "interval_ms": checkpoint.interval_ms,
            "metadata_offset": checkpoint.metadata_offset,
            "topics": [
                {
                    "name": each.name,
                    "id": str(each.id),
                    "partitions": each.partitions,
                    "replicas": each.replication_factor,
                    "configs": each.configs,
                }
                for each in checkpoint.topics
            ],
            "partitions": [
                {
                    "topic": each.place.topic,
                    "id": str(each.place.topic_id),
                    "partition": each.place.partition,
                    "epoch": each.leader_epoch,
                    "start": each.start_offset,
                    "end": each.end_offset,
                    "epochs": each.epochs,
                    # Kafka's record of a segment, with its state.
                    "segments": [
                        base64.b64encode(encode_event(SegmentAdded(each.place, segment))).decode()
                        for segment in each.segments
                    ],
                }
                for each in checkpoint.partitions
            ],
        },
        sort_keys=True,
    ).encode()


def _partition(found: Mapping[str, Any]) -> PartitionCheckpoint:
    place = TieredPartition(UUID(found["id"]), int(found["partition"]), str(found["topic"]))
    segments = []
    for text in found["segments"]:
        event = decode_event(base64.b64decode(text))
        if not isinstance(event, SegmentAdded):
            raise MalformedMessage("a checkpoint with a record that is no segment")
        segments.append(event.segment)
    epochs = tuple((int(epoch), int(offset)) for epoch, offset in found["epochs"])
    return PartitionCheckpoint(
        place, int(found["epoch"]), int(found["start"]), int(found["end"]), epochs, tuple(segments)
    )


def _pack(content: bytes, nonce: str) -> bytes:
    assert len(nonce) == NONCE_LENGTH
    rest = nonce.encode() + zlib.compress(content, 1)
    return _HEAD.pack(MAGIC, VERSION, crc32c(rest)) + rest


def _unpack(data: bytes) -> dict[str, Any]:
    if len(data) < _HEAD.size + NONCE_LENGTH:
        raise CorruptLog(f"a checkpoint of {len(data)} bytes")
    magic, version, checksum = _HEAD.unpack_from(data)
    rest = data[_HEAD.size :]
    if magic != MAGIC or version != VERSION or crc32c(rest) != checksum:
        raise CorruptLog(f"a checkpoint with magic {magic!r} and version {version} is damaged")
    unpacker = zlib.decompressobj()
    try:
        content = unpacker.decompress(rest[NONCE_LENGTH:], SIZE_BYTES_MAX)
        found = json.loads(content)
    except (zlib.error, ValueError) as error:
        raise CorruptLog(f"a checkpoint that cannot be read: {error}") from error
    if not isinstance(found, dict) or unpacker.unconsumed_tail:
        raise CorruptLog("a checkpoint with other content than one object")
    return found

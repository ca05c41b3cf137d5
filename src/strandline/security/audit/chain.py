"""The chain of a partition: a hash over its batches in the order of their offsets, and the anchors that keep it.

    hash before the first batch    SHA-256(b"strandline.audit.chain" + topic id, 16 bytes + partition, int32)
    hash after a batch             SHA-256(hash before it + the bytes of the batch as its leader stores them)

An anchor is a line of the audit topic that says which hash a partition has at an offset. Each later one proves all
batches since each earlier one, so that a line that was lost is no gap. Replicas store the same bytes: any leader can go
on from the last anchor. Decision 0056 has the reasons.
"""

from __future__ import annotations

import hashlib
from struct import Struct
from typing import Any, Final, NamedTuple
from uuid import UUID

from strandline.codec.record_batch import (
    BASE_OFFSET,
    BATCH_LENGTH,
    HEADER,
    HEADER_SIZE,
    LAST_OFFSET_DELTA,
    PREFIX_SIZE,
)
from strandline.security.audit.audit_event import SUCCESS, AuditEvent

ANCHOR: Final = "anchor"
"""The type of these lines."""
POINTS_MAX: Final = 32
"""Hashes between two anchors that a line has, so that a change is found within a few batches."""
POINT_DIGITS: Final = 12
"""Hexadecimal digits of such a hash. It finds a place and proves nothing."""

_BEGINNING: Final = b"strandline.audit.chain"
_INT32: Final = Struct(">i")


def chain_start(topic_id: UUID, partition: int) -> bytes:
    """Return the hash before the first batch of a partition."""
    return hashlib.sha256(_BEGINNING + topic_id.bytes + _INT32.pack(partition)).digest()


class ChainPoints:
    """Some of the hashes since an anchor, spread evenly: each batch at first, then every second, fourth and so on."""

    def __init__(self) -> None:
        self._points: list[tuple[int, str]] = []
        self._stride = 1
        self._count = 0

    def add(self, offset: int, value: bytes) -> None:
        """Take the hash of the chain at an offset."""
        self._count += 1
        if self._count % self._stride:
            return
        self._points.append((offset, value.hex()[:POINT_DIGITS]))
        if len(self._points) > POINTS_MAX:
            self._points = self._points[1::2]
            self._stride *= 2

    def taken(self) -> str:
        """Return them as a line has them, and forget them."""
        points = ",".join(f"{offset}:{digits}" for offset, digits in self._points)
        self._points, self._stride, self._count = [], 1, 0
        return points


def points_of(text: str) -> dict[int, str]:
    """Return the points of a line: the first digits of the hash by offset."""
    pairs = (point.partition(":") for point in text.split(",") if point)
    return {int(offset): digits for offset, _, digits in pairs if offset.isdecimal()}


class ChainedBatch(NamedTuple):
    """A batch that was added to a chain: the offset after it, and the hash there."""

    next_offset: int
    value: bytes


def extended(value: bytes, data: bytes | memoryview, limit_offset: int) -> list[ChainedBatch]:
    """Add the whole batches at the beginning of `data` that end below `limit_offset` to a chain with this hash."""
    found = []
    view = memoryview(data)
    at, size = 0, len(view)
    while size - at >= HEADER_SIZE:
        header = HEADER.unpack_from(view, at)
        end = at + PREFIX_SIZE + max(header[BATCH_LENGTH], HEADER_SIZE - PREFIX_SIZE)
        next_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
        if end > size or next_offset > limit_offset:
            break
        hasher = hashlib.sha256(value)
        hasher.update(view[at:end])
        value = hasher.digest()
        found.append(ChainedBatch(next_offset, value))
        at = end
    return found


class Anchor(NamedTuple):
    """What a line says of a partition."""

    topic_id: UUID
    partition: int
    offset: int
    """The hash is over everything before it."""
    value: bytes
    begins: bool = False
    """Whether the chain begins here: there was no anchor, or none that the log reaches any more."""
    after: int = -1
    """The offset of the anchor before it; -1 if none was known."""
    points: str = ""
    """Hashes since the anchor before: `offset:digits`, comma-separated. As text, because a reader has many anchors."""

    @property
    def place(self) -> tuple[UUID, int]:
        return self.topic_id, self.partition


def anchor_event(anchor: Anchor, topic: str, leader_epoch: int) -> AuditEvent:
    """Return the event whose line is this anchor."""
    details: dict[str, Any] = {
        "topic_id": str(anchor.topic_id),
        "partition": anchor.partition,
        "offset": anchor.offset,
        "hash": anchor.value.hex(),
        "leader_epoch": leader_epoch,
    }
    if anchor.begins:
        details["begins"] = True
    if anchor.after >= 0:
        details["after"] = anchor.after
    if anchor.points:
        details["points"] = anchor.points
    return AuditEvent(ANCHOR, SUCCESS, resource_type="TOPIC", resource=topic, details=tuple(details.items()))


def anchor_of(line: Any) -> Anchor | None:
    """Return the anchor of a line that was decoded; None if it is none."""
    if not isinstance(line, dict) or line.get("type") != ANCHOR:
        return None
    details = line.get("details")
    if not isinstance(details, dict):
        return None
    try:
        return Anchor(
            UUID(details["topic_id"]),
            int(details["partition"]),
            int(details["offset"]),
            bytes.fromhex(details["hash"]),
            bool(details.get("begins", False)),
            int(details.get("after", -1)),
            str(details.get("points", "")),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None

"""Tagged fields by which Produce and Fetch answers say who leads instead, and where it is (KIP-951).

A section of tagged fields: their count, then of each its number, its size and its content. All of these fit one byte
each here, save the size of the endpoints and the number of our own tag.

    partition   current leader      leader id int32, leader epoch int32, no tags of its own
                diverging epoch     epoch int32, end offset int64, no tags of its own (Fetch, for followers)
                tombstone horizon   offset int64 (Fetch, for followers; our own, and others skip it)
    answer      node endpoints      [node id int32, host, port int32, rack, no tags]
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from strandline.codec.wire import string, uvarint

NO_TAGS: Final = b"\x00"
PRODUCE_LEADER_TAG: Final = 0
FETCH_DIVERGING_TAG: Final = 0
FETCH_LEADER_TAG: Final = 1
FETCH_HORIZON_TAG: Final = 20_000
"""As our own API keys do, our own tags begin there."""
ENDPOINTS_TAG: Final = 0

_LEADER = Struct(">BBBiiB")
_DIVERGING = Struct(">BBBiqB")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_HORIZON_HEAD: Final = b"\x01" + uvarint(FETCH_HORIZON_TAG) + b"\x08"


class NodeEndpoint(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None


def leader_section(tag: int, leader_id: int, leader_epoch: int) -> bytes:
    """Return the tagged fields of a partition whose leader is another."""
    return _LEADER.pack(1, tag, 9, leader_id, leader_epoch, 0)


def diverging_section(epoch: int, end_offset: int) -> bytes:
    """Return the tagged fields of a partition in which a follower's log is not a part of its leader's."""
    return _DIVERGING.pack(1, FETCH_DIVERGING_TAG, 13, epoch, end_offset, 0)


def horizon_section(tombstone_horizon: int) -> bytes:
    """Return the tagged fields of a partition from which tombstones were removed that the follower has not fetched."""
    return _HORIZON_HEAD + _INT64.pack(tombstone_horizon)


def endpoints_section(endpoints: Sequence[NodeEndpoint]) -> bytes:
    """Return the tagged fields of an answer that names leaders."""
    if not endpoints:
        return NO_TAGS
    parts = [uvarint(len(endpoints) + 1)]
    for node_id, host, port, rack in endpoints:
        parts += (_INT32.pack(node_id), string(host, True), _INT32.pack(port))
        parts += (b"\x00" if rack is None else string(rack, True), NO_TAGS)
    content = b"".join(parts)
    return b"\x01" + bytes((ENDPOINTS_TAG,)) + uvarint(len(content)) + content

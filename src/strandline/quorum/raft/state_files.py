"""The small files beside the metadata log, as texts: `meta.properties` and `quorum-state`.

    <data>/meta.properties                       who this directory belongs to
    <data>/__cluster_metadata-0/quorum-state     the newest epoch, and who got our vote in it

Both are Kafka's formats, so that Kafka's tools read our directories and we read Kafka's.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import json
import uuid
from typing import Any

from strandline.config.properties import format_properties, parse_properties
from strandline.errors import CorruptLog
from strandline.ids import ZERO_UUID

META_PROPERTIES_VERSION = "1"


def uuid_text(value: uuid.UUID) -> str:
    """Return a UUID as Kafka writes it: base64 for URLs, without padding, 22 characters."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def parse_uuid(text: str) -> uuid.UUID:
    """Return the UUID that Kafka would write as `text`; raise CorruptLog if it is invalid."""
    try:
        decoded = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise CorruptLog(f"{text!r} is no id: {error}") from error
    if len(decoded) != 16:
        raise CorruptLog(f"{text!r} is no id: {len(decoded)} bytes instead of 16")
    return uuid.UUID(bytes=decoded)


@dataclasses.dataclass(frozen=True, slots=True)
class MetaProperties:
    """Whose directory this is. A node refuses one that belongs to another cluster or another node."""

    cluster_id: str
    node_id: int
    directory_id: uuid.UUID

    def text(self) -> str:
        return format_properties(
            {
                "node.id": str(self.node_id),
                "version": META_PROPERTIES_VERSION,
                "directory.id": uuid_text(self.directory_id),
                "cluster.id": self.cluster_id,
            }
        )

    @classmethod
    def parse(cls, text: str) -> MetaProperties:
        """CorruptLog if the text is not a version 1 `meta.properties`."""
        properties = parse_properties(text)
        if properties.get("version") != META_PROPERTIES_VERSION:
            raise CorruptLog(
                f"meta.properties: version {properties.get('version')} is not known; expected {META_PROPERTIES_VERSION}"
            )
        node_id = properties.get("node.id", "")
        if not (node_id.isascii() and node_id.isdigit()):
            raise CorruptLog(f"meta.properties: node.id={node_id!r} is no node id")
        if not properties.get("cluster.id"):
            raise CorruptLog("meta.properties: cluster.id is missing")
        # Directories made before Kafka 3.7 have no id.
        directory_id = properties.get("directory.id")
        return cls(properties["cluster.id"], int(node_id), parse_uuid(directory_id) if directory_id else ZERO_UUID)


@dataclasses.dataclass(frozen=True, slots=True)
class QuorumState:
    """What a voter must not forget: the newest epoch it knows, its leader, and whom it voted for there."""

    leader_epoch: int = 0
    leader_id: int = -1
    voted_id: int = -1
    voted_directory_id: uuid.UUID = ZERO_UUID

    def text(self) -> str:
        return json.dumps(
            {
                "leaderId": self.leader_id,
                "leaderEpoch": self.leader_epoch,
                "votedId": self.voted_id,
                "votedDirectoryId": uuid_text(self.voted_directory_id),
                "data_version": 1,
            },
            separators=(",", ":"),
        )

    @classmethod
    def parse(cls, text: str) -> QuorumState:
        """Versions 0 and 1 of the file; CorruptLog for anything else, because a forgotten vote can be cast twice."""
        try:
            content = json.loads(text)
        except ValueError as error:
            raise CorruptLog(f"quorum-state: {error}") from error
        if not isinstance(content, dict) or content.get("data_version") not in (0, 1):
            raise CorruptLog("quorum-state: not version 0 or 1")
        voted_directory_id = content.get("votedDirectoryId")
        if voted_directory_id is not None and not isinstance(voted_directory_id, str):
            raise CorruptLog(f"quorum-state: votedDirectoryId is {voted_directory_id!r}")
        return cls(
            leader_epoch=_number(content, "leaderEpoch"),
            leader_id=_number(content, "leaderId"),
            voted_id=_number(content, "votedId"),
            voted_directory_id=parse_uuid(voted_directory_id) if voted_directory_id else ZERO_UUID,
        )


def _number(content: dict[str, Any], name: str) -> int:
    value = content.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise CorruptLog(f"quorum-state: {name} is {value!r}, not a number")
    return value

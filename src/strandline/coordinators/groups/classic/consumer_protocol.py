"""What consumers say to each other through the classic protocol: subscriptions and assignments of "consumer" groups.

    metadata of a JoinGroup protocol      | version int16 | ConsumerProtocolSubscription |
    assignment of a SyncGroup             | version int16 | ConsumerProtocolAssignment   |

To a classic group these bytes are opaque. They are opened where the coordinator has to know them: when a group moves
between the protocols, when it asks whether a topic is still subscribed, and when it tells who owned what. A version
that is newer than ours is read as our newest, and what follows is left alone: fields are only ever added at the end.
"""

from __future__ import annotations

from struct import Struct
from typing import TypeVar

from strandline.codec.message import Message
from strandline.codec.message_codec import decode, encode_into
from strandline.codec.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from strandline.codec.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from strandline.errors import MalformedMessage

PROTOCOL_TYPE = "consumer"

VERSION = Struct(">h")

M = TypeVar("M", bound=Message)


def decode_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """Raises MalformedMessage if a member wrote something else."""
    return _decode(ConsumerProtocolSubscription, metadata)


def decode_assignment(assignment: bytes) -> ConsumerProtocolAssignment:
    """Raises MalformedMessage. The empty bytes are none either: a member has them before it ever got an assignment."""
    return _decode(ConsumerProtocolAssignment, assignment)


def encode_subscription(subscription: ConsumerProtocolSubscription, version: int) -> bytes:
    return _encode(subscription, version)


def encode_assignment(assignment: ConsumerProtocolAssignment, version: int) -> bytes:
    """`version` is that of the member's subscription: a member understands what it speaks."""
    return _encode(assignment, version)


def version_of(versioned: bytes) -> int:
    if len(versioned) < VERSION.size:
        raise MalformedMessage("bytes of the consumer protocol that end before their version")
    version: int = VERSION.unpack_from(versioned)[0]
    if version < 0:
        raise MalformedMessage(f"bytes of the consumer protocol with version {version}")
    return version


def _decode(cls: type[M], versioned: bytes) -> M:
    version = min(version_of(versioned), cls.VERSION_MAX)
    message, _ = decode(cls, version, versioned, VERSION.size)
    return message


def _encode(message: Message, version: int) -> bytes:
    # The version that is written is the one that was used: a member of the future gets our newest.
    version = min(version, message.VERSION_MAX)
    out = bytearray(VERSION.pack(version))
    encode_into(out, message, version)
    return bytes(out)

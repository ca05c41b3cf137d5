"""Keys and values of the records on internal topics.

A record of `__cluster_metadata` has no key; its value opens with three unsigned varints:

    | frame version = 1 | record id | record version | body |

A record of `__consumer_offsets`, `__transaction_state` or `__share_group_state` opens both parts with an int16:

    key:   | record id (int16) | body, version 0 |
    value: | version (int16)   | body            |        a null value takes the key's record away

The ids of the three topics overlap, so the topic decides what a key means.
"""

from __future__ import annotations

import struct
from importlib import import_module
from typing import TYPE_CHECKING

from strandline.codec.message_codec import decode_exact, encode_into
from strandline.codec.messages.index import INDEX
from strandline.codec.primitives import read_uvarint, write_uvarint
from strandline.errors import MalformedMessage, UnsupportedVersion

if TYPE_CHECKING:
    from strandline.codec.message import Message
    from strandline.codec.message_codec import Buffer

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
SHARE_GROUP_STATE = "__share_group_state"

FRAME_VERSION = 1

_KINDS = {
    CONSUMER_OFFSETS: "consumer-offsets",
    TRANSACTION_STATE: "transaction-state",
    SHARE_GROUP_STATE: "share-state",
}
_KEY_VERSION = 0


class UnknownRecord(UnsupportedVersion):
    """A record id that this build does not know: written by a newer broker, and whole as far as we can tell.

    Kafka steps over such records on the coordinators' topics and stops at them in the metadata log.
    """


def message_class(kind: str, identifier: int) -> type[Message]:
    """The class with this id among `request`, `response`, `metadata`, `consumer-offsets-key`, ...; imported now."""
    found = INDEX.get(kind, {}).get(identifier)
    if found is None:
        raise UnknownRecord(f"no {kind} has the id {identifier}")
    module, name = found
    cls: type[Message] = getattr(import_module(f"strandline.codec.messages.{module}"), name)
    return cls


def encode_metadata_record(message: Message, version: int | None = None) -> bytes:
    """Encode the value of a metadata record, by default in its newest version."""
    version = message.VERSION_MAX if version is None else version
    assert INDEX["metadata"].get(message.API_KEY, ("", ""))[1] == type(message).__name__, "no metadata record"
    out = bytearray()
    write_uvarint(out, FRAME_VERSION)
    write_uvarint(out, message.API_KEY)
    write_uvarint(out, version)
    encode_into(out, message, version)
    return bytes(out)


def decode_metadata_record(value: Buffer) -> Message:
    """The metadata record in `value`; its class says which one it is."""
    try:
        frame_version, position = read_uvarint(value, 0)
        identifier, position = read_uvarint(value, position)
        version, position = read_uvarint(value, position)
    except IndexError:
        raise MalformedMessage("a metadata record that ends in its frame") from None
    if frame_version != FRAME_VERSION:
        raise UnsupportedVersion(f"a metadata record with frame version {frame_version}")
    return decode_exact(message_class("metadata", identifier), version, value, position)


def encode_coordinator_key(message: Message) -> bytes:
    """Return the key of a coordinator's record: the record's id, then the body."""
    out = bytearray(struct.pack(">h", message.API_KEY))
    encode_into(out, message, _KEY_VERSION)
    return bytes(out)


def encode_coordinator_value(message: Message, version: int | None = None) -> bytes:
    """Encode the value of a coordinator's record, by default in its newest version."""
    version = message.VERSION_MAX if version is None else version
    out = bytearray(struct.pack(">h", version))
    encode_into(out, message, version)
    return bytes(out)


def decode_coordinator_record(
    key: Buffer, value: Buffer | None, *, topic: str = CONSUMER_OFFSETS
) -> tuple[Message, Message | None]:
    """Key and value of a record of `topic`; a tombstone has no value."""
    identifier, position = _read_int16(key)
    kind = _KINDS[topic]
    key_message = decode_exact(message_class(f"{kind}-key", identifier), _KEY_VERSION, key, position)
    if value is None:
        return key_message, None
    version, position = _read_int16(value)
    return key_message, decode_exact(message_class(f"{kind}-value", identifier), version, value, position)


def _read_int16(buffer: Buffer) -> tuple[int, int]:
    if len(buffer) < 2:
        raise MalformedMessage("a coordinator's record that ends before its id or version")
    number: int = struct.unpack_from(">h", buffer)[0]
    return number, 2

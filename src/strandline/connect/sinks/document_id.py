"""Ids of documents, for indexes that name them by text."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Final

from strandline.connect.failures import RecordFailed
from strandline.connect.records import SinkRecord
from strandline.connect.sinks.plain_json import value_bytes

ENCODED: Final = "base64:"


def document_id(record: SinkRecord, *, by_key: bool, size_bytes_max: int) -> str:
    """Return the id of a record: its key, or topic, partition and offset. Raise RecordFailed if it can have none."""
    if not by_key:
        return f"{record.original_topic or record.topic}+{record.original_partition}+{record.offset}"
    key = b"" if record.key is None else value_bytes(record.key, record)
    if not key:
        raise RecordFailed(f"the record of {record.place} has no key, which names its document", record)
    text = key_text(key)
    if len(text.encode()) > size_bytes_max:
        raise RecordFailed(f"the key of the record of {record.place} is longer than {size_bytes_max} bytes", record)
    return text


def key_text(key: bytes) -> str:
    """Return a key as text; different keys have different texts.

    A key that is not UTF-8 is written in base64 behind a prefix. So is a text that begins with this prefix.
    """
    try:
        text = key.decode()
    except UnicodeDecodeError:
        text = ENCODED
    return ENCODED + b64encode(key).decode() if text.startswith(ENCODED) else text


def key_bytes(text: str) -> bytes:
    """Return the key that has a text."""
    return b64decode(text.removeprefix(ENCODED)) if text.startswith(ENCODED) else text.encode()

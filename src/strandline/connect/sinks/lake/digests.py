"""Digests of rows, for the comparison of a table with its topic."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import pyarrow as pa

from strandline.connect.sinks.verifiable import TargetKey


def row_key(place: str, row: Mapping[str, Any], key_fields: Sequence[str]) -> TargetKey:
    """Return the name of a row: its table, and its key as texts."""
    return TargetKey(place, tuple(_text(row[name]) for name in key_fields))


def row_digest(row: Mapping[str, Any]) -> bytes:
    """Return a digest of a row's values. Nulls do not count, because a column may be added after the row."""
    return blake2b(_text(row).encode(), digest_size=16).digest()


def table_digests(place: str, rows: pa.Table, key_fields: Sequence[str]) -> Iterator[tuple[TargetKey, bytes]]:
    """Yield the key and the digest of every row."""
    for part in rows.to_batches():
        for row in part.to_pylist():
            yield row_key(place, row, key_fields), row_digest(row)


def plain_row(row: Any) -> bytes:
    """Return a row as text that is equal for equal rows, though their columns were typed by other rows beside them.

    What is empty does not count, because a column may have no type without it. Neither does a decimal point.
    """
    return _text(_bare(row)).encode()


def _bare(value: Any) -> Any:
    if isinstance(value, Mapping):
        parts = {name: _bare(each) for name, each in value.items()}
        return {name: each for name, each in parts.items() if each is not None} or None
    if isinstance(value, list | tuple):
        return [each for each in map(_bare, value) if each is not None] or None
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _text(value: Any) -> str:
    return json.dumps(_without_nulls(value), default=_plain, sort_keys=True, ensure_ascii=True)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    if isinstance(value, list | tuple):
        return [_without_nulls(each) for each in value]
    return value


def _plain(value: Any) -> str:
    return b64encode(value).decode() if isinstance(value, bytes) else str(value)

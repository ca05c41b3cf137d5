"""The messages of PostgreSQL's output plugin pgoutput, protocol version 1, with values as text.

    B begin      final_lsn i64, commit time i64, xid u32
    C commit     flags u8, commit_lsn i64, end_lsn i64, commit time i64
    O origin     origin_lsn i64, name
    R relation   oid u32, schema, table, replica identity u8, columns u16, (flags u8, name, type u32, modifier i32)*
    I insert     oid u32, "N", row
    U update     oid u32, ["K" row of the key | "O" whole old row], "N", row
    D delete     oid u32, "K" row of the key | "O" whole old row
    T truncate   tables u32, options u8, oid u32*
    M message    flags u8, lsn i64, prefix, length u32, content
    Y type       ignored: the catalogue of types is asked instead

    row          columns u16, ("n" | "u" | "t" length u32, text)*

A name ends with a zero byte. Numbers are big-endian. Rows are plain lists of bytes, because there are many.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final, NamedTuple

from strandline.cdc.model import UNCHANGED
from strandline.connect.failures import ConnectFailed

BEGIN: Final = ord("B")
COMMIT: Final = ord("C")
ORIGIN: Final = ord("O")
RELATION: Final = ord("R")
INSERT: Final = ord("I")
UPDATE: Final = ord("U")
DELETE: Final = ord("D")
TRUNCATE: Final = ord("T")
MESSAGE: Final = ord("M")
TYPE: Final = ord("Y")
KEY_ROW: Final = ord("K")
OLD_ROW: Final = ord("O")

EPOCH_US: Final = 946_684_800_000_000
"""2000-01-01, where PostgreSQL's times begin, in microseconds since 1970."""

_BEGIN: Final = Struct("!QqI")
_COMMIT: Final = Struct("!BQQq")
_RELATION_COLUMN: Final = Struct("!Ii")
_MESSAGE: Final = Struct("!BQ")
_U16: Final = Struct("!H").unpack_from
_U32: Final = Struct("!I").unpack_from
_U64: Final = Struct("!Q").unpack_from
_TEXT: Final = ord("t")
_NULL: Final = ord("n")
_UNCHANGED: Final = ord("u")


class Begin(NamedTuple):
    """The begin of a transaction; it is sent when the transaction has committed."""

    final_lsn: int
    """Where its commit begins in the WAL."""
    commit_us: int
    """Microseconds since 1970."""
    xid: int


class Commit(NamedTuple):
    """The end of a transaction."""

    commit_lsn: int
    end_lsn: int
    """Behind its commit: a stream that begins here does not have it."""
    commit_us: int


class RelationColumn(NamedTuple):
    """A column as the stream describes it."""

    name: str
    type_oid: int
    modifier: int
    is_key: bool
    """Whether it is part of the replica identity."""


class StreamRelation(NamedTuple):
    """A table as the stream describes it; it comes before the first row of each shape."""

    oid: int
    schema: str
    name: str
    identity: str
    """The replica identity: default, nothing, full or index, by their first letters."""
    columns: tuple[RelationColumn, ...]


class LogicalMessage(NamedTuple):
    """What `pg_logical_emit_message` wrote."""

    is_transactional: bool
    lsn: int
    prefix: str
    content: bytes


class UnknownMessage(ConnectFailed):
    """The stream has a message that this version does not know, or that is cut off."""


def begin(message: bytes) -> Begin:
    """Decode a begin."""
    final_lsn, commit_us, xid = _BEGIN.unpack_from(message, 1)
    return Begin(final_lsn, commit_us + EPOCH_US, xid)


def commit(message: bytes) -> Commit:
    """Decode a commit."""
    _, commit_lsn, end_lsn, commit_us = _COMMIT.unpack_from(message, 1)
    return Commit(commit_lsn, end_lsn, commit_us + EPOCH_US)


def origin(message: bytes) -> tuple[int, str]:
    """Decode an origin: its LSN and its name."""
    (lsn,) = _U64(message, 1)
    return lsn, _name(message, 9)[0]


def relation(message: bytes) -> StreamRelation:
    """Decode a relation. An empty schema stands for pg_catalog."""
    (oid,) = _U32(message, 1)
    schema, at = _name(message, 5)
    name, at = _name(message, at)
    identity = chr(message[at])
    (count,) = _U16(message, at + 1)
    at += 3
    columns = []
    for _ in range(count):
        is_key = bool(message[at] & 1)
        column, at = _name(message, at + 1)
        type_oid, modifier = _RELATION_COLUMN.unpack_from(message, at)
        at += _RELATION_COLUMN.size
        columns.append(RelationColumn(column, type_oid, modifier, is_key))
    return StreamRelation(oid, schema or "pg_catalog", name, identity, tuple(columns))


def relation_oid(message: bytes) -> int:
    """Return the table of an insert, update or delete."""
    oid: int = _U32(message, 1)[0]
    return oid


def insert(message: bytes) -> list[Any]:
    """Return the row of an insert."""
    return _row(message, 6)[0]


def update(message: bytes) -> tuple[int, list[Any] | None, list[Any]]:
    """Return the kind of the old row (0 without one), the old row and the new one."""
    kind = message[5]
    if kind not in (KEY_ROW, OLD_ROW):
        return 0, None, _row(message, 6)[0]
    old, at = _row(message, 6)
    return kind, old, _row(message, at + 1)[0]


def delete(message: bytes) -> tuple[int, list[Any]]:
    """Return the kind of the old row, and the row."""
    return message[5], _row(message, 6)[0]


def truncate(message: bytes) -> tuple[int, ...]:
    """Return the tables of a truncate."""
    (count,) = _U32(message, 1)
    return Struct(f"!{count}I").unpack_from(message, 6)


def logical_message(message: bytes) -> LogicalMessage:
    """Decode a logical message."""
    flags, lsn = _MESSAGE.unpack_from(message, 1)
    prefix, at = _name(message, 1 + _MESSAGE.size)
    (length,) = _U32(message, at)
    return LogicalMessage(bool(flags & 1), lsn, prefix, message[at + 4 : at + 4 + length])


def _name(message: bytes, at: int) -> tuple[str, int]:
    end = message.index(0, at)
    return message[at:end].decode(), end + 1


def _row(message: bytes, at: int) -> tuple[list[Any], int]:
    """Return a row, and where it ends: bytes, None for NULL, UNCHANGED for a value that was not sent."""
    (count,) = _U16(message, at)
    at += 2
    row: list[Any] = []
    append = row.append
    for _ in range(count):
        kind = message[at]
        if kind == _TEXT:
            start = at + 5
            at = start + _U32(message, at + 1)[0]
            append(message[start:at])
        elif kind == _NULL:
            append(None)
            at += 1
        elif kind == _UNCHANGED:
            append(UNCHANGED)
            at += 1
        else:
            raise UnknownMessage(f"the replication stream has a column of the unknown kind {kind}")
    if at > len(message):
        raise UnknownMessage("the replication stream has a row that is cut off")
    return row, at

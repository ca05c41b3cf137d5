"""The decoder of pgoutput: each message, and messages that are cut off."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from strandline.cdc.model import UNCHANGED
from strandline.cdc.postgres import pgoutput
from strandline.cdc.postgres.connection import lsn_of, lsn_text
from strandline.cdc.postgres.copying import fields_of
from strandline.cdc.postgres.pgoutput import EPOCH_US, Begin, Commit, LogicalMessage, RelationColumn, StreamRelation

LSN = 0x1_2345_6789


def row(*values: Any) -> bytes:
    made = struct.pack("!H", len(values))
    for each in values:
        if each is None:
            made += b"n"
        elif each is UNCHANGED:
            made += b"u"
        else:
            made += b"t" + struct.pack("!I", len(each)) + each
    return made


RELATION = (
    b"R"
    + struct.pack("!I", 42)
    + b"public\0"
    + "Odd Näme\0".encode()
    + b"d"
    + struct.pack("!H", 2)
    + b"\1id\0"
    + struct.pack("!Ii", 23, -1)
    + b"\0text\0"
    + struct.pack("!Ii", 1043, 14)
)


@pytest.mark.parametrize(
    ("decode", "message", "expected"),
    [
        (pgoutput.begin, b"B" + struct.pack("!QqI", LSN, 5, 7), Begin(LSN, EPOCH_US + 5, 7)),
        (pgoutput.commit, b"C" + struct.pack("!BQQq", 0, LSN, LSN + 8, 5), Commit(LSN, LSN + 8, EPOCH_US + 5)),
        (pgoutput.origin, b"O" + struct.pack("!Q", LSN) + b"other\0", (LSN, "other")),
        (
            pgoutput.relation,
            RELATION,
            StreamRelation(
                42,
                "public",
                "Odd Näme",
                "d",
                (RelationColumn("id", 23, -1, True), RelationColumn("text", 1043, 14, False)),
            ),
        ),
        (pgoutput.insert, b"I\0\0\0\x2aN" + row(b"1", None, b""), [b"1", None, b""]),
        (pgoutput.update, b"U\0\0\0\x2aN" + row(b"1", UNCHANGED), (0, None, [b"1", UNCHANGED])),
        (
            pgoutput.update,
            b"U\0\0\0\x2aK" + row(b"1", None) + b"N" + row(b"2", b"x"),
            (pgoutput.KEY_ROW, [b"1", None], [b"2", b"x"]),
        ),
        (
            pgoutput.update,
            b"U\0\0\0\x2aO" + row(b"1", b"y") + b"N" + row(b"1", b"x"),
            (pgoutput.OLD_ROW, [b"1", b"y"], [b"1", b"x"]),
        ),
        (pgoutput.delete, b"D\0\0\0\x2aO" + row(b"1", b"y"), (pgoutput.OLD_ROW, [b"1", b"y"])),
        (pgoutput.truncate, b"T" + struct.pack("!IBII", 2, 0, 42, 43), (42, 43)),
        (
            pgoutput.logical_message,
            b"M" + struct.pack("!BQ", 1, LSN) + b"p\0" + struct.pack("!I", 3) + b"a\0b",
            LogicalMessage(True, LSN, "p", b"a\0b"),
        ),
    ],
)
def test_each_message_is_decoded_and_cut_ones_are_noticed(
    decode: Callable[[bytes], Any], message: bytes, expected: Any
) -> None:
    assert decode(message) == expected
    for size in range(1, len(message)):
        if decode is pgoutput.logical_message and size >= len(message) - 3:
            continue
        with pytest.raises((pgoutput.UnknownMessage, struct.error, IndexError, ValueError)):
            decode(message[:size])


def test_a_column_of_an_unknown_kind_is_named() -> None:
    with pytest.raises(pgoutput.UnknownMessage, match="unknown kind 98"):
        pgoutput.insert(b"I\0\0\0\x2aN\0\1b\0\0\0\0")


def test_positions_are_written_as_postgresql_writes_them() -> None:
    assert lsn_text(LSN) == "1/23456789"
    assert lsn_of("1/23456789") == LSN
    assert lsn_of("0/0") == 0


def test_lines_of_copy_are_unescaped() -> None:
    assert fields_of(b"1\tplain\t\n") == [b"1", b"plain", b""]
    assert fields_of(b"\\N\ta\\tb\\nc\\\\d\t\\\\N\t\\\\x00ff\n") == [None, b"a\tb\nc\\d", b"\\N", b"\\x00ff"]

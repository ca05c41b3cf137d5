"""What a program consists of: nodes of eight numbers, and why a value can not be read.

A node is a row of the node table:

    operation | column | level | a | b | c | first | count

`column` is where results go and `level` says which row of it is the current one: rows of level 0 are values, rows of
another level are items of one array or map. `first` and `count` are a part of the table of numbers.

    FAIL                a: why
    NOTHING                nothing is read
    VALID               the row of the column is not null; goes on with node b
    DEFAULT             goes on with node b, which reads `c` bytes at `a` of the constants
    RECORD              goes on with each node of the part
    UNION               reads a branch; goes on with the node of the part that it names
    ARRAY, MAP          a: level of the items, b: node of an item; a map has its keys in the column c
    BOOLEAN             1 or 0
    INT, LONG           times a
    REAL_INT, FLOAT     a number as a floating one
    DOUBLE              the bits of a floating number
    BYTES, TEXT         position and length, in one number
    FIXED               the same, of a bytes
    DECIMAL             a bytes, or a length if a is -1; the digits' bound is at b of the table of bounds
    ENUM                the number of the part that the branch names
    PASS_*              the same without a column
"""

from __future__ import annotations

from typing import Final

NODE_NUMBERS: Final = 8
FAIL, NOTHING, VALID, DEFAULT, RECORD, UNION, ARRAY, MAP = range(8)
BOOLEAN, INT, LONG, REAL_INT, FLOAT, DOUBLE, BYTES, TEXT, FIXED, DECIMAL, ENUM = range(8, 19)
PASS_VARINT, PASS_FIXED, PASS_BYTES, PASS_ARRAY, PASS_MAP = range(19, 24)

DEPTH_MAX: Final = 200
"""Nodes inside nodes while one value is read."""
STEPS_PER_BYTE_MAX: Final = 64
"""Nodes that are visited for each byte of a value and each node of its program. Types without bytes cost steps, too."""

CUT_SHORT, TOO_LONG, BAD_LENGTH, BAD_NUMBER, BAD_BRANCH, BAD_SYMBOL, BAD_TEXT, BAD_DIGITS, TOO_MUCH = range(1, 10)
REASONS: Final = {
    CUT_SHORT: "the value ends in the middle of a field",
    TOO_LONG: "the value goes on behind its last field",
    BAD_LENGTH: "a length or count is negative or leaves the value",
    BAD_NUMBER: "a number does not fit its type",
    BAD_BRANCH: "a union has no such branch",
    BAD_SYMBOL: "an enum has no such symbol",
    BAD_TEXT: "a string is not UTF-8",
    BAD_DIGITS: "a decimal has more digits than its type",
    TOO_MUCH: "the value is nested too deep, or takes too many steps for its size",
}
FIRST_REASON: Final = 16
"""The least code of a program's own reasons."""

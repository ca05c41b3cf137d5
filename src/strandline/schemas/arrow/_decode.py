"""The hot loop of Avro: runs a program over values, and notes numbers and positions in columns.

This file is both twins: plain Python as it stands, an extension where Cython compiled the same text with the C types of
`_decode.pxd`. Nothing is made per value. Two rules follow from C: no expression may leave 64 bits, and every index is
checked. A value never reads beyond its own end, because another record's bytes follow there.

`ops` describes the nodes of a program. `wide`, `words` and `real` are the same memory as three types.
"""

from __future__ import annotations

from typing import Any

from strandline.schemas.arrow import ops

FAIL, NOTHING, VALID, DEFAULT, RECORD, UNION, ARRAY, MAP = (
    ops.FAIL,
    ops.NOTHING,
    ops.VALID,
    ops.DEFAULT,
    ops.RECORD,
    ops.UNION,
    ops.ARRAY,
    ops.MAP,
)
BOOLEAN, INT, LONG, REAL_INT, FLOAT, DOUBLE = ops.BOOLEAN, ops.INT, ops.LONG, ops.REAL_INT, ops.FLOAT, ops.DOUBLE
BYTES, TEXT, FIXED, DECIMAL, ENUM = ops.BYTES, ops.TEXT, ops.FIXED, ops.DECIMAL, ops.ENUM
PASS_VARINT, PASS_FIXED, PASS_BYTES, PASS_ARRAY, PASS_MAP = (
    ops.PASS_VARINT,
    ops.PASS_FIXED,
    ops.PASS_BYTES,
    ops.PASS_ARRAY,
    ops.PASS_MAP,
)
CUT_SHORT, TOO_LONG, BAD_LENGTH, BAD_NUMBER = ops.CUT_SHORT, ops.TOO_LONG, ops.BAD_LENGTH, ops.BAD_NUMBER
BAD_BRANCH, BAD_SYMBOL, BAD_TEXT = ops.BAD_BRANCH, ops.BAD_SYMBOL, ops.BAD_TEXT
BAD_DIGITS, TOO_MUCH = ops.BAD_DIGITS, ops.TOO_MUCH
DEPTH_MAX, STEPS_PER_BYTE_MAX = ops.DEPTH_MAX, ops.STEPS_PER_BYTE_MAX


def is_compiled() -> bool:
    """Return true in the extension, false in the plain twin."""
    return not __file__.endswith(".py")


class BadPayload(Exception):
    """A value that its schema does not describe; its argument is a code of `ops`."""


class PayloadReader:
    """A run of a program over values that lie in one buffer."""

    def __init__(self, nodes: Any, numbers: Any, bounds: Any, payload: Any, constants_at: int) -> None:
        self.nodes = nodes
        self.numbers = numbers
        self.bounds = bounds
        self.payload = payload
        self.constants_at = constants_at
        self.node_count = len(nodes) // 8
        self.checks_text = False
        self.fills = False
        self.position = self.end = self.steps = self.depth = 0

    def put_into(
        self, bases: Any, levels: Any, wide: Any, words: Any, real: Any, flags: Any, float_bits: Any, float_value: Any
    ) -> None:
        """Take the columns: where each begins, and their rows. Those are not touched while items are only counted."""
        self.bases = bases
        self.levels = levels
        self.wide = wide
        self.words = words
        self.real = real
        self.flags = flags
        self.float_bits = float_bits
        self.float_value = float_value

    def read_rows(
        self, starts: Any, ends: Any, errors: Any, before: Any, root: int, fills: bool, checks_text: bool
    ) -> None:
        """Read a value for each row that has no error; note a row's error. `before` has room for the levels."""
        first, last, codes, levels_before = starts, ends, errors, before
        self.fills = fills
        self.checks_text = checks_text
        for row in range(len(codes)):
            if codes[row]:
                continue
            for level in range(len(levels_before)):
                levels_before[level] = self.levels[level]
            self.levels[0] = row
            self.position = first[row]
            self.end = last[row]
            self.steps = STEPS_PER_BYTE_MAX * (self.end - self.position + self.node_count)
            self.depth = 0
            try:
                self.read(root)
                if self.position != self.end:
                    raise BadPayload(TOO_LONG)
            except BadPayload as error:
                codes[row] = error.args[0]
                # Items of a value that can not be read do not count.
                for level in range(len(levels_before)):
                    self.levels[level] = levels_before[level]

    def read(self, node: int) -> int:
        """Read what a node describes."""
        at = 8 * node
        operation = self.nodes[at]
        self.steps -= 1
        if self.steps < 0 or self.depth >= DEPTH_MAX:
            raise BadPayload(TOO_MUCH)
        if operation >= PASS_VARINT:
            self.depth += 1
            self.skip(at, operation)
            self.depth -= 1
        elif operation >= BYTES:
            self.read_bytes(at, operation)
        elif operation >= BOOLEAN:
            self.read_number(at, operation)
        else:
            self.depth += 1
            self.read_inside(at, operation)
            self.depth -= 1
        return 0

    def read_inside(self, at: int, operation: int) -> int:
        """Read a node that has others inside."""
        if operation == VALID:
            if self.fills:
                self.flags[self.slot(at)] = 1
            self.read(self.nodes[at + 4])
        elif operation == UNION:
            branch = self.varint()
            if branch < 0 or branch >= self.nodes[at + 7]:
                raise BadPayload(BAD_BRANCH)
            self.read(self.numbers[self.nodes[at + 6] + branch])
        elif operation == RECORD:
            first = self.nodes[at + 6]
            for index in range(self.nodes[at + 7]):
                self.read(self.numbers[first + index])
        elif operation == DEFAULT:
            # Work that the reader asks for is no sign of a hostile value.
            position, end, steps = self.position, self.end, self.steps
            self.position = self.constants_at + self.nodes[at + 3]
            self.end = self.position + self.nodes[at + 5]
            self.read(self.nodes[at + 4])
            self.position, self.end, self.steps = position, end, steps
        elif operation in (ARRAY, MAP):
            self.read_items(at, operation)
        elif operation == FAIL:
            raise BadPayload(self.nodes[at + 3])
        return 0

    def read_items(self, at: int, operation: int) -> int:
        """Read an array or map: blocks of items, the last of which is empty."""
        level = self.nodes[at + 3]
        item = self.nodes[at + 4]
        total = 0
        count = self.block()
        while count:
            total += count
            for _ in range(count):
                if operation == MAP:
                    self.read_key(self.nodes[at + 5], level)
                self.read(item)
                self.levels[level] += 1
            count = self.block()
        if self.fills:
            self.wide[self.slot(at)] = total
        return 0

    def read_key(self, column: int, level: int) -> int:
        """Read a key of a map, a text."""
        length = self.length()
        if self.checks_text:
            self.check_text(self.position, self.position + length)
        if self.fills:
            self.wide[self.bases[column] + self.levels[level]] = self.position << 32 | length
        self.position += length
        return 0

    def read_number(self, at: int, operation: int) -> int:
        """Read a number into its column."""
        if operation in (DOUBLE, FLOAT):
            return self.read_float(at, operation)
        if operation == BOOLEAN:
            number = self.boolean()
        else:
            number = self.varint()
            rest = number >> 31
            if operation == INT and rest != 0 and rest != -1:
                raise BadPayload(BAD_NUMBER)
        if operation == REAL_INT:
            if self.fills:
                self.real[self.slot(at)] = number
            return 0
        factor = self.nodes[at + 3]
        if factor != 1:
            # As a local this is a C integer; as it stands it would be a Python object.
            most = 0x7FFFFFFFFFFFFFFF
            limit = most // factor
            if number > limit or number < -limit:
                raise BadPayload(BAD_NUMBER)
            number *= factor
        if self.fills:
            self.wide[self.slot(at)] = number
        return 0

    def read_float(self, at: int, operation: int) -> int:
        """Read the bits of a floating number, least byte first."""
        size = 8 if operation == DOUBLE else 4
        position = self.position
        if size > self.end - position:
            raise BadPayload(CUT_SHORT)
        self.position = position + size
        if not self.fills:
            return 0
        bits = 0
        for index in range(size - 1, -1, -1):
            bits = bits << 8 | self.payload[position + index]
        if operation == DOUBLE:
            self.words[self.slot(at)] = bits
        else:
            self.float_bits[0] = bits
            self.real[self.slot(at)] = self.float_value[0]
        return 0

    def read_bytes(self, at: int, operation: int) -> int:
        """Note where bytes lie, or which symbol or decimal they are."""
        if operation == ENUM:
            return self.read_symbol(at)
        if operation in (BYTES, TEXT) or self.nodes[at + 3] < 0:
            length = self.length()
        else:
            length = self.nodes[at + 3]
            if length > self.end - self.position:
                raise BadPayload(CUT_SHORT)
        if operation == DECIMAL:
            return self.read_decimal(at, length)
        if operation == TEXT and self.checks_text:
            self.check_text(self.position, self.position + length)
        if self.fills:
            self.wide[self.slot(at)] = self.position << 32 | length
        self.position += length
        return 0

    def read_symbol(self, at: int) -> int:
        """Read an enum's symbol as the number that the reader has for it."""
        symbol = self.varint()
        if symbol < 0 or symbol >= self.nodes[at + 7]:
            raise BadPayload(BAD_SYMBOL)
        number = self.numbers[self.nodes[at + 6] + symbol]
        if number < 0:
            raise BadPayload(BAD_SYMBOL)
        if self.fills:
            self.wide[self.slot(at)] = number
        return 0

    def read_decimal(self, at: int, length: int) -> int:
        """Read up to 16 bytes of a number, the largest first, as two words: high, then low in the next column.

        The bounds are the words of the least number that is too large, and of the greatest that is too small.
        """
        if length < 1 or length > 16:
            raise BadPayload(BAD_DIGITS)
        position = self.position
        ones, mask = 0xFFFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFF
        is_negative = self.payload[position] >= 0x80
        # The sign goes on to the left.
        low = ones if is_negative else 0
        high = low
        for index in range(length):
            high = (high & mask) << 8 | low >> 56
            low = (low & mask) << 8 | self.payload[position + index]
        self.position = position + length
        bound = self.nodes[at + 4]
        if is_negative:
            fits = high > self.bounds[bound + 2] or (high == self.bounds[bound + 2] and low > self.bounds[bound + 3])
        else:
            fits = high < self.bounds[bound] or (high == self.bounds[bound] and low < self.bounds[bound + 1])
        if not fits:
            raise BadPayload(BAD_DIGITS)
        if self.fills:
            self.words[self.slot(at)] = high
            self.words[self.bases[self.nodes[at + 1] + 1] + self.levels[self.nodes[at + 2]]] = low
        return 0

    def skip(self, at: int, operation: int) -> int:
        """Pass over what the reader does not want."""
        if operation == PASS_VARINT:
            self.varint()
        elif operation == PASS_BYTES:
            length = self.length()
            self.position += length
        elif operation == PASS_FIXED:
            length = self.nodes[at + 3]
            if length > self.end - self.position:
                raise BadPayload(CUT_SHORT)
            self.position += length
        else:
            item = self.nodes[at + 4]
            count = self.block()
            while count:
                for _ in range(count):
                    if operation == PASS_MAP:
                        length = self.length()
                        self.position += length
                    self.read(item)
                count = self.block()
        return 0

    def slot(self, at: int) -> int:
        """Return the place of a node's current row."""
        place: int = self.bases[self.nodes[at + 1]] + self.levels[self.nodes[at + 2]]
        return place

    def boolean(self) -> int:
        position = self.position
        if position >= self.end:
            raise BadPayload(CUT_SHORT)
        byte: int = self.payload[position]
        if byte > 1:
            raise BadPayload(BAD_NUMBER)
        self.position = position + 1
        return byte

    def length(self) -> int:
        """Read the length of what follows, which must lie in the value."""
        length = self.varint()
        if length < 0 or length > self.end - self.position:
            raise BadPayload(BAD_LENGTH)
        return length

    def block(self) -> int:
        """Read the number of items in the next block. Each item costs a step, so a lying count ends soon."""
        count = self.varint()
        if count < 0:
            # The bytes of the block follow, for readers that pass over it. C has no positive of its least number.
            count = -count
            if self.varint() < 0 or count < 0:
                raise BadPayload(BAD_LENGTH)
        if count > self.steps:
            raise BadPayload(BAD_LENGTH)
        return count

    def varint(self) -> int:
        """Read a zigzag varint of up to 64 bits."""
        position = self.position
        if position >= self.end:
            raise BadPayload(CUT_SHORT)
        byte = self.payload[position]
        raw: int = byte & 0x7F
        shift = 7
        while byte >= 0x80:
            position += 1
            if position >= self.end:
                raise BadPayload(CUT_SHORT)
            byte = self.payload[position]
            if shift == 63 and byte > 1:
                raise BadPayload(BAD_NUMBER)
            raw |= (byte & 0x7F) << shift
            shift += 7
        self.position = position + 1
        return (raw >> 1) ^ -(raw & 1)

    def check_text(self, position: int, end: int) -> int:
        """Raise BadPayload if these bytes are not UTF-8."""
        while position < end:
            byte = self.payload[position]
            position += 1
            if byte < 0x80:
                continue
            if byte < 0xC2 or byte > 0xF4:
                raise BadPayload(BAD_TEXT)
            more = 1 if byte < 0xE0 else 2 if byte < 0xF0 else 3
            if more > end - position:
                raise BadPayload(BAD_TEXT)
            second = self.payload[position]
            # No second way to write a character, no half of a pair, nothing beyond the last character.
            if (
                (byte == 0xE0 and second < 0xA0)
                or (byte == 0xED and second > 0x9F)
                or (byte == 0xF0 and second < 0x90)
                or (byte == 0xF4 and second > 0x8F)
            ):
                raise BadPayload(BAD_TEXT)
            for _ in range(more):
                if self.payload[position] & 0xC0 != 0x80:
                    raise BadPayload(BAD_TEXT)
                position += 1
        return 0

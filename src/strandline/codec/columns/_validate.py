"""The hot loops over records of topics that validate schemas: the checks of `_check`, and schemas of keys and values.

A key or value that is validated begins with the id of its schema, as Confluent's serializers write it:

    0x00, schema id int32, payload

Like `_check` this file is both twins: plain Python as it stands, an extension where Cython compiled the same text with
the C types of `_validate.pxd`. The rules for records are those of `_check`; a fuzz target holds both against each
other. No object is made for a record that is accepted. The walk stops before a record whose id it sees for the first
time, and the caller says in `modes` what is to be done with that id.

With a program for an id the payload is decoded as Avro, and nothing is kept of it. A program is a list of numbers:
codes with their operands, which `schemas/avro/program` makes from a schema. Its work is bounded by the length of the
payload, because a small schema may nest many types that take no bytes.

No expression may leave 64 bits, and every index is checked, so a read past the end is an IndexError in both.
"""

from __future__ import annotations

from array import array

from strandline.codec.columns import schema_codes as codes
from strandline.codec.columns.schema_codes import WalkFault
from strandline.codec.compression import Buffer
from strandline.errors import CorruptBatch, InvalidRecords

# Numbers of C in the extension, so what other modules need of them is in `schema_codes`.
FAULTS_NAMED, DEEPEST, STEPS, STEPS_PER_BYTE = (
    codes.FAULTS_MAX,
    codes.LEVELS_MAX,
    codes.STEPS_MAX,
    codes.STEPS_PER_BYTE,
)
ACCEPTED, REFUSED, FIRST, NEW = codes.ACCEPTED, codes.REFUSED, codes.FIRST, codes.NEW
INT, LONG, ENUM, UNION, BYTES, STRING, BLOCKS = range(codes.INT, codes.BLOCKS + 1)
NEXT, BOOLEAN, SKIP, JUMP, CALL, RETURN, END = range(codes.NEXT, codes.END + 1)
KEYLESS, NO_ID, ID_REFUSED, TO_JUDGE, TOO_SHORT, BAD_NUMBER = range(codes.KEYLESS, codes.BAD_NUMBER + 1)
BAD_INT, BAD_SYMBOL, BAD_BRANCH, BAD_LENGTH, BAD_TEXT = range(codes.BAD_INT, codes.BAD_TEXT + 1)
BAD_BOOLEAN, BAD_BLOCK, TOO_DEEP, TOO_LONG, BYTES_LEFT = range(codes.BAD_BOOLEAN, codes.BYTES_LEFT + 1)
HIGH_BITS = 0x8080808080808080
"""Those of eight bytes. ASCII has none of them set."""
NO_WORDS = memoryview(b"").cast("Q")


def is_compiled() -> bool:
    """Return true in the extension, false in the plain twin."""
    return not __file__.endswith(".py")


class FieldRules:
    """What is known of the schema ids in the keys, or in the values, of a topic."""

    def __init__(self) -> None:
        self.modes: dict[int, int] = {}
        """By schema id: what is done with it."""
        self.program = array("i", (END,))
        """The programs of all ids, one behind the other."""
        self.last_id = -1
        self.last_mode = NEW

    def set_program(self, program: array[int]) -> None:
        """Take new programs. The array is never changed: the extension holds a view of it."""
        self.program = program


class RecordWalk:
    """The walk over the records of one topic. Between two calls it holds no batch."""

    def __init__(
        self, key: FieldRules | None, value: FieldRules | None, needs_key: bool, decodes: bool, steps_max: int
    ) -> None:
        self.key = key
        self.value = value
        self.needs_key = needs_key
        self.decodes = decodes
        self.steps_max = steps_max
        """Codes after which a call ends, with the record that it has begun."""
        self.steps = 0
        self.row = 0
        """The first record that the last call did not check."""
        self.new_id = -1
        """The id because of which it ended; -1 if it ended for another reason."""
        self.is_new_key = False
        self.payload: Buffer = b""
        self.words = NO_WORDS
        """The payload, eight bytes at a time, less up to seven at its end."""
        self.source: bytes | None = None
        """The payload as the interpreter decodes it; made when the first text is not ASCII."""
        self.position = 0
        self.end = 0
        self.timestamp_delta_min = 0
        self.timestamp_delta_max = 0
        self.fault_at = 0
        self.number = 0
        self.depth = 0
        self.stack = array("q", (0,)) * (2 * DEEPEST)

    def check(
        self,
        payload: Buffer,
        position: int,
        end: int,
        row: int,
        row_end: int,
        base_timestamp: int,
        faults: list[WalkFault],
    ) -> int:
        """Check records from `row` on, which begin at `position`; return the position after the last of them.

        The call may end before `row_end`: the attribute `row` says where. Raises InvalidRecords, which names the row,
        for a record that no reader could read, and nothing else. The caller compares the last position with the end.
        """
        if self.decodes:
            self.words = memoryview(payload)[: len(payload) & ~7].cast("Q")
            self.source = payload if isinstance(payload, bytes) else None
        self.payload = payload
        self.position = position
        self.end = end
        # Base and delta must add up within 64 bits.
        self.timestamp_delta_min = -0x7FFFFFFFFFFFFFFF - (base_timestamp if base_timestamp < 0 else 0)
        self.timestamp_delta_max = 0x7FFFFFFFFFFFFFFF - (base_timestamp if base_timestamp > 0 else 0)
        self.steps = 0
        self.new_id = -1
        for each in (self.key, self.value):
            if each is not None:
                each.last_id, each.last_mode = -1, NEW
        # A timestamp delta of two bytes cannot leave 64 bits then.
        may_pass = self.key is None and -0x7FFFFFFFFFFF <= base_timestamp <= 0x7FFFFFFFFFFF
        try:
            while row < row_end and self.steps <= self.steps_max:
                start = self.position
                self._check_record(row, faults)
                if self.new_id >= 0:
                    # The record is looked at again when its id is known.
                    self.position = start
                    while faults and faults[len(faults) - 1][0] == row:
                        faults.pop()
                    break
                row += 1
                if len(faults) >= FAULTS_NAMED:
                    break
                rules = self.value
                if may_pass and rules is not None and (rules.last_mode == ACCEPTED or rules.last_mode >= 0):
                    self.position = self._pass_alike(self.payload, rules, self.position, row, row_end)
                    row = self.row
        except IndexError:
            raise InvalidRecords.at(row, "the batch ends within it") from None
        except CorruptBatch as fault:
            raise InvalidRecords.at(row, str(fault)) from None
        finally:
            # The buffer belongs to the caller.
            self.payload = b""
            self.words = NO_WORDS
            self.source = None
        self.row = row
        return self.position

    def _varint(self, bytes_max: int) -> int:
        """Read an unsigned varint and move behind it. 5 bytes carry 32 bits, 10 carry 64."""
        value = self.payload[self.position]
        self.position += 1
        if value < 0x80:
            return value
        value &= 0x7F
        shift = 7
        index = 1
        while True:
            byte = self.payload[self.position]
            self.position += 1
            index += 1
            if index == bytes_max and byte > (0x0F if bytes_max == 5 else 0x01):
                raise CorruptBatch(f"a varint is longer than {bytes_max} bytes or overflows")
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def _check_record(self, row: int, faults: list[WalkFault]) -> None:
        """Check the record at the position and move behind it; `new_id` is set if its key or value has a new one."""
        length = self._varint(5)
        if length & 1 or length >> 1 > self.end - self.position:
            raise CorruptBatch("its length is negative or beyond the batch")
        record_end = self.position + (length >> 1)
        # The attributes byte of a record has no meaning yet, so its value is not checked.
        self.position += 1
        raw = self._varint(10)
        delta = (raw >> 1) ^ -(raw & 1)
        if delta < self.timestamp_delta_min or delta > self.timestamp_delta_max:
            raise CorruptBatch("its timestamp overflows")
        # A producer numbers without gaps, and every reader adds the delta to the batch's base offset.
        if self._varint(5) != row << 1:
            raise CorruptBatch("its offset delta is not its place in the batch")
        length = self._varint(5)
        if length == 1:
            if self.needs_key:
                faults.append((row, True, -1, self.position, self.position, KEYLESS, 0))
        else:
            if length & 1 or length >> 1 > record_end - self.position:
                raise CorruptBatch("its key leaves the record")
            if self.key is not None:
                self._check_field(self.key, row, True, self.position + (length >> 1), faults)
            self.position += length >> 1
        length = self._varint(5)
        if length != 1:
            if length & 1 or length >> 1 > record_end - self.position:
                raise CorruptBatch("its value leaves the record")
            if self.value is not None:
                self._check_field(self.value, row, False, self.position + (length >> 1), faults)
            self.position += length >> 1
        length = self._varint(5)
        if length:
            # A header takes two bytes at least, so a lying count ends here and not after a long walk.
            if length & 1 or length > record_end - self.position:
                raise CorruptBatch("its number of headers is impossible")
            self._skip_headers(length >> 1, record_end)
        if self.position != record_end:
            raise CorruptBatch("its fields do not fill the length it states")

    def _pass_alike(self, payload: Buffer, rules: FieldRules, position: int, row: int, row_end: int) -> int:
        """Pass over values with the last id in records without headers and with short varints: those of most batches.

        Return the position of the first other one; the attribute `row` has its row. Local variables make this quick.
        """
        value_id, place = rules.last_id, rules.last_mode
        needs_key, end, start = self.needs_key, self.end, position
        try:
            while row < row_end and self.steps <= self.steps_max:
                start = position
                byte = 0
                length = payload[position]
                position += 1
                if length >= 0x80:
                    byte = payload[position]
                    position += 1
                    length = length & 0x7F | byte << 7
                record_end = position + (length >> 1)
                if byte >= 0x80 or length & 1 or record_end > end:
                    break
                position += 1
                if payload[position] >= 0x80:
                    position += 1
                    if payload[position] >= 0x80:
                        break
                position += 1
                length = payload[position]
                position += 1
                if length >= 0x80:
                    byte = payload[position]
                    position += 1
                    length = length & 0x7F | byte << 7
                if byte >= 0x80 or length != row << 1:
                    break
                length = payload[position]
                position += 1
                if length != 1:
                    size = length >> 1
                    if length >= 0x80 or length & 1 or size > record_end - position:
                        break
                    position += size
                elif needs_key:
                    break
                length = payload[position]
                position += 1
                if length >= 0x80:
                    byte = payload[position]
                    position += 1
                    length = length & 0x7F | byte << 7
                if length != 1:
                    size = length >> 1
                    if byte >= 0x80 or length & 1 or size > record_end - position:
                        break
                    at = position
                    found = payload[at + 1] << 24 | payload[at + 2] << 16 | payload[at + 3] << 8 | payload[at + 4]
                    if size < 5 or payload[at] or found != value_id:
                        break
                    position += size
                    if place >= 0 and self._decode(rules, place, at + 5, position):
                        break
                if payload[position] != 0 or position + 1 != record_end:
                    break
                position += 1
                row += 1
                start = position
        except IndexError:
            pass
        self.row = row
        return start

    def _skip_headers(self, count: int, record_end: int) -> None:
        """Move behind `count` headers; none may leave its record."""
        for _ in range(count):
            length = self._varint(5)
            if length & 1 or length >> 1 > record_end - self.position:
                raise CorruptBatch("a header key is null or leaves the record")
            self.position += length >> 1
            length = self._varint(5)
            if length != 1:
                if length & 1 or length >> 1 > record_end - self.position:
                    raise CorruptBatch("a header value leaves the record")
                self.position += length >> 1

    def _check_field(self, rules: FieldRules, row: int, is_key: bool, end: int, faults: list[WalkFault]) -> int:
        """Check the key or value at the position, which stays; return 0, or why it is put on the list of faults."""
        at = self.position
        if end - at < 5 or self.payload[at] != 0:
            faults.append((row, is_key, -1, at, end, NO_ID, 0))
            return NO_ID
        schema_id = self.payload[at + 1]
        schema_id = schema_id << 8 | self.payload[at + 2]
        schema_id = schema_id << 8 | self.payload[at + 3]
        schema_id = schema_id << 8 | self.payload[at + 4]
        if schema_id != rules.last_id:
            rules.last_id = schema_id
            rules.last_mode = rules.modes.get(schema_id, NEW)
        mode = rules.last_mode
        if mode == ACCEPTED:
            return 0
        why = TO_JUDGE
        self.fault_at = 0
        if mode >= 0:
            why = self._decode(rules, mode, at + 5, end)
            self.position = at
        elif mode == NEW:
            if self.new_id < 0:
                self.new_id = schema_id
                self.is_new_key = is_key
            return 0
        elif mode == REFUSED:
            why = ID_REFUSED
        elif mode == FIRST and end - at > 5 and self.payload[at + 5] == 0:
            return 0
        if why:
            faults.append((row, is_key, schema_id, at, end, why, self.fault_at))
        return why

    # Avro

    def _decode(self, rules: FieldRules, place: int, start: int, end: int) -> int:
        """Run the program at `place` over a payload; return 0, or why the payload is not of its schema."""
        self.position = start
        self.depth = 0
        steps = 0
        steps_max = STEPS + STEPS_PER_BYTE * (end - start)
        code = rules.program[place]
        while code != END:
            steps += 1
            if steps > steps_max:
                place = -TOO_LONG
            elif code <= BLOCKS:
                place = self._run_numbered(rules, code, place, end)
            else:
                place = self._run_other(rules, code, place, end)
            if place < 0:
                break
            code = rules.program[place]
        self.steps += steps
        self.fault_at = self.position - start
        if place < 0:
            return -place
        return 0 if self.position == end else BYTES_LEFT

    def _number(self, end: int) -> int:
        """Read a number in zigzag form before `end` and move behind it; return 0, or why there is none."""
        value = 0
        shift = 0
        while True:
            if self.position >= end:
                return TOO_SHORT
            byte = self.payload[self.position]
            self.position += 1
            if shift == 63 and byte > 1:
                return BAD_NUMBER
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.number = (value >> 1) ^ -(value & 1)
                return 0
            shift += 7

    def _run_numbered(self, rules: FieldRules, code: int, place: int, end: int) -> int:
        """Run a code that reads a number; return the place of the next one, or a fault as a negative number."""
        why = self._number(end)
        if why:
            return -why
        number = self.number
        if code == INT:
            return place + 1 if -0x80000000 <= number <= 0x7FFFFFFF else -BAD_INT
        if code == LONG:
            return place + 1
        if code == STRING or code == BYTES:  # noqa: SIM109 - a tuple of C numbers would be made each time
            if number < 0 or number > end - self.position:
                return -BAD_LENGTH
            if code == STRING and not self._is_text(self.position + number):
                return -BAD_TEXT
            self.position += number
            return place + 1
        if code == UNION:
            if number < 0 or number >= rules.program[place + 1]:
                return -BAD_BRANCH
            return rules.program[place + 2 + number]
        if code == ENUM:
            return place + 2 if 0 <= number < rules.program[place + 1] else -BAD_SYMBOL
        return self._begin_block(rules, place, number, end)

    def _is_text(self, end: int) -> bool:
        """Return whether the bytes from the position to `end` are UTF-8."""
        at = self.position
        while at < end and self.payload[at] < 0x80:
            at += 1
            if not at & 7:
                while end - at >= 8 and not self.words[at >> 3] & HIGH_BITS:
                    at += 8
        if at == end:
            return True
        if self.source is None:
            self.source = bytes(self.payload)
        text = self.source[at:end]
        try:
            text.decode()
        except UnicodeDecodeError:
            return False
        return True

    def _begin_block(self, rules: FieldRules, place: int, count: int, end: int) -> int:
        """Begin a block of an array or map. A negative count is followed by the bytes of the block."""
        if count == 0:
            return rules.program[place + 1]
        block_end = -1
        if count < 0:
            if count < -0x7FFFFFFFFFFFFFFF or self._number(end) or not 0 <= self.number <= end - self.position:
                return -BAD_BLOCK
            block_end = self.position + self.number
            count = -count
        if self.depth >= DEEPEST:
            return -TOO_DEEP
        self.stack[2 * self.depth] = count
        self.stack[2 * self.depth + 1] = block_end
        self.depth += 1
        return place + 2

    def _run_other(self, rules: FieldRules, code: int, place: int, end: int) -> int:
        """Run a code that reads no number; return as `_run_numbered` does."""
        if code == CALL:
            if self.depth >= DEEPEST:
                return -TOO_DEEP
            self.stack[2 * self.depth] = place + 2
            self.depth += 1
            return rules.program[place + 1]
        if code == RETURN:
            self.depth -= 1
            return self.stack[2 * self.depth]
        if code == JUMP:
            return rules.program[place + 1]
        if code == SKIP:
            if rules.program[place + 1] > end - self.position:
                return -TOO_SHORT
            self.position += rules.program[place + 1]
            return place + 2
        if code == BOOLEAN:
            if self.position >= end:
                return -TOO_SHORT
            if self.payload[self.position] > 1:
                return -BAD_BOOLEAN
            self.position += 1
            return place + 1
        return self._end_item(rules, place)

    def _end_item(self, rules: FieldRules, place: int) -> int:
        """End an item of an array or map: go on with the next one of the block, or with the next block."""
        begin = rules.program[place + 1]
        top = 2 * (self.depth - 1)
        self.stack[top] -= 1
        if self.stack[top] > 0:
            return begin + 2
        if self.stack[top + 1] >= 0 and self.stack[top + 1] != self.position:
            return -BAD_BLOCK
        self.depth -= 1
        return begin

"""The hot loops of the cleaner: from record bytes to each key's last offset, and to what of a batch stays.

Like `_scan` this file is both twins: plain Python as it stands, an extension where Cython compiled the same text with
the C types of `_clean.pxd`. Values and headers are never looked into; of a record only its lengths, its deltas and its
key are read. No expression may leave 64 bits, and every index is checked, so a read past the end is an IndexError in
both.

The map is one table of 24-byte slots, three words each: two of the key's 128-bit hash, then its last offset and one
(zero: the slot is free). A slot is found by linear probing. Two keys with one hash would be one key, so the hash is
keyed with a secret of the job: no producer can choose keys that meet. Compiled it is SipHash-2-4-128. In plain Python,
where that costs ten times what the rest does, it is BLAKE2b, which the interpreter brings along. No result shows which.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, MutableSequence
from hashlib import blake2b

from strandline.codec.checksum import crc32c
from strandline.codec.record_batch import (
    BASE_TIMESTAMP,
    COMPRESSION_MASK,
    CONTROL,
    CRC_START,
    HAS_DELETE_HORIZON,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    MAX_TIMESTAMP,
    PREFIX_SIZE,
    RECORD_SIZE_MIN,
    TRANSACTIONAL,
)
from strandline.errors import CorruptBatch

SLOT_BYTES = 24
BLOCK_ROWS = 64
"""Records that are read before the table is asked for them: a search waits for memory, and so they wait together."""
DROPPED, KEPT, ASKED = 0, 1, 2
unpack_header = HEADER.unpack_from


def is_compiled() -> bool:
    """Return true in the extension, false in the plain twin."""
    return not __file__.endswith(".py")


class RecordSieve:
    """A map of each key's last offset in a log's dirty part, which then says which records stay."""

    def __init__(self, slots: int, entries_max: int, secret: bytes) -> None:
        # One slot at least stays free: a search ends there.
        self.slots = slots
        self.entries_max = min(entries_max, slots - 1)
        self.entries = 0
        self.table = memoryview(bytearray(slots * SLOT_BYTES)).cast("Q")
        self.secret = secret
        low = int.from_bytes(secret[:8], "little")
        high = int.from_bytes(secret[8:16], "little")
        self.start0 = low ^ 0x736F6D6570736575
        self.start1 = high ^ 0x646F72616E646F6D ^ 0xEE
        self.start2 = low ^ 0x6C7967656E657261
        self.start3 = high ^ 0x7465646279746573
        self.mask = 0xFFFFFFFFFFFFFFFF
        self.compiled = is_compiled()
        self.hash_low = 0
        self.hash_high = 0
        # Where batches of the present segment may lie.
        self.next_offset = 0
        self.offset_max = 0
        # The block of records that was read last: place in the table to begin with and hash of the key, offset, where
        # its bytes lie, its time, and what is known of its fate.
        self.places = array("q", (0,)) * BLOCK_ROWS
        self.lows = array("Q", (0,)) * BLOCK_ROWS
        self.highs = array("Q", (0,)) * BLOCK_ROWS
        self.offsets = array("q", (0,)) * BLOCK_ROWS
        self.starts = array("q", (0,)) * BLOCK_ROWS
        self.ends = array("q", (0,)) * BLOCK_ROWS
        self.timestamps = array("q", (0,)) * BLOCK_ROWS
        self.fates = array("q", (0,)) * BLOCK_ROWS
        self.is_tombstone = array("q", (0,)) * BLOCK_ROWS
        # The record that was read last.
        self.payload = b""
        self.position = 0
        self.end = 0
        self.offset_delta = -1
        self.timestamp_delta = 0
        self.key_start = 0
        self.key_length = -1
        self.value_length = -1
        # What `sift` found of a batch.
        self.learned_offset = -1
        self.kept = 0
        self.run_count = 0
        self.max_timestamp = -1
        self.kept_tombstones = 0
        # What `sift` and `sift_batches` found altogether.
        self.records_sifted = 0
        self.records_kept = 0
        self.records_without_key = 0
        self.tombstone_removed = -1

    # Hashing

    def siphash(self, payload: bytes, start: int, length: int) -> tuple[int, int]:
        """Return SipHash-2-4 with 128 bits, low word first; for tests against its published vectors."""
        self.payload = payload
        self._siphash(start, length)
        return self.hash_low, self.hash_high

    def _siphash(self, start: int, length: int) -> None:
        mask = self.mask
        v0, v1, v2, v3 = self.start0, self.start1, self.start2, self.start3
        at = start
        rest = length
        while True:
            word = 0
            if rest >= 8:
                for index in range(8):
                    byte = self.payload[at + index]
                    word |= byte << (8 * index)
            else:
                for index in range(rest):
                    byte = self.payload[at + index]
                    word |= byte << (8 * index)
                byte = length & 0xFF
                word |= byte << 56
            v3 ^= word
            # Rounds are 2 for a word; behind the last one 4, and 4 again between the halves of the outcome.
            rounds = 2
            if rest < 8:
                rounds = 10
            for index in range(rounds):
                if index == 2:
                    v0 ^= word
                    v2 ^= 0xEE
                elif index == 6:
                    self.hash_low = v0 ^ v1 ^ v2 ^ v3
                    v1 ^= 0xDD
                v0 = (v0 + v1) & mask
                v1 = (v1 << 13 | v1 >> 51) & mask
                v1 ^= v0
                v0 = (v0 << 32 | v0 >> 32) & mask
                v2 = (v2 + v3) & mask
                v3 = (v3 << 16 | v3 >> 48) & mask
                v3 ^= v2
                v0 = (v0 + v3) & mask
                v3 = (v3 << 21 | v3 >> 43) & mask
                v3 ^= v0
                v2 = (v2 + v1) & mask
                v1 = (v1 << 17 | v1 >> 47) & mask
                v1 ^= v2
                v2 = (v2 << 32 | v2 >> 32) & mask
            if rest < 8:
                break
            v0 ^= word
            at += 8
            rest -= 8
        self.hash_high = v0 ^ v1 ^ v2 ^ v3

    def _ask(self, row: int) -> None:
        """Hash the key that was read last, for the row of the block."""
        if self.compiled:
            self._siphash(self.key_start, self.key_length)
        else:
            key = self.payload[self.key_start : self.key_start + self.key_length]
            digest = blake2b(key, digest_size=16, key=self.secret).digest()
            self.hash_low = int.from_bytes(digest[:8], "little")
            self.hash_high = int.from_bytes(digest[8:], "little")
        self.lows[row] = self.hash_low
        self.highs[row] = self.hash_high
        self.places[row] = 3 * (self.hash_low % self.slots)

    def _find(self, row: int) -> int:
        """Return the place in the table of the row's key, or of the free slot where it belongs."""
        low = self.lows[row]
        high = self.highs[row]
        at = self.places[row]
        while self.table[at + 2] != 0 and (self.table[at] != low or self.table[at + 1] != high):
            at += 3
            if at == 3 * self.slots:
                at = 0
        return at

    # Reading

    def begin_segment(self, base_offset: int, end_offset: int) -> None:
        """Expect batches between these offsets, each behind the one before.

        A base offset is not covered by a batch's CRC: a bit that fell over in it would renumber records for good.
        """
        self.next_offset = base_offset
        self.offset_max = end_offset - 1

    def pass_batch(self, base_offset: int, last_offset: int) -> None:
        """Pass over a batch that the caller handles itself. Raises CorruptBatch if it cannot lie here."""
        if base_offset < self.next_offset or last_offset < base_offset or last_offset > self.offset_max:
            raise CorruptBatch(
                f"a batch from {base_offset} to {last_offset} lies where offsets {self.next_offset} to "
                f"{self.offset_max} belong"
            )
        self.next_offset = last_offset + 1

    def _varint(self) -> int:
        """Read an unsigned varint of at most 64 bits at the position, and move behind it."""
        byte = self.payload[self.position]
        self.position += 1
        if byte < 0x80:
            return byte
        value = byte & 0x7F
        shift = 7
        while True:
            byte = self.payload[self.position]
            self.position += 1
            if shift == 63 and byte > 1:
                raise CorruptBatch(f"a varint before {self.position} is longer than 10 bytes or overflows")
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def _read_record(self, last_offset_delta: int) -> None:
        """Read the record at the position and move behind it. CorruptBatch or IndexError if it is none."""
        raw = self._varint()
        length = raw >> 1
        if raw & 1 or length > self.end - self.position:
            raise CorruptBatch(f"a record at {self.position} has a length beyond the batch")
        record_end = self.position + length
        self.position += 1  # Its attributes mean nothing yet.
        raw = self._varint()
        self.timestamp_delta = (raw >> 1) ^ -(raw & 1)
        raw = self._varint()
        delta = raw >> 1
        # Earlier cleanings left gaps, but offsets only ever grow, and the header's last delta bounds them all.
        if raw & 1 or delta > last_offset_delta or delta <= self.offset_delta:
            raise CorruptBatch(f"a record before {record_end} has an offset delta out of order")
        self.offset_delta = delta
        raw = self._varint()
        length = raw >> 1
        self.key_start = self.position
        if raw == 1:
            self.key_length = -1
        else:
            if raw & 1 or length > record_end - self.position:
                raise CorruptBatch(f"the key at {self.position} leaves its record")
            self.key_length = length
            self.position += length
        raw = self._varint()
        length = raw >> 1
        if raw == 1:
            self.value_length = -1
        else:
            if raw & 1 or length > record_end - self.position:
                raise CorruptBatch(f"the value before {record_end} leaves its record")
            self.value_length = length
        if self.position > record_end:
            raise CorruptBatch(f"a record is longer than its length, which says {record_end}")
        self.position = record_end

    def _begin(self, payload: bytes, start: int, end: int) -> None:
        self.payload = payload
        self.position = start
        self.end = end
        self.offset_delta = -1

    # Learning

    def learn(
        self,
        payload: bytes,
        start: int,
        end: int,
        count: int,
        base_offset: int,
        last_offset_delta: int,
        first_offset: int,
    ) -> bool:
        """Note the keys of a batch from `first_offset` on; false if the map is full, `learned_offset` says how far."""
        self._begin(payload, start, end)
        return self._learn(count, base_offset, last_offset_delta, first_offset)

    def _learn(self, count: int, base_offset: int, last_offset_delta: int, first_offset: int) -> bool:
        left = count
        while left > 0:
            rows = min(left, BLOCK_ROWS)
            left -= rows
            for row in range(rows):
                self._read_record(last_offset_delta)
                self.offsets[row] = base_offset + self.offset_delta
                self.fates[row] = DROPPED
                if self.key_length >= 0 and self.offsets[row] >= first_offset:
                    self.fates[row] = ASKED
                    self._ask(row)
            for row in range(rows):
                if self.fates[row] == ASKED:
                    at = self._find(row)
                    if self.table[at + 2] == 0:
                        if self.entries >= self.entries_max:
                            return False
                        self.table[at] = self.lows[row]
                        self.table[at + 1] = self.highs[row]
                        self.entries += 1
                    self.table[at + 2] = self.offsets[row] + 1
                self.learned_offset = self.offsets[row]
        if self.position != self.end:
            raise CorruptBatch(f"{self.end - self.position} bytes follow the records that the header counts")
        self.learned_offset = base_offset + last_offset_delta
        return True

    def learn_batches(self, source: bytes, position: int, first_offset: int) -> int:
        """Note the keys of whole, sound batches that are neither compressed nor part of a transaction.

        Returns the position of the first batch that is something else, or that filled the map.
        """
        view = memoryview(source)
        size = len(source)
        header_bytes, overhead_bytes, crc_start = HEADER_SIZE, PREFIX_SIZE, CRC_START
        record_bytes_min, batch_magic = RECORD_SIZE_MIN, MAGIC
        special = COMPRESSION_MASK | TRANSACTIONAL | CONTROL
        self._begin(source, 0, 0)
        while size - position >= header_bytes:
            base_offset, length, _, magic, crc, attributes, last_delta, _, _, _, _, _, count = unpack_header(
                source, position
            )
            start = position + header_bytes
            end = position + overhead_bytes + length
            if magic != batch_magic or attributes & special or end < start or end > size or last_delta < 0:
                break
            if count < 0 or count > last_delta + 1 or count > (end - start) // record_bytes_min:
                break
            if base_offset < self.next_offset or base_offset > self.offset_max - last_delta:
                break
            if base_offset + last_delta >= first_offset:
                if crc32c(view[position + crc_start : end]) != crc:
                    break
                self.position = start
                self.end = end
                self.offset_delta = -1
                if not self._learn(count, base_offset, last_delta, first_offset):
                    break
            self.next_offset = base_offset + last_delta + 1
            position = end
        return position

    # Sifting

    def sift(
        self,
        payload: bytes,
        start: int,
        end: int,
        count: int,
        base_offset: int,
        last_offset_delta: int,
        base_timestamp: int,
        latest_offset: int,
        keep_tombstones: bool,
        runs: MutableSequence[int],
    ) -> int:
        """Return how many records of a batch stay; `runs` gets where their bytes begin and end, neighbours as one.

        `latest_offset` is the last that the map knows of: what lies behind it stays, whatever it is.
        """
        self._begin(payload, start, end)
        return self._sift(count, base_offset, last_offset_delta, base_timestamp, latest_offset, keep_tombstones, runs)

    def _sift(
        self,
        count: int,
        base_offset: int,
        last_offset_delta: int,
        base_timestamp: int,
        latest_offset: int,
        keep_tombstones: bool,
        runs: MutableSequence[int],
    ) -> int:
        kept = 0
        run_count = 0
        run_end = -1
        tombstones = 0
        max_timestamp = -1
        # Base and delta must add up within 64 bits.
        delta_min = -0x7FFFFFFFFFFFFFFF - (base_timestamp if base_timestamp < 0 else 0)
        delta_max = 0x7FFFFFFFFFFFFFFF - (base_timestamp if base_timestamp > 0 else 0)
        left = count
        while left > 0:
            rows = min(left, BLOCK_ROWS)
            left -= rows
            for row in range(rows):
                self.starts[row] = self.position
                self._read_record(last_offset_delta)
                if self.timestamp_delta < delta_min or self.timestamp_delta > delta_max:
                    raise CorruptBatch(f"a record before {self.position} has a timestamp that overflows")
                self.ends[row] = self.position
                self.offsets[row] = base_offset + self.offset_delta
                self.timestamps[row] = base_timestamp + self.timestamp_delta
                self.is_tombstone[row] = self.value_length < 0
                if self.offsets[row] > latest_offset:
                    self.fates[row] = KEPT
                elif self.key_length < 0:
                    self.records_without_key += 1
                    self.fates[row] = DROPPED
                elif self.value_length < 0 and not keep_tombstones:
                    self.tombstone_removed = self.offsets[row]
                    self.fates[row] = DROPPED
                else:
                    self.fates[row] = ASKED
                    self._ask(row)
            for row in range(rows):
                # A key that the map lacks was not written since: zero stands where others have their offset and one.
                if self.fates[row] == DROPPED or (
                    self.fates[row] == ASKED and self.table[self._find(row) + 2] > self.offsets[row] + 1
                ):
                    continue
                tombstones += self.is_tombstone[row]
                max_timestamp = max(max_timestamp, self.timestamps[row])
                if self.starts[row] == run_end:
                    runs[2 * run_count - 1] = self.ends[row]
                else:
                    runs[2 * run_count] = self.starts[row]
                    runs[2 * run_count + 1] = self.ends[row]
                    run_count += 1
                run_end = self.ends[row]
                kept += 1
        if self.position != self.end:
            raise CorruptBatch(f"{self.end - self.position} bytes follow the records that the header counts")
        self.kept = kept
        self.run_count = run_count
        self.kept_tombstones = tombstones
        self.max_timestamp = max_timestamp
        self.records_sifted += count
        self.records_kept += kept
        return kept

    def sift_batches(
        self,
        source: bytes,
        position: int,
        latest_offset: int,
        now_ms: int,
        kept_empty: Collection[int],
        kept_batches: list[tuple[int, int, int, int, int, int]],
        runs: MutableSequence[int],
    ) -> tuple[int, bool]:
        """Sift whole, sound batches that are neither compressed nor part of a transaction, as far as they stay whole
        or go whole; (position of the next batch, whether that was sifted and is to be rebuilt from `runs`).

        `kept_batches` gets those that stay: base and last offset, largest timestamp, position, size, records.
        `kept_empty` are the last offsets of batches that stay even without records.
        """
        view = memoryview(source)
        size = len(source)
        runs_max = len(runs) // 2
        header_bytes, overhead_bytes, crc_start = HEADER_SIZE, PREFIX_SIZE, CRC_START
        record_bytes_min, batch_magic = RECORD_SIZE_MIN, MAGIC
        horizon_bit, append_time_bit = HAS_DELETE_HORIZON, LOG_APPEND_TIME
        special = COMPRESSION_MASK | TRANSACTIONAL | CONTROL
        self._begin(source, 0, 0)
        while size - position >= header_bytes:
            header = unpack_header(source, position)
            base_offset, length, _, magic, crc, attributes, last_delta, _, _, _, _, _, count = header
            base_timestamp, max_timestamp = header[BASE_TIMESTAMP], header[MAX_TIMESTAMP]
            start = position + header_bytes
            end = position + overhead_bytes + length
            if magic != batch_magic or attributes & special or end < start or end > size or last_delta < 0:
                break
            if count < 1 or count > last_delta + 1 or count > (end - start) // record_bytes_min or count > runs_max:
                break
            if base_offset < self.next_offset or base_offset > self.offset_max - last_delta:
                break
            if crc32c(view[position + crc_start : end]) != crc:
                break
            self.next_offset = base_offset + last_delta + 1
            self.position = start
            self.end = end
            self.offset_delta = -1
            has_horizon = attributes & horizon_bit
            keep_tombstones = not has_horizon or now_ms < base_timestamp
            if attributes & append_time_bit:
                base_timestamp = 0  # What records say of their time means nothing then.
            kept = self._sift(count, base_offset, last_delta, base_timestamp, latest_offset, keep_tombstones, runs)
            if kept == 0:
                if base_offset + last_delta in kept_empty:
                    return position, True
            elif kept < count or (self.kept_tombstones and not has_horizon):
                return position, True
            else:
                kept_batches.append(
                    (base_offset, base_offset + last_delta, max_timestamp, position, end - position, count)
                )
            position = end
        return position, False

"""Bits that flip on the wire, where a checksum must find them: in the part of a batch that its CRC covers.

Nothing protects the rest of a request but the checksum of TCP: a flip there may mean anything that a client could ask.
"""

from __future__ import annotations

import random

from strandline.codec.record_batch import CRC_START, HEADER_SIZE, PREFIX_SIZE, is_intact


def flipped(batches: bytes, rng: random.Random) -> bytes:
    """Return the batches with one bit flipped, in the first of them; unchanged if they hold no whole batch."""
    size = int.from_bytes(batches[8:PREFIX_SIZE], "big") + PREFIX_SIZE
    if len(batches) < max(size, HEADER_SIZE):
        return batches
    changed = bytearray(batches)
    changed[rng.randrange(CRC_START, size)] ^= 1 << rng.randrange(8)
    return bytes(changed)


def are_intact(batches: bytes) -> bool:
    """Return whether every whole batch has the CRC that it should, as a client looks before it reads them."""
    at = 0
    while len(batches) - at >= HEADER_SIZE:
        size = int.from_bytes(batches[at + 8 : at + PREFIX_SIZE], "big") + PREFIX_SIZE
        if len(batches) - at < size:
            break
        if not is_intact(batches[at : at + size]):
            return False
        at += size
    return True

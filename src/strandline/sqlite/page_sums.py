"""One sum over all pages of a database, which changes with each page that changes.

The sum is of 64 bits: of each page its number and CRC-32C, mixed, because CRCs alone add up to the same if two pages
change places. Two files of one sum have equal pages, as far as a CRC tells.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any, Final

from strandline.codec.checksum import crc32c

_MASK: Final = 0xFFFF_FFFF_FFFF_FFFF
_FACTOR_1: Final = 0xBF58_476D_1CE4_E5B9
_FACTOR_2: Final = 0x94D0_49BB_1331_11EB
_crc: Final[Callable[[Any], int]] = crc32c


class PageSums:
    """CRCs of the pages of a database (4 bytes each), and their sum."""

    def __init__(self, page_bytes: int) -> None:
        self._page_bytes = page_bytes
        self._crcs = array("I")
        self._zero = _crc(bytes(page_bytes))
        self.total = 0

    @property
    def pages(self) -> int:
        return len(self._crcs)

    def put(self, number: int, page: bytes | memoryview) -> None:
        """Note the content of a page, also behind the end; pages between are zeros."""
        crcs = self._crcs
        if number > len(crcs):
            self.resize(number)
        crc = _crc(page)
        self.total = (self.total - _mixed(number, crcs[number - 1]) + _mixed(number, crc)) & _MASK
        crcs[number - 1] = crc

    def extend(self, content: memoryview) -> None:
        """Note the contents of pages that follow the last one."""
        size, number, total = self._page_bytes, len(self._crcs), self.total
        for at in range(0, len(content), size):
            crc = _crc(content[at : at + size])
            number += 1
            self._crcs.append(crc)
            total += _mixed(number, crc)
        self.total = total & _MASK

    def resize(self, pages: int) -> None:
        """Drop the pages behind the last one, or add pages of zeros, as SQLite does with its file."""
        crcs, total = self._crcs, self.total
        for number in range(len(crcs) + 1, pages + 1):
            total += _mixed(number, self._zero)
        for number in range(pages + 1, len(crcs) + 1):
            total -= _mixed(number, crcs[number - 1])
        if pages < len(crcs):
            del crcs[pages:]
        else:
            crcs.extend([self._zero] * (pages - len(crcs)))
        self.total = total & _MASK


def _mixed(number: int, crc: int) -> int:
    """Return 64 bits of a page number and a CRC, as SplitMix64 mixes them."""
    mixed = number << 32 | crc
    mixed = (mixed ^ (mixed >> 30)) * _FACTOR_1 & _MASK
    mixed = (mixed ^ (mixed >> 27)) * _FACTOR_2 & _MASK
    return mixed ^ (mixed >> 31)

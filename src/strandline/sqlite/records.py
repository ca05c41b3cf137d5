"""Records of a topic with a shipped database.

Each has a header `strandline.sqlite` (JSON), no key, and pages as its value:

    snapshot       pages from number `first` on
    transaction    how many pages (4 bytes), their numbers (4 bytes each), the pages in that order; big-endian

A snapshot and a transaction of the database have one record or more, `part` 0, 1, ... up to the one with `last`. The
state in a header is that behind the last whole transaction: with `last` behind this one, otherwise before it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from strandline.sqlite.failures import ShippingFailed
from strandline.sqlite.wal import PAGE_BYTES_MAX, PAGE_BYTES_MIN

HEADER: Final = "strandline.sqlite"
SNAPSHOT: Final = "snapshot"
TRANSACTION: Final = "transaction"
PART_BYTES_MAX: Final = 900_000
"""Bytes of pages in a record, below the default of `message.max.bytes` of clients and brokers."""
_VERSION: Final = 1
_COUNT: Final = struct.Struct(">I")


@dataclass(frozen=True)
class DatabaseState:
    """A database between two transactions, and how far its WAL is shipped."""

    generation: str
    """Changes with each snapshot that does not continue the transactions before it."""
    transaction: int
    """Transactions since the first snapshot of the topic."""
    page_bytes: int
    pages: int
    checksum: int
    """The sum of all pages."""
    salts: tuple[int, int]
    frames: int
    """Frames of the WAL with these salts that are shipped."""
    wal_sum: tuple[int, int]
    """The WAL's checksum behind these frames."""


@dataclass(frozen=True)
class ShippedHeader:
    """The header of a record."""

    kind: str
    state: DatabaseState
    part: int
    is_last: bool
    at_ms: int
    """When the shipper saw the commit; of a snapshot, when the record was made. It never decreases."""
    database: str
    first: int = 0
    """The first page of this part of a snapshot."""
    start: int | None = None
    """The offset of the first part, in the later parts of a snapshot."""
    snapshot: int | None = None
    """The offset of the newest whole snapshot before this record."""

    def encode(self) -> bytes:
        """Return the header as JSON."""
        fields: dict[str, Any] = {"version": _VERSION, **asdict(self)}
        fields["state"]["checksum"] = f"{self.state.checksum:016x}"
        return json.dumps(fields, separators=(",", ":")).encode()


def decode_header(headers: list[tuple[str, bytes | None]] | None, place: str) -> ShippedHeader:
    """Return the header of a record. Raise ShippingFailed if the record is no part of a shipped database."""
    content = next((value for name, value in headers or () if name == HEADER and value), None)
    if content is None:
        raise ShippingFailed(
            f"{place} is a record that `strandline sqlite ship` did not write: a database needs a topic of its own"
        )
    try:
        fields = json.loads(content)
        if fields["version"] != _VERSION:
            raise ShippingFailed(
                f"{place} has version {fields['version']} of the format, and this command reads version {_VERSION}: "
                "use the newer release that wrote it"
            )
        return _decoded(fields)
    except (ValueError, KeyError, TypeError) as error:
        raise ShippingFailed(f"{place} has a header {HEADER} that cannot be read: {error!r}") from None


def _decoded(fields: Mapping[str, Any]) -> ShippedHeader:
    state = dict(fields["state"])
    state["checksum"] = int(state["checksum"], 16)
    state["salts"], state["wal_sum"] = tuple(state["salts"]), tuple(state["wal_sum"])
    rest = {name: value for name, value in fields.items() if name not in ("version", "state")}
    header = ShippedHeader(state=DatabaseState(**state), **rest)
    if header.kind not in (SNAPSHOT, TRANSACTION) or not PAGE_BYTES_MIN <= header.state.page_bytes <= PAGE_BYTES_MAX:
        raise ValueError(header.kind)
    return header


def part_pages(page_bytes: int) -> int:
    """Return how many pages a record holds."""
    return max(1, PART_BYTES_MAX // (page_bytes + _COUNT.size))


def encode_pages(pages: Mapping[int, bytes | memoryview]) -> bytes:
    """Return the value of a part of a transaction."""
    return b"".join((_COUNT.pack(len(pages)), struct.pack(f">{len(pages)}I", *pages), *pages.values()))


def decode_pages(value: bytes, page_bytes: int, place: str) -> Iterator[tuple[int, memoryview]]:
    """Yield page numbers and pages of a part of a transaction. Raise ShippingFailed if its size is wrong."""
    (count,) = _COUNT.unpack_from(value) if len(value) >= _COUNT.size else (0,)
    at = _COUNT.size * (count + 1)
    if not count or len(value) != at + count * page_bytes:
        raise ShippingFailed(f"{place} is not as long as its pages: the topic is damaged")
    content = memoryview(value)
    for number in struct.unpack_from(f">{count}I", value, _COUNT.size):
        yield number, content[at : at + page_bytes]
        at += page_bytes

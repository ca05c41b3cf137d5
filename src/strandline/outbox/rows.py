"""Rows of the outbox on their way to their topics, and what a relay needs of a database."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol

from strandline.connect.failures import ConnectFailed
from strandline.outbox.events import HEADER_ID, HEADER_TYPE, MESSAGE_BYTES_MAX, TOPIC_NAME

AfterSend = Literal["delete", "mark"]
OnInvalid = Literal["stop", "park"]
ID_BYTES: Final = 16
PARKED_SHOWN_MAX: Final = 20


class OutboxRow(NamedTuple):
    """A row that is not sent yet."""

    seq: int
    id: bytes
    """The 16 bytes of the UUID."""
    topic: str
    key: str | None
    type: str
    payload: bytes | None
    headers: str | None
    created_ms: int
    wrong: str = ""
    """Why it cannot be sent, if the database holds a value that is none of its column."""


class OutboxStatus(NamedTuple):
    """How a table is."""

    waiting: int
    oldest_s: float | None
    """The age of the first row that waits."""
    parked: list[tuple[str, str]]
    """The ids of rows that could not be sent, and why; at most PARKED_SHOWN_MAX."""
    parked_count: int
    is_relayed: bool
    """Whether a relay works now."""


class OutgoingEvent(NamedTuple):
    """A record for the log."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: list[tuple[str, bytes]]


class RowInvalid(ConnectFailed):
    """A row that cannot be sent. The message names it and says why."""


class OutboxDatabase(Protocol):
    """One outbox table, and the lock that makes this its only relay."""

    identity: str
    """Tells this table from all others, also after a restart."""

    def open(self) -> None:
        """Connect, and check that the table is there."""

    def try_lock(self) -> bool:
        """Become the only relay of the table, until the connection ends. Return False if another one is."""

    def rows(self, limit: int) -> Sequence[OutboxRow]:
        """Return rows that are not sent, those that were added first at the front."""

    def settle(self, ids: Sequence[bytes], after: AfterSend) -> None:
        """Delete or mark rows that were sent, all or none. Those that are gone do not matter."""

    def park(self, row: OutboxRow, why: str) -> None:
        """Note why a row cannot be sent. `rows` does not return it again."""

    def status(self) -> OutboxStatus:
        """Count the rows; for a connection of its own, without the lock."""

    def wait(self, timeout_s: float) -> None:
        """Wait until rows may be there, or for so long."""

    def close(self) -> None:
        """Let go of the lock."""


def outgoing(row: OutboxRow, now_ms: int, bytes_max: int = MESSAGE_BYTES_MAX) -> OutgoingEvent:
    """Return the record of a row. Raise RowInvalid, because rows may be inserted by other programs, too."""
    if row.wrong:
        raise invalid_row(row, row.wrong)
    if not TOPIC_NAME.fullmatch(row.topic):
        raise invalid_row(row, f"aggregatetype {row.topic!r} is no name of a topic")
    headers = [(HEADER_ID, _dashed(row.id).encode())]
    if row.type:
        headers.append((HEADER_TYPE, row.type.encode()))
    if row.headers is not None:
        headers += _headers(row)
    key = None if row.key is None else row.key.encode()
    size = len(row.payload or b"") + len(key or b"") + len(row.headers or "")
    if size > bytes_max:
        raise invalid_row(row, f"it has {size:,} bytes, and {bytes_max:,} are allowed")
    # Brokers refuse timestamps of the future, which a clock that jumped leaves in the table.
    return OutgoingEvent(row.topic, key, row.payload, max(0, min(row.created_ms, now_ms)), headers)


class SortedRows(NamedTuple):
    """A batch of rows: what is sent, the ids of that, and rows that cannot be."""

    events: list[OutgoingEvent]
    ids: list[bytes]
    invalid: list[tuple[OutboxRow, RowInvalid]]


def sort_rows(
    rows: Sequence[OutboxRow], on_invalid: OnInvalid, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
) -> SortedRows:
    """Make records of rows. With `stop` an invalid row ends the batch: what is before it is sent first."""
    found = SortedRows([], [], [])
    now = now_ms()
    for row in rows:
        try:
            event = outgoing(row, now)
        except RowInvalid as invalid:
            if on_invalid == "stop" and not found.events:
                raise
            if on_invalid == "stop":
                break
            found.invalid.append((row, invalid))
            continue
        found.events.append(event)
        found.ids.append(row.id)
    return found


def packed(ids: Sequence[bytes]) -> str:
    """Return ids as a text, for the position that is stored beside the records."""
    return base64.b64encode(b"".join(ids)).decode()


def unpacked(text: Any) -> list[bytes]:
    """Return the ids of `packed`. Raise ConnectFailed for what it did not make."""
    try:
        data = base64.b64decode(text, validate=True)
    except (TypeError, ValueError):
        data = b"?"
    if len(data) % ID_BYTES:
        raise ConnectFailed(f"the stored position of the relay is not one of an outbox: {str(text)[:60]!r}")
    return [data[at : at + ID_BYTES] for at in range(0, len(data), ID_BYTES)]


def _dashed(row_id: bytes) -> str:
    text = row_id.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _headers(row: OutboxRow) -> list[tuple[str, bytes]]:
    try:
        given = json.loads(row.headers or "{}")
    except ValueError:
        raise invalid_row(row, "its headers are no JSON") from None
    if not isinstance(given, dict) or not all(isinstance(each, str) for each in given.values()):
        raise invalid_row(row, "its headers are no JSON object of texts")
    return [(name, value.encode("utf-8", "replace")) for name, value in given.items()]


def invalid_row(row: OutboxRow, why: str) -> RowInvalid:
    """Return the failure of a row."""
    name = _dashed(row.id) if row.id else "without a valid id"
    return RowInvalid(
        f"the outbox row {name} (seq {row.seq}) cannot be sent: {why}. Correct or delete it, or set invalid rows to be "
        "parked"
    )

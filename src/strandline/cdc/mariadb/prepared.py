"""Prepared XA transactions: the binlog has their rows where they are prepared, and later only that they are committed.

Their events are held in memory until then. The offset names them, so that after a restart they are read again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from strandline.cdc.mariadb.binlog import GTID, XA_PREPARE, BinlogEvent, BinlogStream
from strandline.cdc.mariadb.connection import query
from strandline.cdc.mariadb.gtid import Gtid, GtidPosition
from strandline.cdc.mariadb.settings import MariadbCdcConfig
from strandline.connect.failures import ConnectFailed, RetriableFailure

_WAIT_S = 60.0


@dataclass
class PreparedTransaction:
    """A transaction that is prepared, or about to be. `events` is None if they have to be read again."""

    before: str
    """The position in front of it."""
    gtid: str
    events: list[BinlogEvent] | None


class PreparedTransactions:
    """Those that are neither committed nor rolled back."""

    def __init__(self, config: MariadbCdcConfig, offset: Mapping[str, Any]) -> None:
        self._config = config
        found = offset.get("xa", {})
        self._pending = {xid: PreparedTransaction(before, gtid, None) for xid, (before, gtid) in found.items()}

    @property
    def offset(self) -> dict[str, Any]:
        """What a source's offset says of them."""
        return {"xa": {xid: [each.before, each.gtid] for xid, each in self._pending.items()}} if self._pending else {}

    def add(self, xid: str, transaction: PreparedTransaction) -> None:
        """Hold a transaction."""
        self._pending[xid] = transaction

    def end(self, xid: str, *, is_committed: bool) -> list[BinlogEvent]:
        """Return the events of a transaction that ends: none if it is rolled back."""
        found = self._pending.pop(xid, None)
        if not is_committed:
            return []
        if found is None:
            raise ConnectFailed(
                f"the XA transaction {xid} is committed, but was prepared before the connector began, so its rows are "
                "not known: delete the connector's offsets to take a new snapshot"
            )
        return self._read(found) if found.events is None else found.events

    def _read(self, transaction: PreparedTransaction) -> list[BinlogEvent]:
        # With the id of the main stream the server would end that one.
        stream = BinlogStream(self._config, GtidPosition.parse(transaction.before), self._config.server_id - 1)
        events: list[BinlogEvent] = []
        is_inside = False
        try:
            while (event := stream.next(_WAIT_S)) is not None:
                if event.type == GTID:
                    is_inside = str(Gtid.of(event.body, event.server_id)) == transaction.gtid
                elif is_inside and event.type == XA_PREPARE:
                    return events
                elif is_inside:
                    events.append(event)
        finally:
            stream.close()
        raise RetriableFailure(f"the prepared XA transaction {transaction.gtid} did not come again in {_WAIT_S:.0f} s")


def xid_of(body: bytes) -> str:
    """Return the id of an XA_PREPARE event as statements have it."""
    number, first, second = (int.from_bytes(body[at : at + 4], "little") for at in (1, 5, 9))
    parts = body[13 : 13 + first], body[13 + first : 13 + first + second]
    return f"x'{parts[0].hex()}',x'{parts[1].hex()}',{number}"


def check_none_prepared(connection: Any) -> None:
    """Raise RetriableFailure while transactions are prepared: the stream would lack their rows."""
    found = query(connection, "xa recover")
    if found:
        raise RetriableFailure(
            f"MariaDB has {len(found)} prepared XA transactions, whose rows neither a snapshot nor the stream "
            "behind it has: commit or roll them back (XA RECOVER lists them)"
        )

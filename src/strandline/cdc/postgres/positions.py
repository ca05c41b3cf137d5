"""The stored position of a PostgreSQL source: how far the log has the changes, by Debezium's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from strandline.cdc.postgres.connection import lsn_text
from strandline.connect.failures import InvalidConnectorConfig

INITIAL: Final = "INITIAL"


@dataclass(frozen=True)
class PostgresMark:
    """A position of the WAL that rows were read at."""

    lsn: int

    @property
    def text(self) -> str:
        return lsn_text(self.lsn)


@dataclass(frozen=True)
class WalPosition:
    """Everything before `lsn` is in the log, unless `is_snapshot`: then a snapshot of that moment is unfinished."""

    lsn: int
    commit_lsn: int | None = None
    """End of the last commit that was sent."""
    xid: int | None = None
    ts_us: int | None = None
    system_id: str | None = None
    """Of the server: positions of another one mean nothing."""
    is_snapshot: bool = False
    incremental: Mapping[str, Any] | None = None
    """The state of an incremental snapshot."""

    def stored(self) -> dict[str, Any]:
        """Return the position as an offset of Connect."""
        found: dict[str, Any] = {
            "lsn": self.lsn,
            "lsn_proc": self.lsn,
            "lsn_commit": self.commit_lsn,
            "txId": self.xid,
            "ts_usec": self.ts_us,
            "system_id": self.system_id,
        }
        if self.is_snapshot:
            found |= {"snapshot": INITIAL, "snapshot_completed": False}
        if self.incremental is not None:
            found["incremental_snapshot"] = self.incremental
        return {name: value for name, value in found.items() if value is not None}

    @classmethod
    def of(cls, offset: Mapping[str, Any]) -> WalPosition:
        """Return a stored position. Raise InvalidConnectorConfig if it is none."""
        lsn = offset.get("lsn")
        if not isinstance(lsn, int) or isinstance(lsn, bool) or not 0 <= lsn < 2**63:
            raise InvalidConnectorConfig(f'the offset {dict(offset)} has no position of the WAL in "lsn"')
        is_unfinished = bool(offset.get("snapshot")) and offset.get("snapshot_completed") is not True
        return cls(
            lsn,
            offset.get("lsn_commit"),
            offset.get("txId"),
            offset.get("ts_usec"),
            offset.get("system_id"),
            is_unfinished,
            offset.get("incremental_snapshot"),
        )

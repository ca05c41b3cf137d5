"""MariaDB's GTID positions: the last transaction of each replication domain."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import Final, Self

_GTID: Final = re.compile(r"(\d{1,10})-(\d{1,10})-(\d{1,20})", re.ASCII)

_EVENT: Final = struct.Struct("<QI")


@dataclass(frozen=True)
class Gtid:
    """The id of one transaction."""

    domain: int
    server: int
    sequence: int

    @classmethod
    def of(cls, body: bytes, server: int) -> Self:
        """Return the id that a GTID event begins with."""
        sequence, domain = _EVENT.unpack_from(body)
        return cls(domain, server, sequence)

    def __str__(self) -> str:
        return f"{self.domain}-{self.server}-{self.sequence}"


class GtidPosition:
    """The last transaction of each domain, as `@@gtid_binlog_pos` has it."""

    def __init__(self) -> None:
        self._last: dict[int, Gtid] = {}

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the position of a text. Raise ValueError if it is none."""
        found = cls()
        for each in filter(None, (part.strip() for part in text.split(","))):
            matched = _GTID.fullmatch(each)
            if matched is None:
                raise ValueError(f"{each!r} is no GTID of MariaDB, which has the form domain-server-sequence")
            found.advance(Gtid(int(matched[1]), int(matched[2]), int(matched[3])))
        return found

    def advance(self, gtid: Gtid) -> None:
        """Move behind a transaction."""
        self._last[gtid.domain] = gtid

    def is_ahead_of(self, other: GtidPosition) -> bool:
        """Return whether a domain is further here than there."""
        return any(
            domain not in other._last or gtid.sequence > other._last[domain].sequence
            for domain, gtid in self._last.items()
        )

    def __str__(self) -> str:
        return ",".join(str(self._last[each]) for each in sorted(self._last))

"""What a profile is: settings of a connector, and the SQL that runs before and while it streams.

A live Debezium and our connector run the same profiles; `recordings` has what Debezium made of them. Every profile
captures the table `zz_marker`, too: its row 0 ends the snapshot, its row 1 the stream.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

PREFIX: Final = "shop"
MARKER: Final = "zz_marker"
BASE: Final = {
    "topic.prefix": PREFIX,
    "plugin.name": "pgoutput",
    "publication.autocreate.mode": "all_tables",
    "snapshot.mode": "initial",
}


@dataclass(frozen=True)
class Seen:
    """A step that waits until `count` records of a topic (without the prefix) have come."""

    topic: str
    count: int


Transaction = tuple[str, ...]
Step = str | Transaction | Seen
"""A statement of its own transaction, statements of one transaction, or a wait."""


@dataclass(frozen=True, eq=False)
class CdcProfile:
    """What is recorded and replayed under one name."""

    name: str
    settings: Mapping[str, str]
    before: tuple[Step, ...]
    """Run before the connector starts."""
    during: tuple[Step, ...]
    is_default: bool = False
    """Whether it is replayed in the default set of tests."""
    ends_with: tuple[Seen, ...] = field(default=())
    """What must have come, besides the marker."""

    @property
    def fingerprint(self) -> str:
        """A hash of all that decides what is recorded."""
        text = repr((sorted(self.settings.items()), self.before, self.during, self.ends_with))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

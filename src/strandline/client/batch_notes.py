"""What Spark's positions say besides an offset: the query, its batch, and where the batch began (pure).

The text is the metadata of a committed offset. It tells a reader of the group which micro-batch read
a record: every tool of Kafka shows it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BatchNote:
    """A micro-batch that read a partition up to a committed position."""

    query: str
    batch_id: int
    begin: int | None = None
    """The offset at which the batch began in this partition; None if Spark did not say."""

    def has_read(self, offset: int) -> bool:
        """Return whether this batch read a record before the committed position, and no earlier batch did."""
        return self.batch_id == 0 or (self.begin is not None and self.begin <= offset)

    def text(self) -> str:
        found = {"query": self.query, "batch": self.batch_id}
        return json.dumps(found if self.begin is None else {**found, "from": self.begin}, separators=(",", ":"))


def batch_note(text: str | None) -> BatchNote | None:
    """Return the note of a committed offset; None if its metadata is something else."""
    try:
        told = json.loads(text or "null")
    except (ValueError, RecursionError):
        return None
    if not isinstance(told, dict) or not isinstance(told.get("query"), str) or type(told.get("batch")) is not int:
        return None
    begin = told.get("from")
    return BatchNote(told["query"], told["batch"], begin if type(begin) is int else None)

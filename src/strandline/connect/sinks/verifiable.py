"""What a sink offers so that its target can be compared with a topic, and built again beside the old one.

A command that verifies folds a topic to the last record of each key, and asks for each: does `expected(record)` agree
with what `digests` finds under its key? Rows of `scan` whose keys the topic does not have are surplus.

A command that rebuilds writes a whole topic into `fresh_target(suffix)`, then calls `swap` on it. Readers see the old
target until then, and the new one from then on. `drop_old` removes what was replaced. A target that has no offsets of
its own has `holding()`, a context in which tasks cannot write to the old one: the last records are read within it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple, Protocol, Self

from strandline.connect.records import SinkRecord

ANY_DIGEST: Final = b""
"""Instead of a digest: there should be a row, and the record does not have all values of it."""


class TargetKey(NamedTuple):
    """A row of a target: the table, index or file that it is in, and the canonical texts of its key."""

    place: str
    key: tuple[str, ...]


class ExpectedRow(NamedTuple):
    """What a record should be in the target. Without a digest there should be no row."""

    key: TargetKey
    digest: bytes | None


class VerifiableSink(Protocol):
    """A sink whose target can be read back. A digest is equal for equal rows, whatever wrote them."""

    def expected(self, record: SinkRecord) -> ExpectedRow:
        """Return where a record's row is and its digest. Raise RecordFailed if it cannot be written at all."""

    def digests(self, keys: Collection[TargetKey]) -> Mapping[TargetKey, bytes]:
        """Return the digest of each row that exists, of these keys."""

    def scan(self) -> Iterator[tuple[TargetKey, bytes]]:
        """Yield every row that the connector has written, in no particular order."""


class RebuildableSink(VerifiableSink, Protocol):
    """A sink that can write a second target, and put it in the place of the first at once."""

    def fresh_target(self, suffix: str = "rebuild") -> Self:
        """Return a sink that writes beside the target, with offsets of its own: it begins with the topic.

        An unfinished target of the same suffix is gone on with; `discard` removes it.
        """

    def swap(self) -> None:
        """Put a fresh target, on which this is called, in the place of the old one, with its offsets, in one step.

        Tasks that write to the old one are fenced out. Stop the connector before, so that it does not fail.
        """

    def discard(self) -> None:
        """Remove a fresh target, on which this is called, and its offsets."""

    def drop_old(self) -> None:
        """Remove every target that was replaced."""

"""Records on their way through a connector."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from strandline.connect.schema import Schema

SourcePosition = tuple[Mapping[str, Any], Mapping[str, Any] | None]
"""A partition of a source and the position in it; None if it has none, or is to have none any more."""


class Header(NamedTuple):
    """A header; its value is what the header converter makes of the bytes."""

    name: str
    value: Any
    schema: Schema | None = None


@dataclass(slots=True)
class ConnectRecord:
    """What transforms work on: a record from a source or for a sink."""

    topic: str
    value: Any = None
    key: Any = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Sequence[Header] = ()
    key_schema: Schema | None = None
    value_schema: Schema | None = None

    def with_(self, **changes: Any) -> ConnectRecord:
        """Return a copy with other values."""
        return replace(self, **changes)


@dataclass(slots=True)
class SourceRecord(ConnectRecord):
    """A record that a source has read. Without a `topic` it goes to that of the connector's setting `topic`."""

    topic: str = ""


@dataclass(slots=True)
class SinkRecord(ConnectRecord):
    """A record of a topic, for a sink."""

    offset: int = -1
    original_topic: str = ""
    """The topic that it was read from; a transform may have changed `topic`."""
    original_partition: int = -1

    @property
    def place(self) -> str:
        """Where the record is, for messages."""
        return f"{self.original_topic or self.topic}-{self.original_partition} at offset {self.offset}"

    @property
    def is_tombstone(self) -> bool:
        return self.value is None


class TopicPosition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


@dataclass(slots=True)
class Batch:
    """What a source has read, and where it would go on: both are written in one transaction, or neither is.

    `partition` names a part of the source that has a position of its own, for example `{"filename": "a.txt"}`;
    `offset` is the position behind these records, for example `{"position": 1024}`. Without an offset nothing is
    remembered. A batch may hold positions of several partitions in `offsets` instead. With `is_open` the next batch
    belongs to it: readers see both or neither, however large they are.
    """

    records: Sequence[SourceRecord]
    partition: Mapping[str, Any] | None = None
    offset: Mapping[str, Any] | None = None
    offsets: Sequence[SourcePosition] = ()
    is_open: bool = False

    def positions(self) -> Iterator[SourcePosition]:
        if self.partition is not None and self.offset is not None:
            yield self.partition, self.offset
        yield from self.offsets


@dataclass(slots=True)
class ValueBatch:
    """Values that a source has read, without an object for each record: they have no keys and no headers.

    `partition`, `offset`, `offsets` and `is_open` are those of `Batch`. Without a `topic` the values go to that of the
    connector's setting `topic`. All values have the same schema.
    """

    values: Sequence[Any]
    topic: str = ""
    partition: Mapping[str, Any] | None = None
    offset: Mapping[str, Any] | None = None
    value_schema: Schema | None = None
    offsets: Sequence[SourcePosition] = ()
    is_open: bool = False

    def positions(self) -> Iterator[SourcePosition]:
        if self.partition is not None and self.offset is not None:
            yield self.partition, self.offset
        yield from self.offsets


AnyBatch = Batch | ValueBatch


class SourceOffsets(Protocol):
    """The positions that a source's tasks have stored."""

    def get(self, partition: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the stored position of a partition of the source; None if there is none."""

    def all(self) -> Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]:
        """Return every partition of the connector with its position."""

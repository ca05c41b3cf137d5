"""What a pipeline's file declares, before anything of it runs (pure).

A pipeline has sources, which are topics that others write, and datasets, each a function from frames to a frame:

    stream       an append-only topic: every row of the frame is a record
    table        a compacted topic: a row is the newest state of its key, or takes the key away
    view         a table that can be queried: `strandline view query`
    temporary    no topic; it is a part of whatever reads it

A function's parameters name what it reads: other datasets or sources. Streams are read as streams. A table is read as
it is when a batch begins, a static frame for each batch; its changes are a stream by `changes` in the decorator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

REGISTRY: Final = "registry"
"""In the place of a schema: values have the ids of schemas in a registry."""


class Kind(Enum):
    STREAM = "stream"
    TABLE = "table"
    VIEW = "view"
    TEMPORARY = "temporary"

    @property
    def has_topic(self) -> bool:
        return self is not Kind.TEMPORARY

    @property
    def has_keys(self) -> bool:
        """Return whether its topic is compacted, and a record takes the place of the one before."""
        return self in (Kind.TABLE, Kind.VIEW)


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the file something is declared, for messages."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Watermark:
    column: str
    delay: str
    """In Spark's words: `10 minutes`."""


@dataclass(frozen=True, slots=True)
class SourceTopic:
    """A topic that is read and not written."""

    name: str
    topic: str
    schema: str | None = None
    """Of the value, in Spark's DDL, or the word `registry`; None: the columns of the record itself, as bytes."""
    key: tuple[str, ...] = ()
    """If it is a table: the columns of its key, taken from the record's key."""
    is_table: bool = False
    watermark: Watermark | None = None
    dead_letters: str | None = None
    """The topic for records whose value does not parse; None: they end the query with a sentence."""
    options: Mapping[str, str] = field(default_factory=dict)
    """More options of the format "strandline": maxOffsetsPerTrigger, startingOffsets ..."""
    at: Place | None = None

    @property
    def is_of_registry(self) -> bool:
        """Return whether its values have the ids of schemas in a registry."""
        return self.schema is not None and self.schema.strip().lower() == REGISTRY

    @property
    def subject(self) -> str:
        """Return whose newest version has its columns, if they are those of a registry."""
        return next((value for name, value in self.options.items() if name.lower() == "subject"), f"{self.topic}-value")


@dataclass(frozen=True, slots=True)
class Dataset:
    name: str
    kind: Kind
    function: Callable[..., Any]
    """Frames, by the names in `inputs`, to a frame."""
    inputs: tuple[str, ...]
    changes: frozenset[str] = frozenset()
    """Those of the inputs that are tables and are read as the stream of their changes."""
    topic: str = ""
    key: tuple[str, ...] = ()
    mode: str | None = None
    """Spark's output mode; None: append for streams, update for tables."""
    partitions: int | None = None
    trigger: str | None = None
    """Processing time between batches, `10 seconds`; None: what the run says."""
    options: Mapping[str, str] = field(default_factory=dict)
    """More options of the sink."""
    null_key: str | None = None
    """The key under which a table of one key column, a string, keeps rows that have none."""
    comment: str = ""
    at: Place | None = None
    schema: str | None = None
    """The word `registry`: values are written by the newest version of the subject; None: they are JSON."""

    @property
    def is_of_registry(self) -> bool:
        """Return whether its values are written by a schema of a registry."""
        return self.schema is not None

    @property
    def subject(self) -> str:
        """Return whose newest version that is."""
        return f"{self.topic}-value"

    @property
    def output_mode(self) -> str:
        return self.mode or ("update" if self.kind.has_keys else "append")


@dataclass(frozen=True, slots=True)
class Pipeline:
    name: str
    file: str
    sources: Mapping[str, SourceTopic]
    datasets: Mapping[str, Dataset]
    """In an order in which each comes after what it reads."""

    @property
    def written(self) -> list[Dataset]:
        """Return the datasets that have a topic: each is one query."""
        return [each for each in self.datasets.values() if each.kind.has_topic]


def versioned_topic(topic: str, version: int, *, is_active: bool) -> str:
    """Return where a version of a dataset writes: the active one has the public name, all others one of their own."""
    return topic if is_active else f"{topic}.v{version}"


@dataclass(frozen=True, slots=True)
class KnownDataset:
    """What the cluster knows of a dataset that a pipeline has written: enough to read it from anywhere."""

    topic: str
    schema: str
    """Of its rows, keys among them: a StructType in Spark's JSON."""
    key: tuple[str, ...]
    kind: Kind
    reader_schema: str = ""
    """By what its values are read, if they are written by a schema of a registry; empty: they are JSON."""


def dead_letters_name(source: str) -> str:
    """Return the name of the query that writes the dead letters of a source."""
    return f"dead letters of {source}"

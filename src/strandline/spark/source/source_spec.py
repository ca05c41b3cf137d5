"""What a user wants of the source, once the options are understood (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias
from uuid import UUID

from strandline.client.cluster_client import LATEST, ClientSettings
from strandline.ids import TopicPartition
from strandline.spark.error_translation import SparkFailed
from strandline.spark.source import kafka_settings

COLUMNS: Final = {
    "key": "BINARY",
    "value": "BINARY",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "timestampType": "INT",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
    "leaderEpoch": "INT",
}
"""Every column of a record, with its type in Spark's words."""
CORRUPT_COLUMN: Final = "_corrupt"
KEY_COLUMN: Final = "_key"
CORRUPT_KEY_COLUMN: Final = "_corrupt_key"
MADE_COLUMNS: Final = (CORRUPT_COLUMN, KEY_COLUMN, CORRUPT_KEY_COLUMN)
"""Columns that are neither of the record nor of its value."""
REGISTRY: Final = "registry"
"""What a user says in the place of `valueSchema` for values that have ids of a registry's schemas."""


class OptionRefused(SparkFailed):
    """An option that is unknown, that has no meaning as it stands, or that contradicts another."""


@dataclass(frozen=True)
class Everywhere:
    """Earliest or latest, in every partition."""

    offset: int


@dataclass(frozen=True)
class Offsets:
    """An offset of each partition; LATEST and EARLIEST may stand for one."""

    by_partition: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class Timestamps:
    """The first offset of that time or later, by partition, or in all of them."""

    everywhere: int | None = None
    by_partition: Mapping[TopicPartition, int] = field(default_factory=dict)


Limit: TypeAlias = Everywhere | Offsets | Timestamps


@dataclass(frozen=True)
class TopicSubscription:
    """Which partitions are read: all of some topics, of those whose names fit, or just these."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True)
class TriggerLimits:
    """How much one batch of a stream takes."""

    offsets_max: int | None = None
    offsets_min: int | None = None
    delay_ms_max: int = 0
    """Less than `offsets_min` waits for more, but not longer than this."""
    bytes_max: int | None = None

    @property
    def are_set(self) -> bool:
        return any(each is not None for each in (self.offsets_max, self.offsets_min, self.bytes_max))


@dataclass(frozen=True)
class RowShape:
    """Which columns there are."""

    columns: tuple[str, ...] = ()
    """Of the record."""
    value_schema: str | None = None
    """Of the value, as the user wrote it."""
    subject: str | None = None
    """Whose schemas of a registry values have, if `value_schema` is the word `registry`."""
    reader_schema: str | None = None
    """By what values of a registry are read; None: by the newest version of the subject."""
    value_column: str | None = None
    """The value's columns are the fields of one struct of this name."""
    key_schema: str | None = None
    """Of the key, whose columns are the fields of the struct `_key`."""
    fails_on_corrupt: bool = False
    """A key or value that does not fit ends the query; else it is nulls, and stands in a column of its own."""

    @property
    def is_of_registry(self) -> bool:
        """Whether values have ids of a registry's schemas."""
        return self.subject is not None

    def is_of_record(self, name: str) -> bool:
        """Whether a column is one of the record. With a schema of the value, names that `columns` left out are its."""
        return name in (COLUMNS if self.value_schema is None else self.columns)


@dataclass(frozen=True)
class SourceOptions:
    client: ClientSettings
    isolation_level: int
    starting: Limit
    ending: Limit
    subscription: TopicSubscription
    limits: TriggerLimits = TriggerLimits()
    start_at: Mapping[TopicPartition, int] | None = None
    """Where a stream began that is read again: goes before `starting`; other partitions from their first record on."""
    start_ids: Mapping[str, UUID] = field(default_factory=dict)
    """By topic, which one of its name `start_at` is about, as far as that is known."""
    stop_at: Mapping[TopicPartition, int] | None = None
    """Where a stream ends, and it reads no other partitions; None: it does not end."""
    no_match_is_latest: bool = False
    fails_on_data_loss: bool = True
    shape: RowShape = RowShape()
    pushes_filters: bool = False
    """Filters narrow down what is planned: right only for a frame that is used with one filter."""
    partitions_min: int | None = None
    records_per_partition_max: int | None = None
    partition_bytes_max: int = kafka_settings.PARTITION_BYTES
    wait_ms_max: int = 500
    stall_timeout_s: float = 120.0
    offset_retries: int = 3
    offset_retry_s: float = 1.0

    @property
    def starts_with_the_next_record(self) -> bool:
        """Whether where it starts depends on when it is asked."""
        if self.start_at is not None:
            return False
        match self.starting:
            case Everywhere(offset):
                return offset == LATEST
            case Offsets(by_partition):
                return LATEST in by_partition.values()
            case _:
                return self.no_match_is_latest

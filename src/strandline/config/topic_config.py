"""The settings of a topic, resolved once into plain attributes that the data path reads without a look-up.

Precedence is Kafka's: the topic's own override, then the broker's synonym, then the default. `TopicConfig()` is the
configuration of a topic on a broker where nothing was set.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from strandline.config.settings import (
    CLUSTER_WIDE,
    INT_MAX,
    LONG_MAX,
    Setting,
    Synonym,
    at_least,
    between,
    boolean,
    double,
    integer,
    long,
    of_form,
    one_of,
    settings_of,
    text,
    text_of,
    words,
)
from strandline.config.storage_settings import TieredTopicSettings, check_tiering
from strandline.errors import InvalidConfig

if TYPE_CHECKING:
    from strandline.config.kafka_settings import OtherSetting

HOUR_MS = 60 * 60 * 1000
DAY_MS = 24 * HOUR_MS
CODECS = {"producer": -1, "uncompressed": 0, "none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


_THROTTLED = of_form(r"\*|[0-9]+:[0-9]+", "`*`", "partition:broker")
_OWNER = of_form(r"[^\x00-\x1f\x7f]{0,200}", "up to 200 characters of one line")
_OBJECTIVE = of_form(r"[^\x00-\x1f\x7f]{1,255}=[0-9]{1,15}(ms)?", "group=60000ms", "group=1000")

_SUBJECT_STRATEGIES = "io.confluent.kafka.serializers.subject"
_STRATEGY = of_form(
    rf"({re.escape(_SUBJECT_STRATEGIES)}\.)?(TopicName|RecordName|TopicRecordName)Strategy",
    "TopicNameStrategy",
    "RecordNameStrategy",
    "TopicRecordNameStrategy",
)
"""With or without the package of Confluent's classes."""


def _as(*names: str) -> tuple[Synonym, ...]:
    return tuple(Synonym(name, update=CLUSTER_WIDE) for name in names)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig(TieredTopicSettings):
    """The settings in force for one topic. Attributes are Kafka's names; the last are derived for the data path."""

    cleanup_policy: tuple[str, ...] = words(
        "cleanup.policy",
        ("delete",),
        one_of("delete", "compact"),
        "`delete` drops old segments by time and size, `compact` keeps the last record of each key, both does both, "
        "an empty list neither. Null keys are refused where `compact` is set.",
        synonyms=_as("log.cleanup.policy"),
    )
    compression_type: str = text(
        "compression.type",
        "producer",
        one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        "`producer` keeps what the producer sent and costs nothing; any other codec re-encodes batches that differ.",
        synonyms=_as("compression.type"),
    )
    compression_gzip_level: int = integer(
        "compression.gzip.level",
        -1,
        between(1, 9, also=-1),
        "Level used when the broker re-encodes with gzip; -1 is the codec's own default.",
        synonyms=_as("compression.gzip.level"),
    )
    compression_lz4_level: int = integer(
        "compression.lz4.level",
        9,
        between(1, 17),
        "Level used when the broker re-encodes with lz4; 9 is the fast compressor, every other one the slow one.",
        synonyms=_as("compression.lz4.level"),
    )
    compression_zstd_level: int = integer(
        "compression.zstd.level",
        3,
        between(-131072, 22),
        "Level used when the broker re-encodes with zstd.",
        synonyms=_as("compression.zstd.level"),
    )
    delete_retention_ms: int = long(
        "delete.retention.ms",
        DAY_MS,
        at_least(0),
        "How long a compacted topic keeps tombstones, and markers of transactions, once it was cleaned of the rest.",
        synonyms=_as("log.cleaner.delete.retention.ms"),
    )
    file_delete_delay_ms: int = long(
        "file.delete.delay.ms",
        60_000,
        at_least(0),
        "How long the files of a deleted topic or segment stay on disk, renamed, so that readers in flight can finish.",
        synonyms=_as("log.segment.delete.delay.ms"),
    )
    flush_messages: int = long(
        "flush.messages",
        LONG_MAX,
        at_least(1),
        "Flush to disk after this many records, whatever `flush.mode` says.",
        synonyms=_as("log.flush.interval.messages"),
    )
    flush_ms: int = long(
        "flush.ms",
        LONG_MAX,
        at_least(0),
        "Flush to disk after this time, whatever `flush.mode` says.",
        synonyms=(*_as("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms")),
    )
    flush_mode: str = text(
        "flush.mode",
        "auto",
        one_of("auto", "ack", "async"),
        "Strandline's own. `ack`: only flushed records are acknowledged and visible (many appends share one flush). "
        "`async`: the operating system flushes when it likes, as in Apache Kafka. `auto`: `ack` while the in-sync set "
        "is the leader alone, else `async`.",
        synonyms=_as("flush.mode"),
    )
    index_interval_bytes: int = integer(
        "index.interval.bytes",
        4096,
        at_least(0),
        "Bytes of log between two entries of the sparse offset index.",
        synonyms=_as("log.index.interval.bytes"),
    )
    max_compaction_lag_ms: int = long(
        "max.compaction.lag.ms",
        LONG_MAX,
        at_least(1),
        "The longest time a record of a compacted topic stays uncompacted; segments are rolled and cleaned for it.",
        synonyms=_as("log.cleaner.max.compaction.lag.ms"),
    )
    max_message_bytes: int = integer(
        "max.message.bytes",
        1_048_588,
        at_least(0),
        "The largest record batch that is accepted, as it is on the wire.",
        synonyms=_as("message.max.bytes"),
    )
    timestamp_after_max_ms: int = long(
        "message.timestamp.after.max.ms",
        HOUR_MS,
        at_least(0),
        "How far a record's timestamp may lie after the broker's clock (`CreateTime` only).",
        synonyms=_as("log.message.timestamp.after.max.ms"),
    )
    timestamp_before_max_ms: int = long(
        "message.timestamp.before.max.ms",
        LONG_MAX,
        at_least(0),
        "How far a record's timestamp may lie before the broker's clock (`CreateTime` only).",
        synonyms=_as("log.message.timestamp.before.max.ms"),
    )
    message_timestamp_type: str = text(
        "message.timestamp.type",
        "CreateTime",
        one_of("CreateTime", "LogAppendTime"),
        "Whether a record carries the producer's time or the time of the append.",
        synonyms=_as("log.message.timestamp.type"),
    )
    min_cleanable_dirty_ratio: float = double(
        "min.cleanable.dirty.ratio",
        0.5,
        between(0, 1),
        "The share of uncompacted bytes above which a compacted log is cleaned.",
        synonyms=_as("log.cleaner.min.cleanable.ratio"),
    )
    min_compaction_lag_ms: int = long(
        "min.compaction.lag.ms",
        0,
        at_least(0),
        "The shortest time a record of a compacted topic stays uncompacted.",
        synonyms=_as("log.cleaner.min.compaction.lag.ms"),
    )
    min_insync_replicas: int = integer(
        "min.insync.replicas",
        1,
        at_least(1),
        "With acks=all, an append is refused while fewer replicas than this are in sync. Where it is not set, a topic "
        "that is created with three or more replicas gets 2 as its own setting.",
        synonyms=_as("min.insync.replicas"),
    )
    preallocate: bool = boolean(
        "preallocate",
        False,
        "Give a new segment file its full size at once.",
        synonyms=_as("log.preallocate"),
    )
    retention_bytes: int = long(
        "retention.bytes",
        -1,
        at_least(-1),
        "The size from which old segments of a partition are deleted; -1 is no limit.",
        synonyms=_as("log.retention.bytes"),
    )
    retention_ms: int = long(
        "retention.ms",
        7 * DAY_MS,
        at_least(-1),
        "The age from which old segments of a partition are deleted; -1 is no limit.",
        synonyms=(
            *_as("log.retention.ms"),
            Synonym("log.retention.minutes", 60_000, kind="int"),
            Synonym("log.retention.hours", HOUR_MS, kind="int"),
        ),
    )
    segment_bytes: int = integer(
        "segment.bytes",
        1_073_741_824,
        at_least(1_048_576),
        "The size at which a segment is closed and a new one begun.",
        synonyms=_as("log.segment.bytes"),
    )
    internal_segment_bytes: int | None = integer(
        "internal.segment.bytes",
        None,
        between(14, INT_MAX),
        "Overrides `segment.bytes` without its lower limit. For tests, as in Apache Kafka.",
        synonyms=(Synonym("internal.segment.bytes"),),
        hidden=True,
    )
    segment_index_bytes: int = integer(
        "segment.index.bytes",
        10_485_760,
        at_least(4),
        "The largest size of an index file; a segment is closed when its index is full.",
        synonyms=_as("log.index.size.max.bytes"),
    )
    segment_jitter_ms: int = long(
        "segment.jitter.ms",
        0,
        at_least(0),
        "A random time taken off `segment.ms`, so that segments do not all roll at once.",
        synonyms=(*_as("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", HOUR_MS, kind="int")),
    )
    segment_ms: int = long(
        "segment.ms",
        7 * DAY_MS,
        at_least(1),
        "The age at which a segment is closed even if it is not full.",
        synonyms=(*_as("log.roll.ms"), Synonym("log.roll.hours", HOUR_MS, kind="int")),
    )
    unclean_leader_election_enable: bool = boolean(
        "unclean.leader.election.enable",
        False,
        "Let a replica that was not in sync lead when no other lives, at the price of lost records.",
        synonyms=_as("unclean.leader.election.enable"),
    )
    validate_records: str = text(
        "strandline.validate.records",
        "auto",
        one_of("auto", "all", "off"),
        "Strandline's own. Whether a leader opens compressed batches to check their records before it stores them. "
        "`auto`: those of up to 64 KiB compressed. `all`: every one, large ones in a thread. `off`: none, unless "
        "`cleanup.policy` or `compression.type` opens them anyway. Uncompressed batches are always checked.",
        synonyms=_as("strandline.validate.records"),
    )
    key_schema_validation: bool = boolean(
        "confluent.key.schema.validation",
        False,
        "Confluent's name. A leader rejects records whose key does not begin with the id of a schema that is "
        "registered under the subject of the key; a null key passes. Ids are read from the topic `_schemas`.",
    )
    value_schema_validation: bool = boolean(
        "confluent.value.schema.validation",
        False,
        "Confluent's name. A leader rejects records whose value does not begin with the id of a schema that is "
        "registered under the subject of the value; a null value passes. Ids are read from the topic `_schemas`.",
    )
    key_subject_name_strategy: str = text(
        "confluent.key.subject.name.strategy",
        f"{_SUBJECT_STRATEGIES}.TopicNameStrategy",
        _STRATEGY,
        "Confluent's name. The subject of a key: `TOPIC-key`, the name of the record type, or `TOPIC-` and that name.",
    )
    value_subject_name_strategy: str = text(
        "confluent.value.subject.name.strategy",
        f"{_SUBJECT_STRATEGIES}.TopicNameStrategy",
        _STRATEGY,
        "Confluent's name. The subject of a value: `TOPIC-value`, the name of the record type, or `TOPIC-` and that "
        "name.",
    )
    schema_validation: str = text(
        "strandline.schema.validation",
        "id",
        one_of("id", "strict"),
        "Strandline's own. How keys and values are validated where Confluent's settings ask for it. `id`: by the id of "
        "their schema. `strict`: Avro payloads must also decode with that schema, to their last byte.",
    )
    retention_lock_ms: int = long(
        "strandline.retention.lock.ms",
        0,
        at_least(0),
        "Strandline's own. Records stay for so long after they were appended, whatever retention, DeleteRecords and "
        "DeleteTopics ask for; 0 for no lock. It can be raised and not lowered, is at most "
        "`strandline.retention.lock.max.ms`, needs `message.timestamp.type=LogAppendTime`, and excludes compaction.",
    )
    audit_chain: bool = boolean(
        "strandline.audit.chain",
        False,
        "Strandline's own. The leader of each partition chains hashes of its batches, and anchors them on the audit "
        "topic every `strandline.audit.chain.interval.ms`; `strandline topic verify` compares. Needs an audit "
        "(`strandline.audit.enable`), and excludes compaction.",
    )
    dead_letters: bool = boolean(
        "errors.deadletterqueue.group.enable",
        False,
        "Whether share groups may write their dead letters to this topic. Its owner decides that.",
    )
    delay_enable: bool = boolean(
        "strandline.delay.enable",
        False,
        "Strandline's own. Share groups get a record when the time that it carries has come, and not before. Other "
        "consumers read the log as it is. It needs `message.timestamp.type=CreateTime`.",
    )
    delay_max_ms: int = long(
        "strandline.delay.max.ms",
        7 * DAY_MS,
        between(0, 366 * DAY_MS),
        "Strandline's own. How far a record's timestamp may lie after the broker's clock where "
        "`strandline.delay.enable` is set, in place of `message.timestamp.after.max.ms`; else INVALID_TIMESTAMP.",
    )
    leader_throttled_replicas: tuple[str, ...] = words(
        "leader.replication.throttled.replicas",
        (),
        _THROTTLED,
        "Replicas whose outgoing replication is slowed.",
        effect=False,
    )
    follower_throttled_replicas: tuple[str, ...] = words(
        "follower.replication.throttled.replicas",
        (),
        _THROTTLED,
        "Replicas whose incoming replication is slowed.",
        effect=False,
    )

    owner: str = text(
        "strandline.owner",
        "",
        _OWNER,
        "Strandline's own. The team that answers for the topic; for people, `doctor` and `contract`. It changes "
        "nothing else.",
    )
    lag_objectives: tuple[str, ...] = words(
        "strandline.lag.objectives",
        (),
        _OBJECTIVE,
        "Strandline's own. How far groups may be behind in this topic, each as `group=60000ms` or `group=1000` "
        "(records). `group lag` and `doctor` compare with it, and `contract alerts` makes alert rules of it.",
    )

    is_tiered: bool = dataclasses.field(init=False)
    """Whether sealed segments go to the object store."""
    commits_in_store: bool = dataclasses.field(init=False)
    """Whether records count when they are in the object store, and not when replicas hold them."""
    cleans_locally: bool = dataclasses.field(init=False)
    """Whether the cleaner compacts local segments. Those of an object topic are a cache, and the store is compacted."""
    compact: bool = dataclasses.field(init=False)
    """Whether `cleanup.policy` names `compact`. Then records without a key are rejected."""
    roll_ms: int = dataclasses.field(init=False)
    """`segment.ms`, or less where compaction must not wait that long for the active segment."""
    compression_codec: int = dataclasses.field(init=False)
    """The number of the codec in batch attributes, or -1 to keep the producer's."""
    validates_schemas: bool = dataclasses.field(init=False)
    """Whether records are validated by the schemas of their keys or values."""
    log_append_time: bool = dataclasses.field(init=False)
    """Whether the broker stamps batches with the time of the append."""
    keeps_plain: bool = dataclasses.field(init=False)
    """Whether a batch without compression is stored as it came, whatever its keys and values."""

    def __post_init__(self) -> None:
        if self.internal_segment_bytes is not None:
            object.__setattr__(self, "segment_bytes", self.internal_segment_bytes)
        if self.delay_enable:
            object.__setattr__(self, "timestamp_after_max_ms", self.delay_max_ms)
        object.__setattr__(self, "compact", "compact" in self.cleanup_policy)
        is_object = self.storage == "object"
        object.__setattr__(self, "is_tiered", self.remote_storage_enable or is_object)
        object.__setattr__(self, "commits_in_store", is_object and self.object_ack == "object")
        object.__setattr__(self, "cleans_locally", self.compact and not self.commits_in_store)
        object.__setattr__(
            self, "roll_ms", min(self.segment_ms, self.max_compaction_lag_ms) if self.compact else self.segment_ms
        )
        object.__setattr__(self, "compression_codec", CODECS[self.compression_type])
        object.__setattr__(self, "log_append_time", self.message_timestamp_type == "LogAppendTime")
        object.__setattr__(self, "validates_schemas", self.key_schema_validation or self.value_schema_validation)
        is_opened = self.compact or self.validates_schemas or self.log_append_time or self.compression_codec > 0
        object.__setattr__(self, "keeps_plain", not is_opened)

    def with_overrides(self, overrides: Mapping[str, str | None]) -> TopicConfig:
        """Return these settings with a topic's own on top. Raise InvalidConfig for an unknown name or a bad value."""
        for name, raw in overrides.items():
            if raw is None:
                raise InvalidConfig(f"{name} has no value; leave it out to use the default")
            if name not in TOPIC_SETTINGS:
                _check_other(name, raw)
        resolved = self._replaced(overrides)
        if resolved.max_compaction_lag_ms < resolved.min_compaction_lag_ms:
            raise InvalidConfig(
                f"min.compaction.lag.ms={resolved.min_compaction_lag_ms} is above "
                f"max.compaction.lag.ms={resolved.max_compaction_lag_ms}"
            )
        if resolved.audit_chain and resolved.compact:
            raise InvalidConfig(
                "strandline.audit.chain=true cannot be used with cleanup.policy=compact, which removes records"
            )
        if resolved.audit_chain and (resolved.remote_storage_enable or resolved.storage == "object"):
            raise InvalidConfig(
                "strandline.audit.chain=true cannot be used with remote.storage.enable=true or "
                "strandline.storage=object yet: the chain reads local segments only"
            )
        if resolved.delay_enable and resolved.log_append_time:
            raise InvalidConfig(
                "strandline.delay.enable needs message.timestamp.type=CreateTime, because a record is due at the time "
                "that its producer gave it"
            )
        if resolved.cleanup_policy == ("compact",):
            check_tiering(resolved, retention_ms=-1, retention_bytes=-1)
        else:
            check_tiering(resolved, retention_ms=resolved.retention_ms, retention_bytes=resolved.retention_bytes)
        return resolved

    def with_stored(self, overrides: Mapping[str, str]) -> TopicConfig:
        """Return these settings with stored overrides on top, without those that this version does not accept.

        The topic must stay usable even if an older version or Apache Kafka stored a value that we refuse.
        """
        try:
            return self.with_overrides(overrides)
        except InvalidConfig:
            return self._replaced({name: raw for name, raw in overrides.items() if _is_usable(name, raw)})

    def _replaced(self, overrides: Mapping[str, str | None]) -> TopicConfig:
        values = {
            TOPIC_SETTINGS[name][0]: TOPIC_SETTINGS[name][1].parse(raw)
            for name, raw in overrides.items()
            if name in TOPIC_SETTINGS and raw is not None
        }
        if not values:
            return self
        return dataclasses.replace(self, **values)  # type: ignore[arg-type]  # values are typed by their settings

    def value_texts(self) -> dict[str, str | None]:
        """Return every setting by name, as Kafka prints it."""
        return {setting.name: text_of(getattr(self, attribute)) for attribute, setting in settings_of(TopicConfig)}


TOPIC_SETTINGS: dict[str, tuple[str, Setting]] = {
    setting.name: (attribute, setting) for attribute, setting in settings_of(TopicConfig)
}


@cache
def other_topic_settings() -> dict[str, OtherSetting]:
    """Return Kafka's settings of topics that this broker does not have: without effect, or refused."""
    from strandline.config.kafka_settings import OTHER_SETTINGS

    return {other.name: other for other in OTHER_SETTINGS if other.is_topic}


def _is_usable(name: str, raw: str) -> bool:
    try:
        TopicConfig().with_overrides({name: raw})
    except InvalidConfig:
        return False
    return True


def _check_other(name: str, raw: str) -> None:
    other = other_topic_settings().get(name)
    if other is None:
        raise InvalidConfig(f"Unknown topic config name: {name}")
    Setting(name, other.kind, None, None, other.reason).parse(raw)
    if other.verdict != "no effect" and other.asks_for_more(raw):
        raise InvalidConfig(f"{name}={raw!r} is refused. {other.reason}")

"""The options of the source: those of Spark's own Kafka source by the same names, and a few of ours (pure).

Ours: `columns`, `includeLeaderEpoch`, `maxBytesPerTrigger`, `pushFilters`, `startAt`, `stopAt`, `valueSchema` with
`subject`, `readerSchema`, `valueColumn`, `keySchema` and `mode`.
Settings of a Kafka consumer come as `kafka.<name>`; they are done, or without meaning for a reader without threads and
groups, or refused in words. What differs from Spark's source: `kafka.isolation.level` is read_committed unless said
otherwise, and an unknown name is an error.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from typing import Final

from strandline.client.cluster_client import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, ClientSettings
from strandline.client.security import ClientSecurity
from strandline.ids import TopicPartition
from strandline.spark.source import kafka_settings
from strandline.spark.source.offset_json import TOPIC_IDS, topic_ids_of
from strandline.spark.source.source_spec import (
    COLUMNS,
    REGISTRY,
    Everywhere,
    Limit,
    Offsets,
    OptionRefused,
    RowShape,
    SourceOptions,
    Timestamps,
    TopicSubscription,
    TriggerLimits,
)

_OPTIONS: Final = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "startAt",
    "stopAt",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    "includeLeaderEpoch",
    "groupIdPrefix",
    "columns",
    "pushFilters",
    "valueSchema",
    "subject",
    "readerSchema",
    "valueColumn",
    "keySchema",
    "mode",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafkaConsumer.pollTimeoutMs",
)
_OF_SINKS: Final = ("topic", "acks", "transactiontimeoutms", "checkpointlocation", "queryname", "querylogdir")
"""Some programs give the same options to both ends, and Spark's own source does not mind."""
_NAMES: Final = {name.lower(): name for name in _OPTIONS}
_MS: Final = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_STREAM_DELAY: Final = "15m"


def parse_shape(given: Mapping[str, str]) -> RowShape:
    """The columns; and OptionRefused for all that is wrong whether a stream or a batch is to come, which is not known
    when Spark asks for a schema."""
    options, _ = _checked_names(given)
    _subscription(options)
    return _shape(options)


def parse_client_settings(given: Mapping[str, str]) -> ClientSettings:
    """Return how to reach the cluster."""
    return _client(*_checked_names(given))


def parse_options(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    options, settings = _checked_names(given)
    return SourceOptions(
        client=_client(options, settings),
        isolation_level=_isolation_level(settings.get("isolation.level", "read_committed")),
        starting=_limit(options, "starting", LATEST if streaming else EARLIEST, streaming=streaming),
        ending=_limit(options, "ending", LATEST, streaming=streaming),
        subscription=_subscription(options),
        limits=_per_trigger(options),
        start_at=_of_stream(options, "startAt", streaming=streaming, may_be_empty=True),
        start_ids=topic_ids_of(json.loads(options.get("startat", "{}"))) if streaming else {},
        stop_at=_of_stream(options, "stopAt", streaming=streaming),
        no_match_is_latest=_word(options, "startingOffsetsByTimestampStrategy", ("error", "latest")) == "latest",
        fails_on_data_loss=_flag(options, "failOnDataLoss", default=True),
        shape=_shape(options),
        pushes_filters=_flag(options, "pushFilters", default=False),
        partitions_min=_maybe_number(options, "minPartitions"),
        records_per_partition_max=_maybe_number(options, "maxRecordsPerPartition"),
        partition_bytes_max=min(
            _number(options, "kafka.max.partition.fetch.bytes", kafka_settings.PARTITION_BYTES),
            _number(options, "kafka.fetch.max.bytes", kafka_settings.FETCH_BYTES),
        ),
        wait_ms_max=_number(options, "kafka.fetch.max.wait.ms", 500),
        stall_timeout_s=_number(options, "kafkaConsumer.pollTimeoutMs", 120_000) / 1000,
        offset_retries=_number(options, "fetchOffset.numRetries", 3, least=0),
        offset_retry_s=_number(options, "fetchOffset.retryIntervalMs", 1000, least=0) / 1000,
    )


def _client(options: Mapping[str, str], settings: Mapping[str, str]) -> ClientSettings:
    return ClientSettings(
        settings["bootstrap.servers"],
        client_id=settings.get("client.id", "strandline-spark"),
        request_timeout_s=_number(options, "kafka.request.timeout.ms", 30_000) / 1000,
        api_timeout_s=_number(options, "kafka.default.api.timeout.ms", 60_000) / 1000,
        security=ClientSecurity.spoken(settings),
    )


def _checked_names(given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The options by their names in lower case, and those that begin with `kafka.` without it."""
    options = {name.lower(): str(value) for name, value in given.items()}
    if options.get("provider") == "strandline":
        raise OptionRefused(
            "Spark does not hand the options of a table in its catalog to a source in Python: say CREATE TEMPORARY "
            "VIEW ... USING strandline OPTIONS (...)"
        )
    for name in options:
        if name == "path":
            raise OptionRefused("load() takes no path: name topics with the option subscribe, and say load()")
        if name not in _NAMES and name not in _OF_SINKS and not name.startswith("kafka."):
            near = difflib.get_close_matches(name, _NAMES, 1)
            hint = f"did you mean {_NAMES[near[0]]}?" if near else "correct the name, or leave it out"
            raise OptionRefused(f"{name} is no option of the source: {hint}")
    settings = {name.removeprefix("kafka."): value for name, value in options.items() if name.startswith("kafka.")}
    try:
        kafka_settings.check(settings)
    except ValueError as error:
        raise OptionRefused(str(error)) from None
    return options, settings


def _subscription(options: Mapping[str, str]) -> TopicSubscription:
    ways = [name for name in ("subscribe", "subscribePattern", "assign") if name.lower() in options]
    if len(ways) != 1:
        said = f"{' and '.join(ways)} cannot be said together" if ways else "nothing says which topics to read"
        raise OptionRefused(f"{said}: say one of subscribe, subscribePattern and assign")
    text = options[ways[0].lower()].strip()
    if ways == ["subscribe"]:
        topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
        if not topics:
            raise OptionRefused("subscribe names no topic: say one or more, with commas between them")
        return TopicSubscription(topics=topics)
    if ways == ["subscribePattern"]:
        if not text:
            raise OptionRefused("subscribePattern is empty: say a regular expression that names of topics fit")
        try:
            re.compile(text)
        except re.error as error:
            raise OptionRefused(f"subscribePattern {text!r} is no regular expression: {error}") from None
        return TopicSubscription(pattern=text)
    return TopicSubscription(assigned=_assigned(text))


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    wrong = OptionRefused(f"""assign is {text!r}: say it like {{"orders":[0,1],"payments":[0]}}""")
    topics = _json_object(text, wrong)
    found = []
    for topic, partitions in topics.items():
        if not isinstance(partitions, list) or not all(_is_number(each) and each >= 0 for each in partitions):
            raise wrong
        found += [TopicPartition(topic, each) for each in partitions]
    if not found:
        raise wrong
    return tuple(sorted(dict.fromkeys(found)))


# Where to start and where to end


def _limit(options: Mapping[str, str], side: str, default: int, *, streaming: bool) -> Limit:
    """The time for all partitions goes before the times by partition, and these before the offsets, as in Spark."""
    names = (f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets")
    said = [name for name in names if name.lower() in options]
    if not said:
        return Everywhere(default)
    if side == "ending" and streaming:
        raise OptionRefused(f"{said[0]} has no meaning for a stream, which does not end: leave it out")
    name = said[0]
    text = options[name.lower()].strip()
    if name == names[0]:
        if not re.fullmatch(r"\d+", text):
            raise OptionRefused(f"{name} is {text!r}: say milliseconds since 1970")
        return Timestamps(everywhere=int(text))
    if name == names[1]:
        return Timestamps(by_partition=_by_partition(name, text, least=0))
    if text.lower() in ("earliest", "latest"):
        return _checked(side, Everywhere(EARLIEST if text.lower() == "earliest" else LATEST), streaming=streaming)
    return _checked(side, Offsets(_by_partition(name, text, least=EARLIEST)), streaming=streaming)


def _checked(side: str, limit: Everywhere | Offsets, *, streaming: bool) -> Limit:
    """Reject a batch that begins with the end, or ends with the beginning, because it would have no records."""
    wrong = LATEST if side == "starting" else EARLIEST
    said = [limit.offset] if isinstance(limit, Everywhere) else limit.by_partition.values()
    if not streaming and wrong in said:
        word = "latest" if wrong == LATEST else "earliest"
        raise OptionRefused(f"{side}Offsets of a batch cannot be {word}: nothing would be read")
    return limit


def _of_stream(
    options: Mapping[str, str], name: str, *, streaming: bool, may_be_empty: bool = False
) -> dict[TopicPartition, int] | None:
    """Offsets of a stream, if the option is said; it has no meaning for a batch."""
    if not streaming or name.lower() not in options:
        return None
    return _by_partition(name, options[name.lower()], least=0, may_be_empty=may_be_empty)


def _by_partition(name: str, text: str, *, least: int, may_be_empty: bool = False) -> dict[TopicPartition, int]:
    wrong = OptionRefused(f"""{name} is {text!r}: say it like {{"orders":{{"0":23,"1":42}}}}""")
    found = {}
    for topic, partitions in _json_object(text, wrong).items():
        if not isinstance(partitions, dict):
            raise wrong
        if topic == TOPIC_IDS:
            continue
        for partition, number in partitions.items():
            if not partition.isdigit() or not _is_number(number) or number < least:
                raise wrong
            found[TopicPartition(topic, int(partition))] = number
    if not found and not may_be_empty:
        raise wrong
    return dict(sorted(found.items()))


def _json_object(text: str, wrong: OptionRefused) -> dict[str, object]:
    try:
        found = json.loads(text)
    except ValueError:
        raise wrong from None
    if not isinstance(found, dict):
        raise wrong
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


# Columns


def _shape(options: Mapping[str, str]) -> RowShape:
    return RowShape(
        columns=_columns(options),
        value_schema=options.get("valueschema"),
        subject=_subject(options),
        reader_schema=options.get("readerschema"),
        value_column=options.get("valuecolumn"),
        key_schema=options.get("keyschema"),
        fails_on_corrupt=_word(options, "mode", ("permissive", "failfast")) == "failfast",
    )


def _subject(options: Mapping[str, str]) -> str | None:
    """Return whose schemas values have, if they have those of a registry."""
    if options.get("valueschema", "").strip().lower() != REGISTRY:
        for name in ("subject", "readerSchema"):
            if name.lower() in options:
                raise OptionRefused(f"{name} has no meaning without valueSchema=registry: say both, or leave it out")
        return None
    if "subject" in options:
        return options["subject"].strip()
    topics = _subscription(options).topics
    if len(topics) == 1:
        return f"{topics[0]}-value"
    raise OptionRefused("valueSchema=registry needs one subject: subscribe to one topic, or say the option subject")


def _columns(options: Mapping[str, str]) -> tuple[str, ...]:
    """The columns of a record that are built, in the order of Spark's own source, or as `columns` says."""
    optional = {
        "headers": _flag(options, "includeHeaders", default=False),
        "leaderEpoch": _flag(options, "includeLeaderEpoch", default=False),
    }
    has_schema = "valueschema" in options
    for name, is_meant in (("mode", has_schema or "keyschema" in options), ("valueColumn", has_schema)):
        if not is_meant and name.lower() in options:
            raise OptionRefused(f"{name} has no meaning without valueSchema: say both, or leave it out")
    if "columns" not in options:
        return tuple(name for name in COLUMNS if optional.get(name, True) and not (has_schema and name == "value"))
    known = {name.lower(): name for name in COLUMNS}
    names = [name.strip() for name in options["columns"].split(",") if name.strip()]
    unknown = [name for name in names if name.lower() not in known]
    if unknown or (not names and not has_schema):
        what = f"columns names {unknown[0]!r}" if unknown else "columns is empty"
        raise OptionRefused(f"{what}: a record has {', '.join(COLUMNS)}")
    return tuple(dict.fromkeys(known[name.lower()] for name in names))


# Limits of a trigger


def _per_trigger(options: Mapping[str, str]) -> TriggerLimits:
    most = _maybe_number(options, "maxOffsetsPerTrigger")
    least = _maybe_number(options, "minOffsetsPerTrigger")
    if most is not None and least is not None and least > most:
        raise OptionRefused(f"minOffsetsPerTrigger {least} is above maxOffsetsPerTrigger {most}: no batch can be both")
    return TriggerLimits(
        offsets_max=most,
        offsets_min=least,
        delay_ms_max=_duration_ms(options, "maxTriggerDelay", _STREAM_DELAY),
        bytes_max=_maybe_number(options, "maxBytesPerTrigger"),
    )


def _duration_ms(options: Mapping[str, str], name: str, default: str) -> int:
    text = options.get(name.lower(), default).strip().lower()
    match = re.fullmatch(r"(\d+)\s*(ms|s|m|min|h|d|)", text)
    if match is None:
        raise OptionRefused(f"{name} is {text!r}: say a time like 500ms, 30s, 15m or 2h")
    return int(match[1]) * _MS[match[2]]


# Words and numbers


def _isolation_level(word: str) -> int:
    levels = {"read_committed": READ_COMMITTED, "read_uncommitted": READ_UNCOMMITTED}
    if word.strip().lower() not in levels:
        raise OptionRefused(f"kafka.isolation.level is {word!r}: say read_committed or read_uncommitted")
    return levels[word.strip().lower()]


def _flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    word = options.get(name.lower(), str(default)).strip().lower()
    if word not in ("true", "false"):
        raise OptionRefused(f"{name} is {word!r}: say true or false")
    return word == "true"


def _word(options: Mapping[str, str], name: str, words: tuple[str, ...]) -> str:
    """One of the words; the first if nothing is said."""
    word = options.get(name.lower(), words[0]).strip().lower()
    if word not in words:
        raise OptionRefused(f"{name} is {word!r}: say {' or '.join(words)}")
    return word


def _maybe_number(options: Mapping[str, str], name: str) -> int | None:
    return _number(options, name, 1) if name.lower() in options else None


def _number(options: Mapping[str, str], name: str, default: int, *, least: int = 1) -> int:
    text = options.get(name.lower(), str(default)).strip()
    if not re.fullmatch(r"\d+", text) or int(text) < least:
        raise OptionRefused(f"{name} is {text!r}: say a whole number, {least} or above")
    return int(text)

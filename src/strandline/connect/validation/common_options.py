"""The settings that every connector of Kafka Connect 4.3 has, by their names, defaults, groups and orders there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from strandline.connect.config import Importance, Option, Width

NAME: Final = "name"
CONNECTOR_CLASS: Final = "connector.class"
CONNECTOR_VERSION: Final = "connector.plugin.version"
TASKS_MAX: Final = "tasks.max"
CONVERTERS: Final = ("key.converter", "value.converter", "header.converter")
VERSION_SUFFIX: Final = ".plugin.version"
TRANSFORMS: Final = "transforms"
PREDICATES: Final = "predicates"
TOPICS: Final = "topics"
TOPICS_REGEX: Final = "topics.regex"
DEAD_LETTER_TOPIC: Final = "errors.deadletterqueue.topic.name"
EXACTLY_ONCE: Final = "exactly.once.support"
BOUNDARY: Final = "transaction.boundary"
TOPIC_CREATION: Final = "topic.creation."
TOPIC_CREATION_GROUPS: Final = "topic.creation.groups"
CLIENT_PREFIXES: Final = ("producer.override.", "consumer.override.", "admin.override.")
SUPPORT_LEVELS: Final = ("REQUIRED", "REQUESTED")
BOUNDARIES: Final = ("INTERVAL", "POLL", "CONNECTOR")

_COMMON: Final = "Common"
_ERRORS: Final = "Error Handling"
_EXACTLY_ONCE: Final = "Exactly Once Support"


def name_error(name: Any) -> str | None:
    """Return what is wrong with the name of a connector."""
    if not name:
        return "String may not be empty"
    found = [str(ord(each)) for each in name if ord(each) < 0x20 or 0x7F <= ord(each) <= 0x9F]
    if found:
        return f"String may not contain control sequences but had the following ASCII chars: {', '.join(found)}"
    return None


def regex_error(pattern: str) -> str | None:
    """Return what is wrong with a regular expression."""
    from strandline.connect.transforms.patterns import wrong_pattern

    return wrong_pattern(pattern)


def matches(pattern: str, topic: str) -> bool:
    """Say whether a regular expression holds for the whole name of a topic; a malformed one holds for none."""
    from strandline.connect.transforms.patterns import compiled

    try:
        return compiled(pattern).fullmatch(topic) is not None
    except ValueError:
        return False


def _regexes_error(patterns: Sequence[str]) -> str | None:
    return next((error for each in patterns if (error := regex_error(each)) is not None), None)


def _aliases_error(aliases: Sequence[str]) -> str | None:
    return "Duplicate alias provided." if len(aliases) > len({*aliases}) else None


def _either_case(*choices: str) -> Any:
    def error(value: str | None) -> str | None:
        if value is not None and value.upper() in choices:
            return None
        return f"String must be one of (case insensitive): {', '.join(choices)}"

    return error


def _not_empty(value: str) -> str | None:
    return None if value else "String must be non-empty"


def _partitions_error(count: int) -> str | None:
    is_wrong = count != -1 and count < 1
    return "Number of partitions must be positive, or -1 to use the broker's default" if is_wrong else None


def _replication_error(factor: int) -> str | None:
    if factor == -1 or factor >= 1:
        return None
    return (
        "Replication factor must be positive and not larger than the number of brokers in the Kafka cluster, "
        "or -1 to use the broker's default"
    )


def _common(
    name: str, kind: str, order: int, width: Width, display: str, doc: str, importance: Importance = "LOW", **more: Any
) -> Option:
    return Option(
        name, kind, doc, group=_COMMON, order=order, width=width, display=display, importance=importance, **more
    )


def _error(name: str, kind: str, order: int, width: Width, display: str, doc: str, default: Any, **more: Any) -> Option:
    return Option(name, kind, doc, default, "MEDIUM", _ERRORS, order, width, display, **more)


def _converter(which: str, order: int) -> tuple[Option, Option]:
    title = which.capitalize()
    return (
        _common(
            f"{which}.converter",
            "CLASS",
            order,
            "SHORT",
            f"{title} converter class",
            f"Class that converts the {which} of a record to bytes and back; that of the worker if unset.",
            default=None,
        ),
        _common(
            f"{which}.converter.plugin.version",
            "STRING",
            order + 1,
            "SHORT",
            f"{title} converter version",
            f"Version of the {which} converter. A worker has one version of each, so it need not be set.",
            default=None,
        ),
    )


COMMON_OPTIONS: Final = (
    _common(
        NAME,
        "STRING",
        1,
        "MEDIUM",
        "Connector name",
        "Name of the connector; it is unique in the Connect cluster.",
        "HIGH",
        check=name_error,
    ),
    _common(
        CONNECTOR_CLASS,
        "STRING",
        2,
        "LONG",
        "Connector class",
        "Class of the connector, by its name, by an alias of Kafka Connect, or as module:Class.",
        "HIGH",
    ),
    _common(
        CONNECTOR_VERSION,
        "STRING",
        3,
        "MEDIUM",
        "Connector version",
        "Version of the connector. A worker has one version of each, so it need not be set.",
        "MEDIUM",
        default=None,
    ),
    _common(
        TASKS_MAX,
        "INT",
        4,
        "SHORT",
        "Tasks max",
        "Tasks that the connector is split into, at most.",
        "HIGH",
        default=1,
        low=1,
    ),
    _common(
        "tasks.max.enforce",
        "BOOLEAN",
        5,
        "SHORT",
        "Enforce tasks max",
        "Whether a connector that makes more tasks than tasks.max fails.",
        default=True,
    ),
    *_converter("key", 6),
    *_converter("value", 8),
    *_converter("header", 10),
    Option(
        TRANSFORMS,
        "LIST",
        "Names of the transforms that each record goes through, in this order; transforms.<name>.type has the class.",
        (),
        "LOW",
        "Transforms",
        12,
        "LONG",
        "Transforms",
        check=_aliases_error,
    ),
    Option(
        PREDICATES,
        "LIST",
        "Names of the predicates that transforms refer to; predicates.<name>.type has the class.",
        (),
        "LOW",
        "Predicates",
        13,
        "LONG",
        "Predicates",
        check=_aliases_error,
    ),
    _common(
        "config.action.reload",
        "STRING",
        14,
        "MEDIUM",
        "Reload Action",
        "What happens when a value that the config refers to has changed at its place: none, or restart.",
        default="restart",
        choices=("none", "restart"),
    ),
    _error(
        "errors.retry.timeout",
        "LONG",
        1,
        "MEDIUM",
        "Retry Timeout for Errors",
        "Milliseconds for which a failed operation is tried again; 0 for not at all, -1 for ever.",
        0,
    ),
    _error(
        "errors.retry.delay.max.ms",
        "LONG",
        2,
        "MEDIUM",
        "Maximum Delay Between Retries for Errors",
        "Milliseconds between two tries, at most.",
        60_000,
    ),
    _error(
        "errors.tolerance",
        "STRING",
        3,
        "SHORT",
        "Error Tolerance",
        "What a record that cannot be converted, transformed or written does: `none` fails the task, `all` skips it.",
        "none",
        choices=("none", "all"),
    ),
    _error(
        "errors.log.enable",
        "BOOLEAN",
        4,
        "SHORT",
        "Log Errors",
        "Whether tolerated errors are written to the worker's log, too.",
        False,
    ),
    _error(
        "errors.log.include.messages",
        "BOOLEAN",
        5,
        "SHORT",
        "Log Error Details",
        "Whether the log names the record that failed; for sources with its key and value.",
        False,
    ),
)
SINK_OPTIONS: Final = (
    _common(
        TOPICS,
        "LIST",
        4,
        "LONG",
        "Topics",
        "Topics that the sink reads, separated by commas. Set this or topics.regex.",
        "HIGH",
        default="",
    ),
    _common(
        TOPICS_REGEX,
        "STRING",
        4,
        "LONG",
        "Topics regex",
        "Regular expression of the topics that the sink reads. Set this or topics.",
        "HIGH",
        default="",
        check=regex_error,
    ),
    _error(
        DEAD_LETTER_TOPIC,
        "STRING",
        6,
        "MEDIUM",
        "Dead Letter Queue Topic Name",
        "Topic that records which failed are written to; empty for none.",
        "",
    ),
    _error(
        "errors.deadletterqueue.topic.replication.factor",
        "SHORT",
        7,
        "MEDIUM",
        "Dead Letter Queue Topic Replication Factor",
        "Replicas of the topic of dead letters, if it has to be created.",
        3,
    ),
    _error(
        "errors.deadletterqueue.context.headers.enable",
        "BOOLEAN",
        8,
        "MEDIUM",
        "Enable Error Context Headers",
        "Whether a dead letter has headers `__connect.errors.*` that say where and why the record failed.",
        False,
    ),
)
LIMIT_OPTIONS: Final = (
    Option(
        "rate.limit.records",
        "DOUBLE",
        "Records that each task moves in a second, at most; 0 for no limit. Kafka Connect has no such setting.",
        0,
        "LOW",
        "Limits",
        1,
        "SHORT",
        "Records per second",
        low=0,
    ),
    Option(
        "rate.limit.bytes",
        "DOUBLE",
        "Bytes that each task moves in a second, at most; 0 for no limit. Kafka Connect has no such setting.",
        0,
        "LOW",
        "Limits",
        2,
        "SHORT",
        "Bytes per second",
        low=0,
    ),
)
SOURCE_OPTIONS: Final = (
    Option(
        TOPIC_CREATION_GROUPS,
        "LIST",
        "Names of groups of topics that are created with settings of their own, topic.creation.<name>.*.",
        (),
        "LOW",
        "Topic Creation",
        1,
        "LONG",
        "Topic Creation Groups",
        check=_aliases_error,
    ),
    Option(
        EXACTLY_ONCE,
        "STRING",
        "Whether the connector must write each record once: `required` refuses one that cannot, `requested` does not.",
        "requested",
        "MEDIUM",
        _EXACTLY_ONCE,
        2,
        "SHORT",
        "Exactly once support",
        check=_either_case(*SUPPORT_LEVELS),
    ),
    Option(
        BOUNDARY,
        "STRING",
        "Where transactions end: after each batch of the source (`poll`), after a time (`interval`), or where the "
        "connector says (`connector`).",
        "poll",
        "MEDIUM",
        _EXACTLY_ONCE,
        3,
        "SHORT",
        "Transaction Boundary",
        check=_either_case(*BOUNDARIES),
    ),
    Option(
        "transaction.boundary.interval.ms",
        "LONG",
        "Milliseconds of a transaction if transaction.boundary is `interval`; that of the worker if unset.",
        None,
        "LOW",
        _EXACTLY_ONCE,
        4,
        "SHORT",
        "Transaction boundary interval",
        low=0,
    ),
    Option(
        "offsets.storage.topic",
        "STRING",
        "Topic for the offsets of this connector; that of the worker if unset.",
        None,
        "LOW",
        "offsets.topic",
        1,
        "LONG",
        "Offsets topic",
        check=_not_empty,
    ),
)


def topic_creation_options(group: str, *, is_default: bool) -> tuple[Option, ...]:
    """Return the settings of new topics of a group. Kafka does not list them; a worker checks them before it starts."""
    prefix = f"{TOPIC_CREATION}{group}."
    shown = "default" if is_default else f"Topic Creation: {group}"

    def one(name: str, kind: str, order: int, display: str, doc: str, check: Any, **more: Any) -> Option:
        return Option(
            prefix + name,
            kind,
            doc,
            importance="LOW",
            group=shown,
            order=order,
            width="LONG",
            display=display,
            check=check,
            **more,
        )

    return (
        one(
            "include",
            "LIST",
            1,
            f"Inclusion Topic Pattern for {shown}",
            "Regular expressions of the topics that belong to the group.",
            _regexes_error,
            default=(".*",) if is_default else (),
        ),
        one(
            "exclude",
            "LIST",
            2,
            f"Exclusion Topic Pattern for {shown}",
            "Regular expressions of topics that do not belong to it, whatever `include` says.",
            _regexes_error,
            default=(),
        ),
        one(
            "replication.factor",
            "SHORT",
            3,
            f"Replication Factor for Topics in {shown}",
            "Replicas of a new topic; -1 for the broker's default.",
            _replication_error,
            **({} if is_default else {"default": None}),
        ),
        one(
            "partitions",
            "INT",
            4,
            f"Partition Count for Topics in {shown}",
            "Partitions of a new topic; -1 for the broker's default.",
            _partitions_error,
            **({} if is_default else {"default": None}),
        ),
    )

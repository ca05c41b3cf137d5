"""Settings of groups and of client metrics subscriptions, which are config resources of the cluster.

A group's setting gets its default from the node's (`group.consumer.session.timeout.ms`), and must be within the node's
limits (`group.consumer.min.session.timeout.ms`). Only values that were set are stored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from strandline.config.group_settings import GroupSettings
from strandline.config.settings import (
    READ_ONLY,
    Allowed,
    Setting,
    Synonym,
    Value,
    at_least,
    between,
    one_of,
    settings_of,
)
from strandline.config.share_group_settings import ShareGroupSettings
from strandline.errors import ErrorCode, InvalidConfig, RequestError
from strandline.runtime.bounded_patterns import bounded_pattern

INTERVAL_MS_MIN: Final = 100
INTERVAL_MS_MAX: Final = 3_600_000
DEAD_LETTER_TOPIC: Final = "errors.deadletterqueue.topic.name"
BACKOFF_MS_MAX: Final = 86_400_000
MATCH_PATTERN_LENGTH_MAX: Final = 256
MATCH_SELECTORS: Final = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)

_NODE_SETTINGS: Final = {
    setting.name: setting for table in (GroupSettings, ShareGroupSettings) for _, setting in settings_of(table)
}
_DURATION = re.compile(r"by_duration:P(?!$)(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?", re.IGNORECASE)
_TOPIC_NAME = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")


def _streams(name: str, default: int, allowed: Allowed, doc: str) -> Setting:
    # Streams groups are not served yet.
    return Setting(name, "int", default, allowed, doc, synonyms=(Synonym(f"group.{name}"),), effect=False)


def _of_node(name: str, allowed: Allowed | None = None) -> Setting:
    """Return a group's setting with the default of the node's, and its limits unless others are given."""
    of_node = _NODE_SETTINGS[f"group.{name}"]
    synonyms = (Synonym(of_node.name),)
    return replace(of_node, name=name, synonyms=synonyms, update=READ_ONLY, allowed=allowed or of_node.allowed)


GROUP_SETTINGS: Final[dict[str, Setting]] = {
    setting.name: setting
    for setting in (
        _of_node("consumer.session.timeout.ms"),
        _of_node("consumer.heartbeat.interval.ms"),
        replace(_of_node("consumer.assignment.interval.ms"), doc="The shortest time between assignments."),
        _of_node("share.session.timeout.ms"),
        _of_node("share.heartbeat.interval.ms"),
        replace(_of_node("share.assignment.interval.ms"), doc="The shortest time between assignments."),
        _of_node("share.record.lock.duration.ms", at_least(1_000)),
        _of_node("share.delivery.count.limit", at_least(2)),
        _of_node("share.partition.max.record.locks", at_least(100)),
        Setting(
            "share.auto.offset.reset",
            "string",
            "latest",
            None,
            "Where a share group begins: `earliest`, `latest` or `by_duration:PnDTnHnMn.nS`.",
        ),
        Setting(
            "share.isolation.level",
            "string",
            "read_uncommitted",
            one_of("read_committed", "read_uncommitted"),
            "Whether records of open transactions are delivered.",
        ),
        Setting(
            "share.renew.acknowledge.enable",
            "boolean",
            True,
            None,
            "Whether a consumer may keep a record for longer.",
        ),
        Setting(
            DEAD_LETTER_TOPIC,
            "string",
            "",
            None,
            "The topic that gets a copy of each record of a share group that was rejected, or given out too often; "
            "empty for none. It needs `share.version` 2, and `errors.deadletterqueue.group.enable=true` on the topic.",
        ),
        Setting(
            "errors.deadletterqueue.copy.record.enable",
            "boolean",
            False,
            None,
            "Whether dead letters have the key, the value and the headers of the record, not only where it is.",
        ),
        Setting(
            "share.order",
            "string",
            "none",
            one_of("none", "key"),
            "Strandline's own. `key`: records of one key are delivered one at a time and in the order of the log, also "
            "after a release or a time-out; records of other keys go on. Records without a key have no order.",
        ),
        Setting(
            "strandline.share.backoff.ms",
            "int",
            0,
            between(0, BACKOFF_MS_MAX),
            "Strandline's own. How long a record waits after a consumer released it or its lock timed out, until it is "
            "delivered again; after each further delivery twice as long. 0 for no wait. After a change of leaders a "
            "record may come early.",
        ),
        Setting(
            "strandline.share.backoff.max.ms",
            "int",
            60_000,
            between(0, BACKOFF_MS_MAX),
            "Strandline's own. The longest wait after a release or a time-out.",
        ),
        _streams("streams.session.timeout.ms", 45_000, at_least(1), "How long a silent streams member stays."),
        _streams("streams.heartbeat.interval.ms", 5_000, at_least(1), "How often a streams member sends a heartbeat."),
        _streams("streams.assignment.interval.ms", 1_000, at_least(0), "The shortest time between assignments."),
        _streams("streams.num.standby.replicas", 0, at_least(0), "Standby copies of each task."),
        _streams("streams.initial.rebalance.delay.ms", 3_000, at_least(0), "How long a new group waits."),
    )
}


class _Bound(NamedTuple):
    """A node's setting that is the minimum or maximum of a group's."""

    name: str
    node_name: str
    is_minimum: bool


def _bounds() -> list[_Bound]:
    bounds = []
    for kind in ("consumer", "share", "streams"):
        for what in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms"):
            bounds.append(_Bound(f"{kind}.{what}", f"group.{kind}.min.{what}", True))
            bounds.append(_Bound(f"{kind}.{what}", f"group.{kind}.max.{what}", False))
    for what in ("record.lock.duration.ms", "delivery.count.limit", "partition.max.record.locks"):
        bounds.append(_Bound(f"share.{what}", f"group.share.min.{what}", True))
        bounds.append(_Bound(f"share.{what}", f"group.share.max.{what}", False))
    bounds.append(_Bound("streams.num.standby.replicas", "group.streams.max.standby.replicas", False))
    return bounds


_BOUNDS: Final = _bounds()


def check_group(overrides: Mapping[str, str], text_of_node: Callable[[str], str | None]) -> None:
    """Raise InvalidConfig unless a group may have these settings on a node with the values of `text_of_node`."""
    values: dict[str, Value] = {}
    for name, raw in overrides.items():
        if name not in GROUP_SETTINGS:
            raise InvalidConfig(f"Unknown group config name: {name}")
        values[name] = GROUP_SETTINGS[name].parse(raw)
    reset = values.get("share.auto.offset.reset", "latest")
    if reset not in ("earliest", "latest") and not _DURATION.fullmatch(str(reset)):
        raise InvalidConfig(
            f"share.auto.offset.reset={reset!r} is not allowed; expected earliest, latest or by_duration:PnDTnHnMn.nS"
        )
    _check_dead_letter_topic(str(values.get(DEAD_LETTER_TOPIC, "")).strip())
    backoff, backoff_max = (
        values.get(name, GROUP_SETTINGS[name].default)
        for name in ("strandline.share.backoff.ms", "strandline.share.backoff.max.ms")
    )
    if isinstance(backoff, int) and isinstance(backoff_max, int) and backoff > backoff_max:
        raise InvalidConfig(
            f"strandline.share.backoff.ms={backoff} is above strandline.share.backoff.max.ms={backoff_max}"
        )
    for bound in _BOUNDS:
        value, limit = values.get(bound.name), text_of_node(bound.node_name)
        if not isinstance(value, int) or limit is None:
            continue
        if value < int(limit) if bound.is_minimum else value > int(limit):
            relation = "greater than or equal to" if bound.is_minimum else "less than or equal to"
            raise InvalidConfig(f"{bound.name} must be {relation} {bound.node_name}, which is {limit}")
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = (
            values.get(f"{kind}.{what}", int(text_of_node(f"group.{kind}.{what}") or 0))
            for what in ("session.timeout.ms", "heartbeat.interval.ms")
        )
        if isinstance(session, int) and isinstance(heartbeat, int) and session <= heartbeat:
            raise InvalidConfig(f"{kind}.session.timeout.ms must be greater than {kind}.heartbeat.interval.ms")


def _check_dead_letter_topic(name: str) -> None:
    if name.startswith("__"):
        raise InvalidConfig(f"{DEAD_LETTER_TOPIC}={name!r} is not allowed: names that begin with __ are internal")
    if name and not _TOPIC_NAME.fullmatch(name):
        raise InvalidConfig(f"{DEAD_LETTER_TOPIC}={name!r} is no name of a topic")


CLIENT_METRICS_SETTINGS: Final[dict[str, Setting]] = {
    setting.name: setting
    for setting in (
        Setting("interval.ms", "int", 300_000, None, "How often a client sends its metrics, 100 to 3600000."),
        Setting("match", "list", (), None, "Which clients: `selector=regular expression`, all of which must fit."),
        Setting("metrics", "list", (), None, "Prefixes of the metrics to send; `*` is all, none is none."),
    )
}


def check_client_metrics(name: str, overrides: Mapping[str, str]) -> None:
    """Raise RequestError or InvalidConfig unless a subscription may have this name and these settings."""
    if not name:
        raise RequestError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    for key, raw in overrides.items():
        if key not in CLIENT_METRICS_SETTINGS:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {key}")
        value = CLIENT_METRICS_SETTINGS[key].parse(raw)
        if isinstance(value, int) and not INTERVAL_MS_MIN <= value <= INTERVAL_MS_MAX:
            raise RequestError(
                ErrorCode.INVALID_REQUEST,
                f"interval.ms={value} is not allowed; expected {INTERVAL_MS_MIN} to {INTERVAL_MS_MAX}",
            )
        if key == "match" and isinstance(value, tuple):
            parse_match(value)


def parse_match(patterns: Iterable[str]) -> dict[str, re.Pattern[str]]:
    """Return the patterns of a subscription by selector. Raise InvalidConfig for anything but `selector=expression`."""
    parsed: dict[str, re.Pattern[str]] = {}
    for pattern in patterns:
        parts = pattern.split("=")
        selector = parts[0].strip()
        if len(parts) != 2 or selector not in MATCH_SELECTORS or len(pattern) > MATCH_PATTERN_LENGTH_MAX:
            raise InvalidConfig(f"Illegal client matching pattern: {pattern}")
        try:
            parsed[selector] = bounded_pattern(parts[1].strip())
        except InvalidConfig as error:
            raise InvalidConfig(f"Illegal client matching pattern: {pattern}: {error}") from error
    return parsed

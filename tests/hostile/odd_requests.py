"""Requests of every API and version: sound ones with odd values, and ways to damage them.

Values that mean something here (a topic that exists, a setting, a timestamp of a special kind) come often, so that
handlers are reached in their depths; a field is recognised by its name, so a new API is covered without a new line.
What a test cannot wait for (a long poll, a thousand new partitions) is taken out; everything else stays random.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

from tests.hostile.peer import ROUTES, request_class
from tests.unit.codec.message_values import random_message

from strandline.broker.network.routes import Route
from strandline.codec.message import Message
from strandline.codec.message_codec import decode, encode
from strandline.errors import MalformedMessage

TARGET = "target"
WAITS_MS = (-1, 0, 5, -(2**31))
HUGE_COUNT, NULL_COUNT, HUGE_VARINT = b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\xff\xff\xff\xff\x0f"
UNKNOWN_TAGS = b"\x02" + b"\x8f\x4e\x03abc" + b"\x90\x4e\x00"
"""Two tagged fields, 9999 of three bytes and 10000 of none."""

_TOPICS = (TARGET, TARGET, "nowhere", "__consumer_offsets", "a/b", "")
_PARTITIONS = (0, 0, 1, 2, -1, 2**31 - 1)
_SETTINGS = (
    "retention.ms", "cleanup.policy", "max.message.bytes", "segment.bytes", "compression.type", "flush.messages",
    "message.timestamp.type", "min.insync.replicas", "interval.ms", "match", "metrics", "no.such.setting", "",
    "log.cleaner.threads", "message.max.bytes", "consumer.session.timeout.ms", "strandline.broker",
)  # fmt: skip
_VALUES = (
    "1000", "-1", "0", "1048588", "compact", "delete", "compact,delete", "zstd", "LogAppendTime", "true", "INFO", "",
    "client_id=.*", "*", "9223372036854775808", "1e3", " 5 ",
)  # fmt: skip
PLAUSIBLE: dict[str, tuple[Any, ...]] = {
    "name": _TOPICS,
    "topic": _TOPICS,
    "topic_name": _TOPICS,
    "resource_name": (TARGET, TARGET, "4711", "", "g", "nowhere"),
    "resource_type": (2, 2, 2, 4, 8, 16, 32, 0, 1, 127),
    "config_operation": (0, 0, 1, 2, 3, 4, -1),
    "partition": _PARTITIONS,
    "partition_index": _PARTITIONS,
    "index": _PARTITIONS,
    "offset": (0, 1, -1, -2, 2**63 - 1),
    "fetch_offset": (0, 1, -1, 2**63 - 1),
    "timestamp": (-1, -2, -3, -4, -5, -6, -7, 0, 1, 2**62),
    "leader_epoch": (-1, 0, 1, 99),
    "current_leader_epoch": (-1, -1, 0, 1, 99),
    "count": (-1, 0, 1, 2, 3, 2**31 - 1),
    "feature": ("metadata.version", "group.version", "no.such.feature", ""),
    "max_version_level": (-1, 0, 1, 25, 32_767),
    "upgrade_type": (0, 1, 2, 3, -1),
    "endpoint_type": (1, 1, 2, 0),
    "key_type": (0, 0, 1, 2, 3),
    "group_id": ("g", "g", "h", ""),
    "response_partition_limit": (0, 1, 2, -1, 2**31 - 1),
    "value": _VALUES,
}
"""By the name of a field. Settings are named in structs that are called a config."""
PLAUSIBLE_LISTS: dict[str, tuple[Any, ...]] = {
    "partitions": (0, 1, 2, -1),
    "partition_indexes": (0, 1, 2, -1),
    "resource_types": (2, 4, 8, 16, 32, 0, 127),
    "configuration_keys": _SETTINGS,
    "topic_names": ("nowhere", "a/b", ""),
    "coordinator_keys": ("g", "h", ""),
    "groups": ("g", "g", "h", ""),
    "groups_names": ("g", "h", ""),
    "states_filter": ("Stable", "EMPTY", "Dead", "", "x"),
    "types_filter": ("classic", "Consumer", "share", ""),
}


def every_route_and_version() -> Iterator[tuple[Route, int]]:
    for route in ROUTES.values():
        for version in range(route.version_min, route.version_max + 1):
            yield route, version


def odd_message(route: Route, version: int, rng: random.Random) -> Message:
    message: Any = random_message(request_class(route), version, rng)
    # A topic that everybody uses must not be deleted.
    make_plausible(message, version, rng, 0.0 if route.name == "DeleteTopics" else rng.choice((0.3, 0.9)))
    match route.name:
        case "Produce":
            message.acks = rng.choice((-1, 1, 7, -2))
            if rng.random() < 0.8:
                message.transactional_id = None
        case "Fetch" | "ShareFetch":
            message.max_wait_ms = rng.choice(WAITS_MS)
        case "CreateTopics":
            for topic in message.topics:
                topic.num_partitions = rng.choice((-1, 0, 1, 2, -5, 2**31 - 1))
                topic.replication_factor = rng.choice((-1, 0, 1, 1, 2, -5, 2**15 - 1))
        case "JoinGroup":
            message.session_timeout_ms = rng.choice((-1, 0, 6000, 2**31 - 1))
            message.rebalance_timeout_ms = rng.choice((-1, 0, 10, 6000))
    return message


def make_plausible(message: Any, version: int, rng: random.Random, share: float) -> None:
    """Give about `share` of the fields a value that means something here."""
    for field in message.FIELDS:
        value = getattr(message, field.name)
        if not field.present(version):
            continue
        if field.kafka_type == "[]struct":
            for each in value or ():
                make_plausible(each, version, rng, share)
        elif field.kafka_type == "struct":
            if value is not None:
                make_plausible(value, version, rng, share)
        elif rng.random() < share:
            chosen = _SETTINGS if field.name == "name" and _is_config(message) else PLAUSIBLE.get(field.name)
            if field.kafka_type.startswith("[]"):
                if (several := PLAUSIBLE_LISTS.get(field.name)) is not None and value is not None:
                    setattr(message, field.name, rng.choices(several, k=rng.randrange(4)))
            elif field.kafka_type == "float64":
                setattr(message, field.name, rng.choice((0.0, 0.5, 1e6, -1.0, math.inf, math.nan)))
            elif chosen:
                setattr(message, field.name, rng.choice(chosen))


def _is_config(message: Message) -> bool:
    return "Config" in type(message).__name__


def body_of(message: Message, version: int, *, size_bytes_max: int = 100_000) -> bytes | None:
    encoded = encode(message, version)
    return encoded if len(encoded) <= size_bytes_max else None


def cuts(body: bytes, rng: random.Random, *, samples: int) -> Iterator[bytes]:
    """The body cut short: at every byte where that is less than `samples`, else just before its end and at places."""
    sizes = set(range(len(body))) if len(body) <= samples else set(range(len(body) - 3, len(body))) | {0}
    if len(body) > samples:
        sizes |= {rng.randrange(len(body)) for _ in range(samples)}
    for size in sorted(sizes):
        yield body[:size]


def damages(body: bytes, rng: random.Random, *, samples: int) -> Iterator[bytes]:
    """Counts and lengths turned huge or null wherever one may stand, and single bytes changed."""
    places = range(len(body)) if len(body) <= samples else sorted(rng.sample(range(len(body)), samples))
    for at in places:
        yield body[:at] + HUGE_COUNT + body[at + 4 :]
        yield body[:at] + NULL_COUNT + body[at + 4 :]
        yield body[:at] + HUGE_VARINT + body[at + 1 :]
        yield body[:at] + b"\x00" + body[at + 1 :]
        yield body[:at] + bytes((rng.randrange(256),)) + body[at + 1 :]


def may_wait(route: Route, version: int, body: bytes) -> bool:
    """Whether damage made of a request a sound one that is answered late, at great length, or not at all."""
    if route.name not in ("Produce", "Fetch", "ShareFetch", "CreateTopics", "CreatePartitions", "JoinGroup"):
        return False
    message: Any
    try:
        message, _ = decode(request_class(route), version, body)
    except MalformedMessage:
        return False
    match route.name:
        case "Produce":
            return bool(message.acks == 0)
        case "Fetch" | "ShareFetch":
            return bool(message.max_wait_ms > 100)
        case "CreateTopics":
            return any(topic.num_partitions > 10 for topic in message.topics)
        case "CreatePartitions":
            return any(10 < topic.count < 2**31 - 1 for topic in message.topics)
    return True

"""Requests of every API and version: sound ones with odd values, and ways to damage them.

What a test cannot wait for (a long poll, a thousand new partitions) is taken out; everything else stays random.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from tests.hostile.peer import ROUTES, request_class
from tests.unit.codec.message_values import random_message

from strandline.broker.routes import Route
from strandline.codec.message import Message, decode, encode
from strandline.errors import MalformedMessage

WAITS_MS = (-1, 0, 5, -(2**31))
HUGE_COUNT, NULL_COUNT, HUGE_VARINT = b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\xff\xff\xff\xff\x0f"
UNKNOWN_TAGS = b"\x02" + b"\x8f\x4e\x03abc" + b"\x90\x4e\x00"
"""Two tagged fields, 9999 of three bytes and 10000 of none."""


def every_route_and_version() -> Iterator[tuple[Route, int]]:
    for route in ROUTES.values():
        for version in range(route.version_min, route.version_max + 1):
            yield route, version


def odd_message(route: Route, version: int, rng: random.Random) -> Message:
    message: Any = random_message(request_class(route), version, rng)
    match route.name:
        case "Produce":
            message.acks = rng.choice((-1, 1, 7, -2))
            if rng.random() < 0.8:
                message.transactional_id = None
        case "Fetch":
            message.max_wait_ms = rng.choice(WAITS_MS)
        case "CreateTopics":
            for topic in message.topics:
                topic.num_partitions = rng.choice((-1, 0, 1, 2, -5, 2**31 - 1))
                topic.replication_factor = rng.choice((-1, 0, 1, 1, 2, -5, 2**15 - 1))
        case "JoinGroup":
            message.session_timeout_ms = rng.choice((-1, 0, 6000, 2**31 - 1))
            message.rebalance_timeout_ms = rng.choice((-1, 0, 10, 6000))
    if route.name != "DeleteTopics":
        _name_real_topics(message, rng)
    return message


def _name_real_topics(message: Any, rng: random.Random) -> None:
    """Some of the topics exist, so that handlers go on where unknown names would stop them."""
    for field in message.FIELDS:
        value = getattr(message, field.name)
        if field.name in ("name", "topic") and rng.random() < 0.5:
            setattr(message, field.name, "target")
        elif field.kafka_type == "[]struct" and value:
            for each in value:
                _name_real_topics(each, rng)


def body_of(message: Message, version: int, *, size_bytes_max: int = 100_000) -> bytes | None:
    encoded = encode(message, version)
    return encoded if len(encoded) <= size_bytes_max else None


def cuts(body: bytes, rng: random.Random, *, samples: int) -> Iterator[bytes]:
    """The body cut short: just before its end, and at places in between."""
    sizes = set(range(max(0, len(body) - 3), len(body))) | {0}
    sizes |= {rng.randrange(len(body)) for _ in range(samples)} if body else set()
    for size in sorted(sizes - {len(body)}):
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
    if route.name not in ("Produce", "Fetch", "CreateTopics", "JoinGroup"):
        return False
    message: Any
    try:
        message, _ = decode(request_class(route), version, body)
    except MalformedMessage:
        return False
    match route.name:
        case "Produce":
            return bool(message.acks == 0)
        case "Fetch":
            return bool(message.max_wait_ms > 100)
        case "CreateTopics":
            return any(topic.num_partitions > 10 for topic in message.topics)
    return True

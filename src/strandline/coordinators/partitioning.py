"""Which partition of `__consumer_offsets` owns a group, and which of `__transaction_state` a transactional id.

Kafka's tools compute the same numbers; but for the transactional ids of sinks, which live together with their sink.
They have the name `__strandline.sink.<sink>#<name>`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

CONSUMER_OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"

SINK_PREFIX: Final = "__strandline.sink."
SINK_END: Final = "#"

HASHES_CACHED_MAX = 8_192
"""Ids whose number is remembered. Every request asks for it, and each character costs."""


@lru_cache(HASHES_CACHED_MAX)
def java_string_hash(text: str) -> int:
    """Java's String.hashCode: over UTF-16 units, wrapped to a signed 32-bit number."""
    units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    value = 0
    for unit in units:
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def partition_of_group(group_id: str, *, partition_count: int) -> int:
    return partition_of_key(group_id, partition_count=partition_count)


def partition_of_transactional_id(transactional_id: str, *, partition_count: int) -> int:
    """That of the sink, if it is one of a sink: one append decides all of a sink's transactions."""
    if transactional_id.startswith(SINK_PREFIX):
        transactional_id = transactional_id.partition(SINK_END)[0]
    return partition_of_key(transactional_id, partition_count=partition_count)


def sink_of(transactional_id: str) -> str | None:
    """The sink that a transactional id is of, None if of none."""
    if not transactional_id.startswith(SINK_PREFIX):
        return None
    sink_id, end, _ = transactional_id[len(SINK_PREFIX) :].partition(SINK_END)
    return sink_id if end and sink_id else None


def sink_key(sink_id: str) -> str:
    """What all transactional ids of the sink begin with; FindCoordinator finds the sink's coordinator by it."""
    return f"{SINK_PREFIX}{sink_id}{SINK_END}"


def partition_of_key(key: str, *, partition_count: int) -> int:
    """The partition that owns a group id, or a transactional id of no sink."""
    # Kafka clears the sign bit instead of taking the absolute value, since abs(-2**31) is still negative in Java.
    return (java_string_hash(key) & 0x7FFFFFFF) % partition_count

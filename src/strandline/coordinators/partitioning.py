"""Which partition of `__consumer_offsets` owns a group, and which of `__transaction_state` a transactional id.

Kafka's tools compute the same numbers; but for the transactional ids of sinks, which live together with their sink, and
in clusters that an older Strandline made (decision 0055).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from strandline.ids import SINK_END, SINK_PREFIX

CONSUMER_OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"

HASHES_CACHED_MAX = 8_192
"""Ids whose hash is cached, because every request needs it and each character costs."""

SIGN_CLEARED: Final = 0
"""Level of the hash in clusters that Strandline made before decision 0055."""
KAFKAS_HASH: Final = 1

_INT32_MIN: Final = -(1 << 31)


@lru_cache(HASHES_CACHED_MAX)
def java_string_hash(text: str) -> int:
    """Java's String.hashCode: over UTF-16 units, wrapped to a signed 32-bit number."""
    units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    value = 0
    for unit in units:
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def partition_of_transactional_id(transactional_id: str, *, partition_count: int, hash_level: int) -> int:
    """Return the partition of the id; ids of a sink share one, so that one append decides all of its transactions."""
    if transactional_id.startswith(SINK_PREFIX):
        transactional_id = transactional_id.partition(SINK_END)[0]
    return partition_of_key(transactional_id, partition_count=partition_count, hash_level=hash_level)


def partition_of_key(key: str, *, partition_count: int, hash_level: int) -> int:
    """Return the partition that owns a group id, or a transactional id of no sink."""
    return positive_hash(key, hash_level) % partition_count


def positive_hash(key: str, hash_level: int) -> int:
    """Return the hash that is taken modulo the number of partitions; the level is the cluster's, and never changes."""
    value = java_string_hash(key)
    if hash_level == SIGN_CLEARED:
        return value & 0x7FFFFFFF
    # Java has no positive number for the lowest one; Kafka takes 0 for it.
    return 0 if value == _INT32_MIN else abs(value)


partition_of_group = partition_of_key

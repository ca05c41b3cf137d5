"""Configs that an administrator of the simulation changes, for topics, brokers and groups.

Every kind is here but for those that change what the run's other clients are promised, or what the truth expects:
cleanup policies, retention of topics that keep their records, and `delete.retention.ms`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from tests.simulator.options import SimOptions

TOPIC: Final = 2
BROKER: Final = 4
GROUP: Final = 32
INTERNAL: Final = ("__consumer_offsets", "__transaction_state")


class Change(NamedTuple):
    """A config, and the values that it may get."""

    resource_type: int
    resource: str
    """Empty for all brokers."""
    name: str
    values: Sequence[str]


ANY_TOPIC: Final = {
    "compression.type": ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
    "compression.gzip.level": ("1", "9"),
    "compression.lz4.level": ("1", "12"),
    "compression.zstd.level": ("1", "9"),
    "file.delete.delay.ms": ("0", "1000", "60000"),
    "flush.messages": ("1", "10", "9223372036854775807"),
    "flush.ms": ("0", "500", "9223372036854775807"),
    "index.interval.bytes": ("0", "200", "4096"),
    "internal.segment.bytes": ("1500", "10000", "100000"),
    "max.message.bytes": ("200000", "1048588"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
    "segment.index.bytes": ("4096", "10485760"),
    "segment.jitter.ms": ("0", "1000"),
    "segment.ms": ("1000", "4000", "604800000"),
}
COMPACTED: Final = {
    "min.cleanable.dirty.ratio": ("0.0", "0.3", "0.9"),
    "min.compaction.lag.ms": ("0", "2000"),
    "max.compaction.lag.ms": ("3000", "9223372036854775807"),
}
FORGETFUL: Final = {
    "retention.ms": ("3000", "15000", "-1"),
    "retention.bytes": ("3000", "10000", "-1"),
}
BROKERS: Final = {
    "compression.type": ("producer", "lz4"),
    "log.cleaner.backoff.ms": ("300", "3000"),
    "log.cleaner.threads": ("1", "2"),
    "log.retention.check.interval.ms": ("500", "5000"),
    "log.roll.ms": ("2000", "20000"),
    "min.insync.replicas": ("1", "2"),
    "num.replica.fetchers": ("1", "2", "3"),
    "message.max.bytes": ("200000", "1048588"),
}
GROUPS: Final = {
    "consumer.session.timeout.ms": ("4000", "6000"),
    "consumer.heartbeat.interval.ms": ("500", "1500"),
}


def changes_of(options: SimOptions) -> list[Change]:
    """Every change that leaves the promises of a run as they are."""
    names = [topic.name for topic in (*options.topics, *options.outputs)]
    tables = [] if options.table is None else [options.table.topic.name]
    topics: list[tuple[str, Mapping[str, Sequence[str]]]] = [(name, ANY_TOPIC) for name in (*names, *tables, *INTERNAL)]
    topics += [(name, COMPACTED) for name in tables]
    topics += [(topic.name, FORGETFUL) for topic in options.topics if topic.forgets]
    # Where all machines may lose power at once, only what is flushed before it is acknowledged is safe.
    if not options.nemesis.power_cuts_all:
        several = [topic.name for topic in (*options.topics, *options.outputs) if topic.replicas > 1]
        topics += [(name, {"flush.mode": ("auto", "ack", "async")}) for name in several]
    topics += [
        (topic.name, {"unclean.leader.election.enable": ("true", "false")})
        for topic in options.topics
        if topic.may_lose
    ]
    found = [Change(TOPIC, topic, name, values) for topic, table in topics for name, values in table.items()]
    found += [Change(BROKER, "", name, values) for name, values in BROKERS.items()]
    groups = [*(group.name for group in options.groups), *(each.group.name for each in options.processors)]
    found += [Change(GROUP, group, name, values) for group in groups for name, values in GROUPS.items()]
    return found


def minima_of(options: SimOptions) -> dict[str, Sequence[str]]:
    """By topic, the values that its min.insync.replicas may get."""
    tables = () if options.table is None else (options.table.topic,)
    several = [topic for topic in (*options.topics, *options.outputs, *tables) if topic.replicas > 1]
    values = ("1", "1", "2", "2", "3")
    return {**{topic.name: values for topic in several}, **dict.fromkeys(INTERNAL, ("1", "2"))}

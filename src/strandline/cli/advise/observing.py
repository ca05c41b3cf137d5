"""Looks at running topics: what an adviser can measure from a client, and nothing that it would have to guess."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from strandline.advice.anti_patterns import (
    CORRELATION_HEADERS,
    REPLY_HEADERS,
    ObservedCommits,
    ObservedGroup,
    ObservedTopic,
    SampledRecord,
)
from strandline.advice.description import Safety, WorkloadProfile, WorkloadReader
from strandline.cli.advise.commit_log import TOPIC as OFFSETS_TOPIC
from strandline.cli.advise.commit_log import read_commits
from strandline.cli.advise.node_metrics import TopicTraffic
from strandline.cli.advise.tails import read_tails, tail_ranges
from strandline.cli.common.client import Cluster
from strandline.cli.common.failures import CommandFailed, topic_not_found
from strandline.cli.config.access import ConfigValue, Target, read_entries, value_of
from strandline.cli.group.lag_reading import GroupLag, LagReading
from strandline.cli.group.offsets import offsets_at, ranges_of
from strandline.cli.group.state import Place
from strandline.cli.topic.topics import described, log_sizes
from strandline.documents.units import Rate
from strandline.lag.objectives import objectives_of
from strandline.lag.verdict import LagVerdict

RATE_OVER_MS: Final = 3_600_000
"""The write rate is measured over the last hour."""
RECORDS_PER_PARTITION: Final = 50
TOPICS_SAMPLED_MAX: Final = 200
"""Topics of which records are read when all are looked at; of others, headers stay unknown."""
HEADER_BYTES_MAX: Final = 256


@dataclass
class Look:
    """What was seen of the cluster."""

    topics: list[ObservedTopic] = field(default_factory=list)
    workloads: dict[str, WorkloadProfile] = field(default_factory=dict)
    names: frozenset[str] = frozenset()


class Observer:
    """Reads what is needed about chosen topics, each thing once."""

    def __init__(self, cluster: Cluster, traffic: TopicTraffic | None) -> None:
        self._cluster = cluster
        self._admin = cluster.admin()
        self._traffic = traffic
        with cluster.errors("cannot read the metadata of the cluster"):
            self._metadata = self._admin.list_topics(timeout=cluster.timeout_s)

    def look(self, wanted: Iterable[str] | None) -> Look:
        """Look at topics by name; None is all but internal ones."""
        existing = self._metadata.topics
        names = sorted(name for name in existing if not name.startswith("__")) if wanted is None else list(wanted)
        for name in names:
            if name not in existing:
                raise topic_not_found(name, existing)
        ranges = ranges_of(self._cluster, self._admin, [(name, p) for name in names for p in existing[name].partitions])
        groups = self._groups(names, {place: start or 0 for place, (start, _) in ranges.items()})
        # A reply topic shows with the topic of its requests, so samples are taken of all.
        sampled = [*names, *(name for name in sorted(existing) if name not in names and not name.startswith("__"))]
        samples = self._samples(sampled[:TOPICS_SAMPLED_MAX])
        look = Look(names=frozenset(existing))
        for name in sampled:
            seen = self._topic(name, groups, samples.get(name)) if name in names else self._partner(name, samples)
            if seen is not None:
                look.topics.append(seen)
        for name in names:
            look.workloads[name] = self._workload(name, groups, ranges)
        return look

    # Groups

    def _groups(self, names: list[str], starts: Mapping[Place, int]) -> dict[str, list[ObservedGroup]] | None:
        reading = LagReading(self._cluster, topics=names)
        try:
            found = reading.look() if names else []
        except CommandFailed:
            return None
        finally:
            reading.close()
        offsets = self._metadata.topics.get(OFFSETS_TOPIC)
        partitions = None if offsets is None else len(offsets.partitions)
        ids = [each.group_id for each in found if each.positions]
        commits = read_commits(self._cluster, self._admin, ids, partitions, starts) if ids else {}
        by_topic: dict[str, list[ObservedGroup]] = {name: [] for name in names}
        for group in found:
            for topic in sorted({position.topic for position in group.positions}):
                made = None if commits is None else commits.get((group.group_id, topic))
                by_topic[topic].append(_observed_group(group, topic, made, is_known=commits is not None))
        return by_topic

    # Records

    def _samples(self, names: list[str]) -> dict[str, tuple[SampledRecord, ...]]:
        """Return the newest records by topic; a topic that may not be read is missing."""
        places = [(name, p) for name in names for p in self._metadata.topics[name].partitions]
        ranges = tail_ranges(self._cluster, self._admin, places, RECORDS_PER_PARTITION)
        found: dict[str, list[SampledRecord]] = {name: [] for name in names}
        try:
            for message in read_tails(self._cluster, ranges):
                found[message.topic()].append(_sampled(message))
        except CommandFailed:
            # One topic that may not be read ends the reading of all, so each is read by itself.
            return self._samples_one_by_one(names, ranges)
        return {name: tuple(records) for name, records in found.items()}

    def _samples_one_by_one(
        self, names: list[str], ranges: Mapping[Place, tuple[int, int]]
    ) -> dict[str, tuple[SampledRecord, ...]]:
        found = {}
        for name in names:
            own = {place: each for place, each in ranges.items() if place[0] == name}
            try:
                found[name] = tuple(_sampled(message) for message in read_tails(self._cluster, own))
            except CommandFailed:
                continue
        return found

    # Topics

    def _partner(self, name: str, samples: Mapping[str, tuple[SampledRecord, ...]]) -> ObservedTopic | None:
        """Return a topic that was not asked for, with its records alone; None if it has none."""
        if not samples.get(name):
            return None
        return ObservedTopic(name, 0, "", None, None, groups=(), sample=samples[name], is_asked=False)

    def _topic(
        self, name: str, groups: dict[str, list[ObservedGroup]] | None, sample: tuple[SampledRecord, ...] | None
    ) -> ObservedTopic:
        entries = self._entries(name)
        traffic = self._traffic
        return ObservedTopic(
            name,
            len(self._metadata.topics[name].partitions),
            value_of(entries, "cleanup.policy") or "delete",
            _number(entries, "retention.ms"),
            _number(entries, "retention.bytes"),
            None if groups is None else tuple(groups[name]),
            sample,
            None if traffic is None else traffic.bytes_in[name],
            None if traffic is None else traffic.bytes_out[name],
            sum((self._sizes(name) or {}).values()) if traffic is not None else None,
            (value_of(entries, "remote.storage.enable") or "false") == "true",
        )

    def _entries(self, name: str) -> dict[str, ConfigValue]:
        try:
            return read_entries(self._cluster, self._admin, Target("topic", name)) or {}
        except CommandFailed:
            return {}  # Deleted meanwhile, or this client may not read its settings.

    def _sizes(self, name: str) -> dict[int, int] | None:
        try:
            return log_sizes(self._cluster, described(self._cluster, self._admin, name))
        except CommandFailed:
            return None

    def _workload(
        self, name: str, groups: dict[str, list[ObservedGroup]] | None, ranges: Mapping[Place, Any]
    ) -> WorkloadProfile:
        """Return what is known of a topic as a workload: measured, and nothing assumed."""
        topic = self._metadata.topics[name]
        entries = self._entries(name)
        write, record_bytes = self._rate(name, ranges)
        readers = None if groups is None else tuple(_reader(group) for group in groups[name])
        owner = value_of(entries, "strandline.owner")
        objectives = value_of(entries, "strandline.lag.objectives")
        limits_ms = [each.limit_ms for each in objectives_of(objectives or "") if each.limit_ms is not None]
        safety = Safety(
            owner=owner,
            lag_objective_ms=None if objectives is None else min(limits_ms, default=0),
            min_insync_replicas=_number(entries, "min.insync.replicas"),
            unclean_election=value_of(entries, "unclean.leader.election.enable") == "true" if entries else None,
        )
        found = WorkloadProfile(
            name=name,
            write=write,
            record_bytes=record_bytes,
            readers=readers,
            retention_ms=_number(entries, "retention.ms"),
            partitions=len(topic.partitions),
            replicas=min((len(each.replicas) for each in topic.partitions.values()), default=None),
            brokers=len(self._metadata.brokers),
            safety=safety,
            is_described=False,
        )
        fields = ("write", "record_bytes", "readers", "retention_ms", "partitions", "replicas", "brokers")
        return replace(found, measured=frozenset(each for each in fields if getattr(found, each) is not None))

    def _rate(self, name: str, ranges: Mapping[Place, Any]) -> tuple[Rate | None, int | None]:
        """Return the write rate of the last hour, and the mean size of a record on disk."""
        places = [(name, partition) for partition in self._metadata.topics[name].partitions]
        held = {place: ranges[place] for place in places if None not in ranges[place]}
        records = sum(end - start for start, end in held.values())
        sizes = self._sizes(name)
        mean = round(sum(sizes.values()) / records) if sizes is not None and records else None
        since_ms = int(time.time() * 1000) - RATE_OVER_MS
        at = offsets_at(self._cluster, self._admin, list(held), since_ms)
        written = sum(end - first for place, (_, end) in held.items() if (first := at[place]) is not None)
        per_s = written / (RATE_OVER_MS / 1000)
        if mean is None:
            return Rate(records_per_s=per_s), None
        return Rate(bytes_per_s=per_s * mean, records_per_s=per_s), max(1, mean)


def _reader(group: ObservedGroup) -> WorkloadReader:
    return WorkloadReader(group.group_id, members=group.members or None, lag_ms=group.lag_ms)


def _number(entries: Mapping[str, ConfigValue], name: str) -> int | None:
    value = value_of(entries, name)
    return None if value is None else int(value)


def _observed_group(group: GroupLag, topic: str, commits: ObservedCommits | None, *, is_known: bool) -> ObservedGroup:
    members = group.group.members
    positions = [each for each in group.positions if each.topic == topic]
    idle = 0
    if members is not None and group.group.state == "Stable":
        idle = sum(member.owned == () and not member.target for member in members)
    ages = [each.figures.lag_s for each in positions if each.figures is not None and each.figures.lag_s is not None]
    nothing = ObservedCommits(0, 0, 0, 0, 0)
    return ObservedGroup(
        group.group_id,
        group.group.group_type,
        None if members is None else len(members),
        idle,
        {each.partition: each.figures.lag or 0 for each in positions if each.figures is not None},
        round(max(ages) * 1000) if ages else None,
        tuple(
            each.partition
            for each in positions
            if each.judgement is not None and each.judgement.verdict is LagVerdict.STALLED
        ),
        commits or (nothing if is_known else None),
    )


def _sampled(message: Any) -> SampledRecord:
    headers = {}
    for name, value in message.headers() or ():
        plain = re.sub(r"[^a-z]", "", name.lower())
        plain = plain.removeprefix("x")
        if plain in CORRELATION_HEADERS or plain in REPLY_HEADERS:
            # Ids are often bytes, which stay distinct in this form.
            headers[plain] = (value or b"")[:HEADER_BYTES_MAX].decode("utf-8", "backslashreplace")
    return SampledRecord(message.timestamp()[1], headers, message.key() is not None)

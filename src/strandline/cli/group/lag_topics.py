"""What lag depends on besides offsets: how long a topic keeps records, how large they are, and whether they count.

Read once for each topic; a command that watches does not see a setting change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from strandline.cli.common.client import Cluster
from strandline.cli.common.conversation import converse
from strandline.cli.common.failures import CommandFailed
from strandline.cli.config.access import Target, read_entries, value_of
from strandline.cli.topic.topics import described, log_sizes
from strandline.lag.figures import TopicRetention
from strandline.lag.objectives import LagObjective, objectives_of


@dataclass(frozen=True)
class LagTopicFacts:
    retention: TopicRetention
    is_compacted: bool
    sizes: dict[int, int]
    """Bytes of each partition, where they matter and the cluster tells."""
    objectives: dict[str, LagObjective]
    """How far each group may be behind, where the topic says so."""


class TopicFactsReader:
    def __init__(self, cluster: Cluster, admin: Any) -> None:
        self._cluster = cluster
        self._admin = admin
        self._known: dict[str, LagTopicFacts] = {}
        self._counts_records: dict[str, bool] = {}
        self._objectives: dict[str, dict[str, LagObjective]] = {}

    def of(self, name: str) -> LagTopicFacts:
        if name not in self._known:
            self._known[name] = self._read(name)
        return self._known[name]

    def objective(self, name: str, group_id: str) -> LagObjective | None:
        """Return how far the group may be behind; None, too, if this client may not read the topic's settings."""
        if name not in self._objectives:
            try:
                self._objectives[name] = self.of(name).objectives
            except CommandFailed:
                self._objectives[name] = {}
        return self._objectives[name].get(group_id)

    def counts_records(self, name: str) -> bool:
        """Whether every offset is a record: a compacted topic has holes, and transactions leave markers."""
        if name not in self._counts_records:
            self._counts_records[name] = not self.of(name).is_compacted and not _has_transactions(
                self._cluster, described(self._cluster, self._admin, name)
            )
        return self._counts_records[name]

    def _read(self, name: str) -> LagTopicFacts:
        entries = read_entries(self._cluster, self._admin, Target("topic", name)) or {}
        policy = value_of(entries, "cleanup.policy") or "delete"
        retention = TopicRetention.of(
            cleanup_policy=policy,
            retention_ms=int(value_of(entries, "retention.ms") or -1),
            retention_bytes=int(value_of(entries, "retention.bytes") or -1),
        )
        sizes = None
        if retention.size_bytes is not None:
            sizes = log_sizes(self._cluster, described(self._cluster, self._admin, name))
        objectives = {each.group: each for each in objectives_of(value_of(entries, "strandline.lag.objectives") or "")}
        return LagTopicFacts(retention, "compact" in policy, sizes or {}, objectives)


def _has_transactions(cluster: Cluster, topic: Any) -> bool:
    """Whether a producer that the cluster remembers has written in transactions; False where it does not tell."""
    from strandline.codec.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
    from strandline.codec.messages.describe_producers_response import DescribeProducersResponse

    led_by: dict[int, list[Any]] = {}
    for partition in topic.partitions:
        if partition.leader is not None:
            led_by.setdefault(partition.leader.id, []).append(partition)
    for led in led_by.values():
        conversation = converse(cluster, led[0].leader)
        if conversation is None:
            return False
        wanted = TopicRequest(name=topic.name, partition_indexes=[partition.id for partition in led])
        with conversation:
            answer = conversation.ask(DescribeProducersRequest(topics=[wanted]), DescribeProducersResponse)
        if answer is not None and any(
            producer.coordinator_epoch >= 0 or producer.current_txn_start_offset >= 0
            for each in answer.topics
            for partition in each.partitions
            for producer in partition.active_producers
        ):
            return True
    return False

"""Families about replicas: what this node leads and follows, who is in sync, how far followers are behind."""

from __future__ import annotations

from typing import Final

from strandline.broker.metrics.scrape import Scrape
from strandline.observability.exposition import Metric


def _offline(scrape: Scrape) -> int:
    failed = sum(1 for each in scrape.partitions if each.log.failure is not None)
    return len(scrape.node.replicas.offline) + failed


def _without_leader(scrape: Scrape) -> int:
    topics = list(scrape.node.image.topics.values())
    leaderless = sum(1 for topic in topics for partition in topic.partitions if partition.leader < 0)
    failed_here = sum(1 for each in scrape.partitions if each.is_leader and each.log.failure is not None)
    offline = [scrape.node.image.partition(*where) for where in scrape.node.replicas.offline]
    led_offline = sum(1 for each in offline if each is not None and each.leader == scrape.node.node_id)
    return leaderless + failed_here + led_offline


FAMILIES: Final[tuple[Metric[Scrape], ...]] = (
    Metric(
        "kafka_server_replicamanager_partitioncount",
        "gauge",
        "Partitions on this node, without those whose log could not be opened.",
        lambda scrape: [("", len(scrape.partitions))],
        public=True,
    ),
    Metric(
        "kafka_server_replicamanager_leadercount",
        "gauge",
        "Partitions that this node leads.",
        lambda scrape: [("", sum(1 for each in scrape.partitions if each.is_leader))],
        public=True,
    ),
    Metric(
        "kafka_server_replicamanager_underreplicatedpartitions",
        "gauge",
        "Partitions led here of which not all replicas are in sync.",
        lambda scrape: [("", sum(each.in_sync is not None and each.in_sync.is_short for each in scrape.partitions))],
        public=True,
    ),
    Metric(
        "kafka_server_replicamanager_underminisrpartitioncount",
        "gauge",
        "Partitions led here with fewer replicas in sync than `min.insync.replicas`: acks=all is refused.",
        lambda scrape: [("", sum(1 for each in scrape.partitions if each.is_under_min_in_sync))],
        public=True,
    ),
    Metric(
        "kafka_server_replicamanager_isrshrinks_total",
        "counter",
        "In-sync sets that this node, as a leader, had a replica left out of since the start.",
        lambda scrape: [("", scrape.node.replicas.in_sync.shrinks)],
        public=True,
    ),
    Metric(
        "kafka_server_replicamanager_isrexpands_total",
        "counter",
        "In-sync sets that this node, as a leader, had a replica taken into since the start.",
        lambda scrape: [("", scrape.node.replicas.in_sync.expands)],
        public=True,
    ),
    Metric(
        "kafka_server_replicamanager_offlinereplicacount",
        "gauge",
        "Partitions on this node whose log is damaged or failed: they are not served; the log says why.",
        lambda scrape: [("", _offline(scrape))],
        public=True,
    ),
    Metric(
        "kafka_server_replicafetchermanager_maxlag",
        "gauge",
        "Committed records that the partition furthest behind its leader lacks on this node.",
        lambda scrape: [("", max(scrape.node.replicas.fetchers.lags().values(), default=0))],
        public=True,
    ),
    Metric(
        "kafka_server_brokertopicmetrics_replicationbytesin_total",
        "counter",
        "Bytes of batches that this node fetched from leaders since the start.",
        lambda scrape: [("", scrape.node.replicas.fetchers.bytes_in)],
        public=True,
    ),
    Metric(
        "kafka_controller_kafkacontroller_offlinepartitionscount",
        "gauge",
        "Partitions without a leader that serves them, as far as this node knows.",
        lambda scrape: [("", _without_leader(scrape))],
        public=True,
    ),
)

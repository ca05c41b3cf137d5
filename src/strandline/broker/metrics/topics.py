"""Families about topics, partitions and their logs: kafka_exporter's names, and those of Kafka's own beans."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from strandline.broker.metrics.scrape import Scrape
from strandline.observability.exposition import Metric, Sample
from strandline.partition.partition import Partition
from strandline.quorum.image.cluster_image import PartitionImage


def each_partition(read: Callable[[Partition], float]) -> Callable[[Scrape], Iterator[Sample]]:
    """Return a reader of a line for each partition. Topic names need no escaping."""

    def samples(scrape: Scrape) -> Iterator[Sample]:
        for each in scrape.partitions:
            yield f'topic="{each.topic}",partition="{each.index}"', read(each)

    return samples


def _each_image(read: Callable[[PartitionImage], float]) -> Callable[[Scrape], Iterator[Sample]]:
    """The same of what the cluster knows of each partition; one that was deleted meanwhile is left out."""

    def samples(scrape: Scrape) -> Iterator[Sample]:
        image = scrape.node.image
        for each in scrape.partitions:
            partition = image.partition(each.topic, each.index)
            if partition is not None:
                yield f'topic="{each.topic}",partition="{each.index}"', read(partition)

    return samples


def _by_topic(read: Callable[[Partition], float], departed: str = "") -> Callable[[Scrape], Iterable[Sample]]:
    """A line for each topic on the deep page, and one for all, with those that are gone, on the other."""

    def samples(scrape: Scrape) -> Iterator[Sample]:
        if not scrape.deep:
            gone = getattr(scrape.node.replicas.departed, departed) if departed else 0
            yield "", gone + sum(map(read, scrape.partitions))
            return
        for topic, partitions in scrape.topics.items():
            yield f'topic="{topic}"', sum(map(read, partitions))

    return samples


def _topic_sizes(scrape: Scrape) -> Iterator[Sample]:
    for name, topic in list(scrape.node.image.topics.items()):
        yield f'topic="{name}"', len(topic.partitions)


def _under_replicated(partition: PartitionImage) -> int:
    return int(len(partition.isr) < len(partition.replicas))


def _preferred(partition: PartitionImage) -> int:
    return int(bool(partition.replicas) and partition.leader == partition.replicas[0])


def _image_sum(read: Callable[[PartitionImage], float]) -> Callable[[Scrape], Iterable[Sample]]:
    def samples(scrape: Scrape) -> Iterator[Sample]:
        topics = list(scrape.node.image.topics.values())
        yield "", sum(read(partition) for topic in topics for partition in topic.partitions)

    return samples


_TOPIC: Final = ("topic",)
_PARTITION: Final = ("topic", "partition")

FAMILIES: Final[tuple[Metric[Scrape], ...]] = (
    Metric(
        "kafka_brokers",
        "gauge",
        "Brokers of the cluster that are there.",
        lambda scrape: [("", len(scrape.node.image.active_brokers()))],
        public=True,
    ),
    Metric(
        "kafka_server_brokertopicmetrics_bytesin_total",
        "counter",
        "Bytes of batches that were appended since the start.",
        _by_topic(lambda each: each.bytes_in, "bytes_in"),
        _TOPIC,
        public=True,
    ),
    Metric(
        "kafka_server_brokertopicmetrics_bytesout_total",
        "counter",
        "Bytes of batches that consumers were answered with since the start.",
        _by_topic(lambda each: each.bytes_out, "bytes_out"),
        _TOPIC,
        public=True,
    ),
    Metric(
        "kafka_server_brokertopicmetrics_messagesin_total",
        "counter",
        "Records that were appended since the start.",
        _by_topic(lambda each: each.records_in, "records_in"),
        _TOPIC,
        public=True,
    ),
    Metric(
        "strandline_topic_batches_in_total",
        "counter",
        "Batches that were appended since the start; work is per batch, so few large ones are cheap.",
        _by_topic(lambda each: each.batches_in, "batches_in"),
        _TOPIC,
        public=True,
    ),
    Metric(
        "kafka_log_log_size_bytes",
        "gauge",
        "Bytes on disk: of each topic, and on /public_metrics of all.",
        _by_topic(lambda each: each.log.size_bytes()),
        _TOPIC,
        public=True,
    ),
    Metric("kafka_topic_partitions", "gauge", "Partitions of a topic.", _topic_sizes, _TOPIC),
    Metric(
        "kafka_topic_partition_current_offset",
        "gauge",
        "The high watermark: the offset of the next record that consumers will see.",
        each_partition(lambda each: each.high_watermark),
        _PARTITION,
    ),
    Metric(
        "kafka_topic_partition_oldest_offset",
        "gauge",
        "The first offset that can be read.",
        each_partition(lambda each: each.log_start_offset),
        _PARTITION,
    ),
    Metric(
        "kafka_log_log_unflushed_records",
        "gauge",
        "Records that were appended and that no flush has covered yet.",
        each_partition(lambda each: each.log.unflushed),
        _PARTITION,
    ),
    Metric(
        "kafka_log_log_numlogsegments",
        "gauge",
        "Segments of the log.",
        each_partition(lambda each: len(each.log.segments)),
        _PARTITION,
    ),
    Metric(
        "kafka_topic_partition_leader",
        "gauge",
        "The node id of the leader; -1 if there is none.",
        _each_image(lambda each: each.leader),
        _PARTITION,
    ),
    Metric(
        "kafka_topic_partition_leader_is_preferred",
        "gauge",
        "1 if the leader is the first replica.",
        _each_image(_preferred),
        _PARTITION,
    ),
    Metric(
        "kafka_topic_partition_replicas",
        "gauge",
        "Replicas of the partition.",
        _each_image(lambda each: len(each.replicas)),
        _PARTITION,
    ),
    Metric(
        "kafka_topic_partition_in_sync_replica",
        "gauge",
        "Replicas that are in sync.",
        _each_image(lambda each: len(each.isr)),
        _PARTITION,
    ),
    Metric(
        "kafka_topic_partition_under_replicated_partition",
        "gauge",
        "1 if not all replicas are in sync.",
        _each_image(_under_replicated),
        _PARTITION,
    ),
    Metric(
        "kafka_controller_kafkacontroller_globaltopiccount",
        "gauge",
        "Topics of the cluster.",
        lambda scrape: [("", len(scrape.node.image.topics))],
        public=True,
    ),
    Metric(
        "kafka_controller_kafkacontroller_globalpartitioncount",
        "gauge",
        "Partitions of the cluster.",
        _image_sum(lambda _: 1),
        public=True,
    ),
)

"""What the harness asks a cluster: who coordinates the sink, what readers may see, and which ids there are."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from strandline.client.cluster_client import ClientSettings, ClusterClient
from strandline.codec.messages.find_coordinator_request import FindCoordinatorRequest
from strandline.codec.messages.find_coordinator_response import FindCoordinatorResponse
from strandline.codec.messages.list_transactions_request import ListTransactionsRequest
from strandline.codec.messages.list_transactions_response import ListTransactionsResponse
from strandline.ids import sink_key
from strandline.local.embedded_cluster import EmbeddedCluster

TRANSACTION = 1
TIMEOUT_S = 60.0


def coordinator_of(bootstrap: str, sink_id: str) -> int:
    """The node that coordinates the sink now; waits for one while there is none."""
    client = ClusterClient(ClientSettings(bootstrap, api_timeout_s=TIMEOUT_S))

    def attempt() -> int | None:
        request = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[sink_key(sink_id)])
        (found,) = client.ask_any(request, FindCoordinatorResponse).coordinators
        return found.node_id if found.error_code == 0 else None

    try:
        return client.retried("find the coordinator", attempt)
    finally:
        client.close()


def transactional_ids(bootstrap: str, sink_id: str) -> set[str]:
    """The sink's ids that its coordinator knows."""
    client = ClusterClient(ClientSettings(bootstrap, api_timeout_s=TIMEOUT_S))
    node_id = coordinator_of(bootstrap, sink_id)

    def attempt() -> set[str] | None:
        answer = client.ask_broker(node_id, ListTransactionsRequest(), ListTransactionsResponse)
        return {each.transactional_id for each in answer.transaction_states} if answer.error_code == 0 else None

    try:
        client.topics(None)
        found = client.retried("list transactions", attempt)
    finally:
        client.close()
    return {each for each in found if each.startswith(sink_key(sink_id))}


def end_offsets(bootstrap: str, topic: str, *, committed: bool) -> dict[int, int]:
    """Where each partition ends: what read_committed readers may see, or all that there is."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    partitions = admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    wanted = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in partitions}
    found = admin.list_offsets(wanted, isolation_level=level, request_timeout=TIMEOUT_S)
    return {place.partition: future.result().offset for place, future in found.items()}


def log_sizes(cluster: EmbeddedCluster, topic: str) -> dict[int, int]:
    """How many bytes the logs of a topic have on each node's disk: what was appended, before anybody is told."""
    return {
        node_id: sum(path.stat().st_size for path in node.data.glob(f"{topic}-*/*.log"))
        for node_id, node in cluster.nodes.items()
    }


def wait_for_rest(cluster: EmbeddedCluster, topic: str) -> None:
    """Return when nothing is written to a topic: what comes after that belongs to what is done after that."""
    deadline = time.monotonic() + TIMEOUT_S
    before = log_sizes(cluster, topic)
    while True:
        time.sleep(0.2)
        if before == (before := log_sizes(cluster, topic)):
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"{topic} is written to although nobody has a reason")


def values_of(bootstrap: str, topic: str) -> Counter[bytes]:
    """Every record that a stock read_committed consumer gets, up to the end of each partition."""
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": f"verdict-{topic}",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        "log_level": 0,
    }
    consumer = Consumer(settings)
    try:
        partitions = consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        seen: Counter[bytes] = Counter()
        unfinished = set(partitions)
        while unfinished:
            message = consumer.poll(TIMEOUT_S)
            if message is None:
                raise AssertionError(f"no record and no end of {topic} within {TIMEOUT_S:g} s: {sorted(unfinished)}")
            error = message.error()
            if error is None:
                seen[bytes(message.value() or b"")] += 1
            elif error.code() == KafkaError._PARTITION_EOF:
                unfinished.discard(message.partition())
            elif not error.retriable():
                raise AssertionError(f"the consumer was told: {error}")
        return seen
    finally:
        consumer.close()

"""`strandline cluster info`: who is in the cluster, what it can do, and how its partitions are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, Cluster, connect, kafka_api
from strandline.cli.common.conversation import converse
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, ClientProperties, Timeout
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import count
from strandline.client.connection import Offered


@dataclass
class Health:
    """Topics and partitions, and those that are not as they should be."""

    topics: int = 0
    internal_topics: int = 0
    partitions: int = 0
    replicas: int = 0
    offline: int = 0
    under_replicated: int = 0


def info(
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Show brokers, controller, cluster id and features, and how the topics and partitions are."""
    cluster = connect(bootstrap, properties, timeout)
    admin = cluster.admin()
    with cluster.errors("cannot read the metadata of the cluster"):
        metadata = admin.list_topics(timeout=timeout)
    racks = _racks(cluster, admin)
    conversation = converse(cluster)
    offered: Offered | None = None
    if conversation is not None:
        with conversation:
            offered = conversation.offered
    health = health_of(metadata.topics)
    output = Output(as_json=as_json)
    brokers = [
        {
            "broker": broker.id,
            "host": broker.host,
            "port": broker.port,
            "rack": racks.get(broker.id),
            "controller": broker.id == metadata.controller_id,
        }
        for _, broker in sorted(metadata.brokers.items())
    ]
    if as_json:
        output.json_line(
            {
                "cluster_id": metadata.cluster_id,
                "controller": metadata.controller_id,
                "brokers": brokers,
                **vars(health),
                "features": None if offered is None else _features_json(offered),
                "apis": None if offered is None else {str(key): list(span) for key, span in _sorted(offered.versions)},
            }
        )
        return
    _show(output, metadata, brokers, health, offered)


def _show(
    output: Output, metadata: Any, brokers: list[dict[str, Any]], health: Health, offered: Offered | None
) -> None:
    output.line(f"cluster     {metadata.cluster_id}")
    # Kafka answers any broker here when the controllers are nodes of their own.
    output.line(f"controller  {metadata.controller_id if metadata.controller_id >= 0 else 'none'}")
    internal = f" and {count(health.internal_topics, 'internal one')}" if health.internal_topics else ""
    output.line(f"topics      {count(health.topics, 'topic')}{internal}")
    state = _state(health)
    output.line(f"partitions  {count(health.partitions, 'partition')}, {count(health.replicas, 'replica')}: {state}")
    if offered is not None:
        output.line(f"apis        {len(offered.versions)} offered")
        for number, (name, (level, low, high)) in enumerate(_sorted(offered.features)):
            in_force = "off" if level is None else level
            output.line(f"{'features' if number == 0 else '':10}  {name} {in_force} (can be {low} to {high})")
    output.line("")
    rows = [
        [b["broker"], f"{b['host']}:{b['port']}", b["rack"] or "-", "yes" if b["controller"] else ""] for b in brokers
    ]
    output.table(["broker", "address", "rack", "controller"], rows)


def health_of(topics: dict[str, Any]) -> Health:
    """Counted from librdkafka's metadata."""
    health = Health()
    for name, topic in topics.items():
        internal = name.startswith("__")
        health.internal_topics += internal
        health.topics += not internal
        for partition in topic.partitions.values():
            health.partitions += 1
            health.replicas += len(partition.replicas)
            health.offline += partition.leader < 0
            health.under_replicated += len(partition.isrs) < len(partition.replicas)
    return health


def _state(health: Health) -> str:
    troubles = []
    if health.offline:
        troubles.append(f"{health.offline:,} without a leader")
    if health.under_replicated:
        troubles.append(f"{health.under_replicated:,} with replicas out of sync")
    return ", ".join(troubles) or "all in sync"


def _racks(cluster: Cluster, admin: Any) -> dict[int, str | None]:
    """Racks by broker, where the cluster offers DescribeCluster or tells them in metadata."""
    try:
        description = admin.describe_cluster(request_timeout=cluster.timeout_s).result()
    except kafka_api().KafkaException as error:
        if error.args[0].name() in ("_UNSUPPORTED_FEATURE", "UNSUPPORTED_VERSION"):
            return {}
        with cluster.errors("cannot describe the cluster"):
            raise
    return {node.id: node.rack for node in description.nodes}


def _features_json(offered: Offered) -> dict[str, dict[str, int | None]]:
    return {name: {"level": level, "min": low, "max": high} for name, (level, low, high) in _sorted(offered.features)}


def _sorted(table: dict[Any, Any]) -> list[Any]:
    return sorted(table.items())

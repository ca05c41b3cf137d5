"""A cluster of real processes whose nodes die: what the group tests need of it."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient
from tests.clients.groups.conftest import GROUP_PROPERTIES
from tests.clients.groups.stage import WAIT_S_MAX

CLUSTER_PROPERTIES = GROUP_PROPERTIES | {
    # A dead node is noticed soon.
    "broker.session.timeout.ms": "1500",
    "broker.heartbeat.interval.ms": "200",
    "http.listener": "off",
}


def coordinator_of(bootstrap: str, group: str) -> int:
    """The node that coordinates the group now."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    described = admin.describe_consumer_groups([group], request_timeout=WAIT_S_MAX)[group].result(WAIT_S_MAX)
    return int(described.coordinator.id)

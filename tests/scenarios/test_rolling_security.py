"""A cluster that becomes secured while producers write: listeners, logins, rights, certificates, passwords.

The steps are those of Kafka's documentation: a second listener, the protocol between brokers, the clients, the end of
the first listener. Nodes restart one after the other; one of them is killed on the way. No record may fail or be lost.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from tests.authority import Authority
from tests.scenarios.nodes_by_hand import NodeByHand, nodes_by_hand
from tests.scenarios.test_tls import TOPIC, WAIT_S_MAX, SteadyProducer, consume

from strandline.local.free_ports import free_port
from strandline.quorum.raft.state_files import uuid_text

JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="{}" password="{}";'
OPEN, BOTH, BETWEEN, REPORTED, CLOSED = range(5)
"""Steps: plain text; both listeners; the second one between brokers; rights reported; rights enforced, one listener."""


class Rolling:
    """The settings of every node in every step, and the users of the cluster."""

    def __init__(self, root: Path, nodes: list[NodeByHand]) -> None:
        self.nodes = nodes
        self.authority = Authority(root)
        self.stores = {node.node_id: self.authority.issue(f"node-{node.node_id}") for node in nodes}
        self.secure = {node.node_id: free_port() for node in nodes}
        self._voters = ",".join(f"{node.node_id}@{node.controller_address}" for node in nodes)
        self.user = ("node", "first of nodes")

    def configure(self, node: NodeByHand, step: int) -> None:
        listeners = [f"CONTROLLER://{node.controller_address}"]
        if step > OPEN:
            listeners.insert(0, f"SECURE://127.0.0.1:{self.secure[node.node_id]}")
        if step < CLOSED:
            listeners.insert(0, f"PLAIN://127.0.0.1:{node.port}")
        names = ";".join(f"User:CN=node-{each.node_id}" for each in self.nodes)
        settings = {
            "listeners": ",".join(listeners),
            "listener.security.protocol.map": "PLAIN:PLAINTEXT,SECURE:SASL_SSL,CONTROLLER:SSL",
            "inter.broker.listener.name": "SECURE" if step >= BETWEEN else "PLAIN",
            "listener.name.controller.ssl.client.auth": "required",
            "controller.quorum.voters": self._voters,
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "sasl.jaas.config": JAAS.format(*self.user),
            # Short, so that nodes and clients log in again in every step.
            "connections.max.reauth.ms": "5000",
            **self.authority.settings(self.stores[node.node_id]),
        }
        if step >= REPORTED:
            settings |= {
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "authorizer.mode": "enforce" if step >= CLOSED else "report",
                "super.users": f"User:node;User:node-2;User:operator;{names}",
            }
        node.configure("broker,controller", settings)

    def start(self) -> None:
        cluster_id = uuid_text(uuid.uuid4())
        for node in self.nodes:
            self.configure(node, OPEN)
            assert node.format(cluster_id).returncode == 0
            node.spawn()
        for node in self.nodes:
            node.wait_ready(timeout_s=WAIT_S_MAX)

    def roll(self, step: int, before_each: Callable[[], object]) -> None:
        """Restart one node after the other, with the settings of this step."""
        for node in self.nodes:
            before_each()
            node.stop(timeout_s=WAIT_S_MAX)
            self.configure(node, step)
            node.start(timeout_s=WAIT_S_MAX)

    def plain(self) -> dict[str, Any]:
        return {"bootstrap.servers": ",".join(node.bootstrap for node in self.nodes), "log_level": 0}

    def secured(self, user: str, password: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": ",".join(f"127.0.0.1:{port}" for port in self.secure.values()),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.authority.trusted),
            "ssl.endpoint.identification.algorithm": "https",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": password,
            "log_level": 0,
        }


def set_password(admin: AdminClient, user: str, password: str) -> None:
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    upsertion = UserScramCredentialUpsertion(user, credential, password.encode())
    admin.alter_user_scram_credentials([upsertion])[user].result(WAIT_S_MAX)


def grant(admin: AdminClient, operation: AclOperation, kind: ResourceType, name: str) -> None:
    acl = AclBinding(kind, name, ResourcePatternType.LITERAL, "User:alice", "*", operation, AclPermissionType.ALLOW)
    admin.create_acls([acl])[acl].result(WAIT_S_MAX)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_cluster_is_secured_while_producers_write(tmp_path: Path) -> None:
    with nodes_by_hand(tmp_path, 3) as nodes:
        rolling = Rolling(tmp_path, nodes)
        rolling.start()
        admin = AdminClient(rolling.plain())
        topic = NewTopic(TOPIC, 3, 3, config={"min.insync.replicas": "2"})
        admin.create_topics([topic])[TOPIC].result(WAIT_S_MAX)
        for user, password in (rolling.user, ("alice", "first of alice"), ("operator", "of the operator")):
            set_password(admin, user, password)
        plain = SteadyProducer(rolling.plain())
        rolling.roll(BOTH, plain.wait_for_more)

        # The clients move to the second listener, then the brokers among themselves.
        secured = SteadyProducer(rolling.secured("alice", "first of alice"))
        secured.wait_for_more()

        def both() -> None:
            plain.wait_for_more()
            secured.wait_for_more()

        rolling.roll(BETWEEN, both)
        nodes[0].kill()
        both()
        nodes[0].start(timeout_s=WAIT_S_MAX)
        both()
        plain.stop()

        # Rights: reported first, so that nothing is denied before the ACLs are there.
        rolling.roll(REPORTED, secured.wait_for_more)
        operator = AdminClient(rolling.secured("operator", "of the operator"))
        for operation in (AclOperation.WRITE, AclOperation.READ):
            grant(operator, operation, ResourceType.TOPIC, TOPIC)
        grant(operator, AclOperation.READ, ResourceType.GROUP, "readers")
        rolling.roll(CLOSED, secured.wait_for_more)
        secured.wait_for_more()

        # The password of a client: the user has the new one first, and the client is told it next.
        set_password(operator, "alice", "second of alice")
        secured.change_password("alice", "second of alice")
        secured.wait_for_more()
        # That of nodes: a second user, because between two restarts nodes have the old one and the new one.
        rolling.user = ("node-2", "second of nodes")
        set_password(operator, *rolling.user)
        rolling.roll(CLOSED, secured.wait_for_more)
        gone = UserScramCredentialDeletion("node", ScramMechanism.SCRAM_SHA_512)
        operator.alter_user_scram_credentials([gone])["node"].result(WAIT_S_MAX)
        secured.wait_for_more()

        for node in nodes:
            rolling.authority.issue(
                f"fresh-{node.node_id}", subject=f"/CN=node-{node.node_id}", to=rolling.stores[node.node_id]
            )
            deadline = time.monotonic() + WAIT_S_MAX
            while "listener SECURE has a new certificate" not in node.stderr_text():
                assert time.monotonic() < deadline, node.stderr_text()
                time.sleep(0.1)
            secured.wait_for_more()
        secured.stop()
        written = plain.written + secured.written
        assert consume(rolling.secured("alice", "second of alice"), 3, written) == written

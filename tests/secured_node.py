"""A node with an authorizer and three listeners: SASL_SSL with SCRAM, SSL with client certificates, and a plain one."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from tests.authority import Authority

from strandline.broker.formatting import format_directory, parse_add_scram
from strandline.config.node_config import BrokerConfig
from strandline.config.properties import format_properties
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.local.free_ports import bound_socket
from strandline.log.disk import RealDisk
from strandline.quorum.raft.state_files import uuid_text

PASSWORD = "root's secret"
JAAS = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="admin" password="{PASSWORD}";'


class SecuredNode(EmbeddedBroker):
    """One node. `admin` has the settings of a client that may do everything, in the words of Kafka."""

    def __init__(self, root: Path, stderr: BinaryIO, **properties: str) -> None:
        self.root = root
        self.authority = Authority(root)
        probes = [bound_socket() for _ in range(3)]
        port, self.mutual_port, self.plain_port = (probe.getsockname()[1] for probe in probes)
        for probe in probes:
            probe.close()
        self.admin = {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.trusted),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": JAAS,
        }
        settings = {
            "listeners": f"OUTSIDE://127.0.0.1:{port},MUTUAL://127.0.0.1:{self.mutual_port},"
            f"OPEN://127.0.0.1:{self.plain_port}",
            "listener.security.protocol.map": "OUTSIDE:SASL_SSL,MUTUAL:SSL,OPEN:PLAINTEXT",
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.mutual.ssl.keystore.location": str(self.authority.issue("mutual", names=("IP:127.0.0.1",))),
            "inter.broker.listener.name": "OUTSIDE",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "sasl.jaas.config": JAAS,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:admin;User:CN=operator",
            "group.initial.rebalance.delay.ms": "0",
            "http.listener": "off",
            "log.dirs": str(root / "data"),
            **self.authority.settings(self.authority.issue("node")),
            **{name.replace("_", "."): value for name, value in properties.items()},
        }
        self.config_file = root / "server.properties"
        self.config_file.write_text(format_properties(settings))
        super().__init__(root / "data", stderr=stderr)
        self.port = port
        format_directory(
            BrokerConfig.load(self.config_file.read_text(), {}, {}),
            uuid_text(uuid.uuid4()),
            (),
            disk=RealDisk(),
            now_ms=time.time_ns() // 1_000_000,
            new_uuid=uuid.uuid4,
            credentials=[parse_add_scram(f"SCRAM-SHA-512=[name=admin,password={PASSWORD}]", lambda: bytes(32))],
        )

    def arguments(self) -> Sequence[str]:
        return ["strandline.broker", "--config", str(self.config_file)]

    def file(self, settings: dict[str, str], name: str = "client.properties") -> str:
        """Return the name of a file with these settings of a client."""
        path = self.root / name
        path.write_text(format_properties(settings))
        return str(path)


@contextmanager
def secured_node(root: Path, **properties: str) -> Iterator[SecuredNode]:
    with (root / "stderr").open("w+b") as stderr:
        node = SecuredNode(root, stderr, **properties)
        try:
            node.start()
            yield node
        finally:
            node.kill()

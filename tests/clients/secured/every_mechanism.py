"""A node with a listener of every protocol that secures, and every mechanism on those with a login."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tests.authority import Authority
from tests.unit.security.sasl.test_jwt import CLAIMS, KEYS, RSA, token

from strandline.broker.formatting import format_directory, parse_add_scram
from strandline.config.node_config import BrokerConfig
from strandline.config.properties import format_properties
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.local.free_ports import bound_socket
from strandline.log.disk import RealDisk
from strandline.quorum.raft.state_files import uuid_text

USER, PASSWORD = "alice", "a secret with =2C and =3D"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PASSWORDS = MECHANISMS[:3]
TOPIC = "secured"


@dataclass(frozen=True)
class Cell:
    """One way into the node."""

    protocol: str
    mechanism: str | None = None

    def __str__(self) -> str:
        return self.protocol if self.mechanism is None else f"{self.protocol}-{self.mechanism}"

    @property
    def has_tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")


CELLS = [Cell(protocol, mechanism) for protocol in ("SASL_PLAINTEXT", "SASL_SSL") for mechanism in MECHANISMS]
CELLS.append(Cell("SSL"))


class EveryMechanism(EmbeddedBroker):
    """The node, and what its clients need. `certificate` has key and certificate of a client, for the listener SSL."""

    def __init__(self, root: Path, authority: Authority, ports: dict[str, int], stderr: BinaryIO) -> None:
        super().__init__(root / "data", stderr=stderr)
        self._file = root / "server.properties"
        self.port = ports["SASL_SSL"]
        self.ports = ports
        self.trusted = str(authority.trusted)
        self.certificate = str(authority.issue(USER))

    def arguments(self) -> list[str]:
        return ["strandline.broker", "--config", str(self._file)]

    @property
    def client_config(self) -> dict[str, str]:
        return self.librdkafka(Cell("SASL_SSL", "SCRAM-SHA-512")) | {"log_level": "0"}

    def bootstrap_of(self, cell: Cell) -> str:
        return f"127.0.0.1:{self.ports[cell.protocol]}"

    def token(self) -> str:
        now = int(time.time())
        return token(CLAIMS | {"iat": now, "exp": now + 3000, "jti": uuid.uuid4().hex}, key=RSA)

    def librdkafka(self, cell: Cell) -> dict[str, str]:
        found = {"bootstrap.servers": self.bootstrap_of(cell), "security.protocol": cell.protocol}
        if cell.has_tls:
            found["ssl.ca.location"] = self.trusted
        if cell.protocol == "SSL":
            found |= {"ssl.certificate.location": self.certificate, "ssl.key.location": self.certificate}
        if cell.mechanism is not None:
            found["sasl.mechanism"] = cell.mechanism
            if cell.mechanism in PASSWORDS:
                found |= {"sasl.username": USER, "sasl.password": PASSWORD}
        return found


def settings(root: Path, authority: Authority, ports: dict[str, int]) -> dict[str, str]:
    (root / "jwks.json").write_bytes(KEYS)
    modules = "org.apache.kafka.common.security"
    plain = f'{modules}.plain.PlainLoginModule required user_{USER}="{PASSWORD}" user_node="node";'
    scram = f'{modules}.scram.ScramLoginModule required username="node" password="node";'
    return {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "inter.broker.listener.name": "SASL_SSL",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "sasl.jaas.config": scram,
        "listener.name.sasl_ssl.plain.sasl.jaas.config": plain,
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": plain,
        "sasl.oauthbearer.jwks.endpoint.url": (root / "jwks.json").as_uri(),
        "sasl.oauthbearer.expected.issuer": "https://issuer",
        "sasl.oauthbearer.expected.audience": "strandline",
        "listener.name.ssl.ssl.client.auth": "required",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:node;User:{USER};User:CN={USER}",
        "group.initial.rebalance.delay.ms": "0",
        "http.listener": "off",
        "log.dirs": str(root / "data"),
        **authority.settings(authority.issue("node")),
    }


@contextmanager
def every_mechanism(root: Path) -> Iterator[EveryMechanism]:
    authority = Authority(root)
    probes = [bound_socket() for _ in range(3)]
    ports = dict(zip(("SASL_SSL", "SASL_PLAINTEXT", "SSL"), (each.getsockname()[1] for each in probes), strict=True))
    for probe in probes:
        probe.close()
    file = root / "server.properties"
    file.write_text(format_properties(settings(root, authority, ports)))
    users = ((USER, PASSWORD, "SCRAM-SHA-256"), (USER, PASSWORD, "SCRAM-SHA-512"), ("node", "node", "SCRAM-SHA-512"))
    format_directory(
        BrokerConfig.load(file.read_text(), {}, {}),
        uuid_text(uuid.uuid4()),
        (),
        disk=RealDisk(),
        now_ms=time.time_ns() // 1_000_000,
        new_uuid=uuid.uuid4,
        credentials=[
            parse_add_scram(f'{mechanism}=[name={name},password="{password}"]', lambda: bytes(32))
            for name, password, mechanism in users
        ],
    )
    with (root / "stderr").open("w+b") as stderr:
        node = EveryMechanism(root, authority, ports, stderr)
        try:
            node.start()
            node.create_topic(TOPIC)
            yield node
        finally:
            node.kill()

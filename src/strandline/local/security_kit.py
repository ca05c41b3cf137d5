"""The files that secure a cluster: an authority, certificates, an administrator, and settings for nodes and clients.

    ca.pem, ca.key          the authority; keep the key somewhere else
    node.pem                key and certificate of the nodes, for all their hosts
    admin.pem               key and certificate of the administrator, for listeners of certificates
    server.properties       settings of a node, with the authorizer on
    admin.scram             the administrator's user, for `strandline format --add-scram @admin.scram`
    admin.properties        settings of a client for Java, Kafka's tools and `--command-config`
    librdkafka.properties   the same for librdkafka
    spark.properties        the same as options of Spark's Kafka source and sink

Only their owner may read files with secrets.
"""

from __future__ import annotations

import os
import secrets
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from strandline.broker.formatting import format_directory, parse_add_scram
from strandline.client.security import ClientSecurity
from strandline.codec.messages.user_scram_credential_record import UserScramCredentialRecord
from strandline.config.node_config import BrokerConfig
from strandline.config.properties import format_properties, parse_properties
from strandline.errors import InvalidConfig
from strandline.log.disk import RealDisk
from strandline.log.log_directory import META_PROPERTIES
from strandline.quorum.raft.state_files import uuid_text
from strandline.security.issuing import CertificateAuthority
from strandline.security.sasl.scram import SALT_BYTES

ADMINISTRATOR: Final = "admin"
MECHANISM: Final = "SCRAM-SHA-512"
LISTENER: Final = "SASL_SSL"
HOSTS: Final = ("localhost", "127.0.0.1", "::1")
_PASSWORD_BYTES: Final = 24
_PORT: Final = 9092
_CERTIFICATES_PORT: Final = 9094


class SecurityKit:
    """The files of one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()

    @property
    def server_properties(self) -> Path:
        return self.directory / "server.properties"

    @property
    def command_config(self) -> Path:
        return self.directory / "admin.properties"

    @property
    def is_made(self) -> bool:
        return self.server_properties.exists()

    def make(self, hosts: Sequence[str] = ()) -> None:
        """Write all files. Raise InvalidConfig if there are some already, or if `cryptography` is missing."""
        if self.is_made:
            raise InvalidConfig(f"{self.directory} has files of an earlier run; expected an empty directory")
        authority = CertificateAuthority("Strandline authority")
        password = secrets.token_urlsafe(_PASSWORD_BYTES)
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._write("ca.pem", authority.own.certificate, mode=0o644)
        self._write("ca.key", authority.own.key)
        node, admin = authority.issue("node", [*dict.fromkeys((*hosts, *HOSTS))]), authority.issue(ADMINISTRATOR)
        self._write("node.pem", node.key + node.certificate)
        self._write("admin.pem", admin.key + admin.certificate)
        self._write("admin.scram", f"{MECHANISM}=[name={ADMINISTRATOR},password={password}]\n")
        client = self._client(password)
        self._write("admin.properties", format_properties(client))
        self._write("librdkafka.properties", format_properties(self._librdkafka(password)))
        self._write("spark.properties", format_properties({f"kafka.{name}": text for name, text in client.items()}))
        # Last, because with it the directory counts as made.
        self._write("server.properties", format_properties(self._server(password, hosts)))

    def client_settings(self) -> dict[str, str]:
        """Return the settings of the administrator, in the words of Kafka."""
        return parse_properties(self.command_config.read_text())

    def librdkafka_settings(self) -> dict[str, str]:
        """Return the settings of the administrator, in the words of librdkafka."""
        return ClientSecurity.of(self.client_settings()).librdkafka()

    def format(self, data: Path) -> None:
        """Make a directory that of a new cluster with the administrator, unless it has a node already."""
        if (data / META_PROPERTIES).exists():
            return
        config = BrokerConfig.load(self.server_properties.read_text(), {"log.dirs": str(data)}, {})
        format_directory(
            config,
            uuid_text(uuid.uuid4()),
            (),
            disk=RealDisk(),
            now_ms=time.time_ns() // 1_000_000,
            new_uuid=uuid.uuid4,
            credentials=[self.administrator()],
        )

    def administrator(self) -> UserScramCredentialRecord:
        """Return the record of the administrator's user, for the metadata of a new cluster."""
        text = (self.directory / "admin.scram").read_text()
        return parse_add_scram(text, lambda: secrets.token_bytes(SALT_BYTES))

    def _server(self, password: str, hosts: Sequence[str]) -> Mapping[str, str]:
        host = hosts[0] if hosts else "localhost"
        return {
            "listeners": f"{LISTENER}://{host}:{_PORT},SSL://{host}:{_CERTIFICATES_PORT}",
            "listener.security.protocol.map": f"{LISTENER}:SASL_SSL,SSL:SSL,CONTROLLER:SASL_SSL",
            "inter.broker.listener.name": LISTENER,
            "sasl.enabled.mechanisms": MECHANISM,
            "sasl.mechanism.inter.broker.protocol": MECHANISM,
            "sasl.mechanism.controller.protocol": MECHANISM,
            "sasl.jaas.config": _jaas(password),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.directory / "node.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.directory / "ca.pem"),
            "listener.name.ssl.ssl.client.auth": "required",
            "listener.name.ssl.ssl.principal.mapping.rules": "RULE:^CN=([^,]+)$/$1/,DEFAULT",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{ADMINISTRATOR}",
        }

    def _client(self, password: str) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.directory / "ca.pem"),
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": _jaas(password),
        }

    def _librdkafka(self, password: str) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.directory / "ca.pem"),
            "sasl.mechanism": MECHANISM,
            "sasl.username": ADMINISTRATOR,
            "sasl.password": password,
        }

    def _write(self, name: str, text: str, *, mode: int = 0o600) -> None:
        descriptor = os.open(self.directory / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with open(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(descriptor, mode)
            file.write(text)


def _jaas(password: str) -> str:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return f'{module} required username="{ADMINISTRATOR}" password="{password}";'

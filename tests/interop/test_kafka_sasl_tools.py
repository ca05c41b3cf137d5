"""Apache Kafka's own tools, in Java, at a listener with SASL: users, tokens, records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.kafka_jars import KafkaUnavailable, kafka_class_path
from tests.clients.kafka_server import archive_classes
from tests.interop.kafka_tools import Tools

import strandline

pytestmark = [pytest.mark.slow, pytest.mark.java]

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
PROPERTIES = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.plaintext.plain.sasl.jaas.config": f'{PLAIN} user_admin="root";',
    "delegation.token.secret.key": "of the cluster",
    "group.initial.rebalance.delay.ms": "0",
}


def settings_of(directory: Path, name: str, mechanism: str, module: str, options: str) -> Path:
    file = directory / f"{name}.properties"
    file.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={module} {options};\n"
    )
    return file


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    try:
        kafka_class_path()
    except KafkaUnavailable as reason:
        pytest.skip(f"no tools of Apache Kafka: {reason}")
    logs = tmp_path_factory.mktemp("sasl-tools")
    with strandline.embedded() as plain:
        archive_classes(plain.bootstrap, logs)
    with strandline.embedded(properties=PROPERTIES) as broker:
        yield Tools(broker.bootstrap, logs)


def test_users_of_kafka_configs_log_in(secured: Tools, tmp_path: Path) -> None:
    admin = settings_of(tmp_path, "admin", "PLAIN", PLAIN, 'username="admin" password="root"')
    user = ("--entity-type", "users", "--entity-name", "alice")
    credential = ("--add-config", "SCRAM-SHA-512=[iterations=8192,password=secret]")
    secured.configs("--command-config", str(admin), "--alter", *user, *credential)
    alice = settings_of(tmp_path, "alice", "SCRAM-SHA-512", SCRAM, 'username="alice" password="secret"')
    made = secured.run("DelegationTokenCommand", "--command-config", alice, "--create", "--max-life-time-period", "-1")
    token_id, hmac = next(line.split()[:2] for line in made.splitlines() if "User:alice" in line)
    by_token = settings_of(
        tmp_path, "token", "SCRAM-SHA-256", SCRAM, f'username="{token_id}" password="{hmac}" tokenauth="true"'
    )
    secured.run("TopicCommand", "--command-config", by_token, "--create", "--topic", "made-by-token")
    assert "made-by-token" in secured.run("TopicCommand", "--command-config", alice, "--list")
    refused = secured.refused("DelegationTokenCommand", "--command-config", by_token, "--describe")
    assert "DelegationTokenAuthorizationException" in refused or "not allowed" in refused

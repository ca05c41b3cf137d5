"""Kafka's own tools over TLS with PEM stores: both sides show a certificate, and the node's is replaced meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.kafka_jars import KafkaUnavailable, kafka_class_path
from tests.authority import Authority
from tests.interop.kafka_tools import Tools
from tests.scenarios.test_tls import cluster

pytestmark = [pytest.mark.slow, pytest.mark.java]


def test_console_clients_and_a_new_certificate(tmp_path: Path) -> None:
    try:
        kafka_class_path()
    except KafkaUnavailable as reason:
        pytest.skip(str(reason))
    authority = Authority(tmp_path)
    settings = authority.settings(authority.issue("client"), security_protocol="SSL")
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    with cluster(tmp_path, authority, 1) as [node]:
        tools = Tools(node.bootstrap, tmp_path)
        tools.run("TopicCommand", "--create", "--topic", "orders", "--command-config", str(file))
        tools.run("ConsoleProducer", "--topic", "orders", "--command-config", str(file), stdin="one\ntwo\n")
        fresh = authority.issue("fresh", subject="/CN=node-1")
        listener = "listener.name.ssl.ssl.keystore.location"
        tools.configs(
            *("--entity-type", "brokers", "--entity-name", "1", "--alter"),
            *("--add-config", f"{listener}={fresh}", "--command-config", str(file)),
        )
        options = ("--topic", "orders", "--from-beginning", "--max-messages", "2", "--timeout-ms", "30000")
        output = tools.run("consumer.ConsoleConsumer", *options, "--command-config", str(file))
        assert output.splitlines() == ["one", "two"]
        assert "listener SSL has a new certificate" in node.stderr_text()

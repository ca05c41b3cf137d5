"""Kafka's own tools that read and change settings, with what they print."""

from __future__ import annotations

import re

import pytest
from tests.clients.client import until
from tests.clients.kafka_python_client import KafkaPythonClient
from tests.interop.kafka_tools import Tools

pytestmark = [pytest.mark.slow, pytest.mark.java]


def test_topic_settings(tools: Tools, topic: str) -> None:
    tools.create(topic)
    one = ("--entity-type", "topics", "--entity-name", topic)
    added = "max.message.bytes=2000,cleanup.policy=[compact,delete]"
    assert f"Completed updating config for topic {topic}." in tools.configs("--alter", *one, "--add-config", added)
    _wait(tools, one, {"cleanup.policy": "compact,delete", "max.message.bytes": "2000"})
    described = tools.configs("--describe", *one)
    assert (
        "max.message.bytes=2000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:max.message.bytes=2000, "
        "DEFAULT_CONFIG:message.max.bytes=1048588}"
    ) in described
    tools.configs("--alter", *one, "--delete-config", "cleanup.policy")
    _wait(tools, one, {"max.message.bytes": "2000"})
    everything = _settings(tools.configs("--describe", *one, "--all"))
    assert everything["cleanup.policy"] == "delete"
    assert len(everything) >= 30


def test_refused_settings_are_explained(tools: Tools, topic: str) -> None:
    tools.create(topic)
    one = ("--alter", "--entity-type", "topics", "--entity-name", topic)
    for change, reason in (
        (("--add-config", "retention.ms=soon"), "retention.ms"),
        (("--add-config", "no.such.setting=1"), "no.such.setting"),
    ):
        with pytest.raises(AssertionError, match="left with status 1") as failure:
            tools.configs(*one, *change)
        assert reason in str(failure.value)


def test_settings_of_one_broker(tools: Tools, broker_id: str) -> None:
    one = ("--entity-type", "brokers", "--entity-name", broker_id)
    said = tools.configs("--alter", *one, "--add-config", "message.max.bytes=3000000")
    try:
        assert f"Completed updating config for broker {broker_id}." in said
        _wait(tools, one, {"message.max.bytes": "3000000"})
    finally:
        tools.configs("--alter", *one, "--delete-config", "message.max.bytes")
    _wait(tools, one, {})
    everything = _settings(tools.configs("--describe", *one, "--all"))
    assert everything["node.id"] == broker_id
    assert everything["message.max.bytes"] == "1048588"


def test_default_settings_of_brokers(tools: Tools, broker_id: str) -> None:
    default = ("--entity-type", "brokers", "--entity-default")
    tools.configs("--alter", *default, "--add-config", "message.max.bytes=2500000")
    try:
        until(
            "the default is told",
            lambda: _settings(tools.configs("--describe", *default)).get("message.max.bytes") == "2500000",
        )
        one = ("--entity-type", "brokers", "--entity-name", broker_id)
        everything = tools.configs("--describe", *one, "--all")
        assert "message.max.bytes=2500000 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG" in everything
    finally:
        tools.configs("--alter", *default, "--delete-config", "message.max.bytes")


def test_levels_of_broker_loggers(tools: Tools, broker_id: str) -> None:
    one = ("--entity-type", "broker-loggers", "--entity-name", broker_id)
    loggers = _settings(tools.configs("--describe", *one))
    assert set(loggers.values()) <= {"TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL", "OFF"}
    assert "root" in loggers
    logger = min(name for name in loggers if name != "root")
    tools.configs("--alter", *one, "--add-config", f"{logger}=WARN")
    assert _settings(tools.configs("--describe", *one))[logger] == "WARN"
    tools.configs("--alter", *one, "--delete-config", logger)


def test_settings_of_groups(tools: Tools, topic: str) -> None:
    """The tool changes them; to describe them it lists all groups first, which is not served yet, so a client does."""
    group, setting = f"{topic}-group", "consumer.session.timeout.ms"
    one = ("--alter", "--entity-type", "groups", "--entity-name", group)
    client = KafkaPythonClient(tools.bootstrap)
    try:
        tools.configs(*one, "--add-config", f"{setting}=50000")
        until("the setting is told", lambda: client.config("group", group)[setting].value == "50000")
        tools.configs(*one, "--delete-config", setting)
        until("the default is told", lambda: client.config("group", group)[setting].value == "45000")
    finally:
        client.close()


def test_settings_of_client_metrics(tools: Tools, topic: str) -> None:
    one = ("--entity-type", "client-metrics", "--entity-name", topic)
    tools.configs("--alter", *one, "--add-config", "interval.ms=60000,metrics=[org.apache.kafka.consumer.]")
    _wait(tools, one, {"interval.ms": "60000", "metrics": "org.apache.kafka.consumer."})
    tools.run("ClientMetricsCommand", "--delete", "--name", topic)
    assert topic not in tools.run("ClientMetricsCommand", "--list").split()


def test_client_metrics_command(tools: Tools, topic: str) -> None:
    change = ("--interval", "30000", "--metrics", "org.apache.kafka.producer.", "--match", "client_id=orders")
    said = tools.run("ClientMetricsCommand", "--alter", "--name", topic, *change)
    assert f"Altered client metrics config for {topic}." in said
    assert topic in tools.run("ClientMetricsCommand", "--list").split()
    described = tools.run("ClientMetricsCommand", "--describe", "--name", topic)
    assert _settings(described) == {
        "interval.ms": "30000",
        "metrics": "org.apache.kafka.producer.",
        "match": "client_id=orders",
    }
    tools.run("ClientMetricsCommand", "--delete", "--name", topic)


def test_features(tools: Tools) -> None:
    """Every feature is told with its range; the level in force can be asked for again, and none outside the range."""
    features = _features(tools)
    level = features["metadata.version"]
    assert "999" in tools.refused("FeatureCommand", "upgrade", "--feature", "metadata.version=999")
    rehearsal = tools.run("FeatureCommand", "upgrade", "--dry-run", "--metadata", level)
    assert "metadata.version can be upgraded" in rehearsal
    assert _features(tools) == features


def test_cluster_tool(tools: Tools, broker_id: str) -> None:
    cluster = "ClusterTool"
    assert re.search(r"Cluster ID: \S{22}$", tools.run_verb(cluster, "cluster-id").strip())
    host, port = tools.bootstrap.split(":")
    (row,) = tools.run_verb(cluster, "list-endpoints").splitlines()[1:]
    assert row.split() == [broker_id, host, port, "null", "unfenced", "broker"]


def _features(tools: Tools) -> dict[str, str]:
    output = tools.run("FeatureCommand", "describe")
    return dict(re.findall(r"Feature: (\S+)\s.*FinalizedVersionLevel: (\S+)", output))


def test_quotas_of_users_clients_and_addresses(tools: Tools) -> None:
    user = ("--entity-type", "users", "--entity-name", "alice")
    entities = {
        "user-principal 'alice'": user,
        "the default user-principal": ("--entity-type", "users", "--entity-default"),
        "user-principal 'alice', client-id 'app'": (*user, "--entity-type", "clients", "--entity-name", "app"),
        "user-principal 'alice', the default client-id": (*user, "--entity-type", "clients", "--entity-default"),
        "client-id 'app'": ("--entity-type", "clients", "--entity-name", "app"),
        "ip '10.9.8.7'": ("--entity-type", "ips", "--entity-name", "10.9.8.7"),
    }
    try:
        for name, entity in entities.items():
            is_ip = name.startswith("ip")
            quota = "connection_creation_rate=50" if is_ip else "producer_byte_rate=1000000,request_percentage=25"
            assert tools.configs("--alter", *entity, "--add-config", quota).startswith("Completed updating")
            shown = tools.configs("--describe", *entity)
            assert f"Quota configs for {name} are" in shown
            for each in quota.split(","):
                key, value = each.split("=")
                assert f"{key}={float(value)}" in shown
        with pytest.raises(AssertionError, match="must be greater than 0"):
            tools.configs("--alter", *user, "--add-config", "producer_byte_rate=0")
    finally:
        for name, entity in entities.items():
            keys = "connection_creation_rate" if name.startswith("ip") else "producer_byte_rate,request_percentage"
            tools.configs("--alter", *entity, "--delete-config", keys)
    assert "Quota configs" not in tools.configs("--describe", "--entity-type", "clients", "--entity-name", "app")


def _wait(tools: Tools, one: tuple[str, ...], wanted: dict[str, str]) -> None:
    """Kafka's brokers learn of a change a moment after it was answered."""
    until(f"{wanted} for {one}", lambda: _settings(tools.configs("--describe", *one)) == wanted)


def _settings(output: str) -> dict[str, str]:
    return dict(re.findall(r"^  (\S+?)=(.*?)(?: sensitive=.*)?$", output, re.MULTILINE))

"""franz-go, KafkaJS and Kafka's Java clients: every mechanism, with and without TLS, and client certificates."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
from bench.kafka_jars import KafkaUnavailable, kafka_class_path
from confluent_kafka import Consumer, TopicPartition
from tests.clients.kafka_server import kafka_tool
from tests.clients.secured.every_mechanism import CELLS, PASSWORD, PASSWORDS, TOPIC, USER, Cell, EveryMechanism
from tests.clients.test_other_languages import BUILD_TIMEOUT_S, RUN_TIMEOUT_S, fetched, run
from tests.interop.kafka_tools import Tools

import strandline
from strandline.config.properties import format_properties

pytestmark = pytest.mark.slow

TIMEOUT_S = 120
MODULES = {
    "PLAIN": "plain.PlainLoginModule",
    "SCRAM-SHA-256": "scram.ScramLoginModule",
    "SCRAM-SHA-512": "scram.ScramLoginModule",
}


def as_json(node: EveryMechanism, root: Path) -> str:
    cells = [
        {
            "name": str(cell),
            "bootstrap": node.bootstrap_of(cell),
            "topic": TOPIC,
            "mechanism": cell.mechanism or "",
            "user": USER,
            "password": PASSWORD,
            "token": node.token(),
            "authority": node.trusted if cell.has_tls else "",
            "certificate": node.certificate if cell.protocol == "SSL" else "",
        }
        for cell in CELLS
    ]
    file = root / "cells.json"
    file.write_text(json.dumps(cells))
    return str(file)


def done(output: str) -> list[str]:
    return [line.removeprefix("SUCCESS ") for line in output.splitlines() if line.startswith("SUCCESS ")]


@pytest.mark.timeout(BUILD_TIMEOUT_S + 2 * RUN_TIMEOUT_S)
def test_franz_go(secured: EveryMechanism, tmp_path: Path) -> None:
    home = fetched("franz-go", "go", ["go", "mod", "download"])
    run(["go", "build", "-o", "smoke", "."], home, BUILD_TIMEOUT_S)
    assert done(run([str(home / "smoke"), as_json(secured, tmp_path)], home, RUN_TIMEOUT_S)) == list(map(str, CELLS))


@pytest.mark.timeout(BUILD_TIMEOUT_S + 2 * RUN_TIMEOUT_S)
def test_kafkajs(secured: EveryMechanism, tmp_path: Path) -> None:
    home = fetched("kafkajs", "npm", ["npm", "install", "--no-audit", "--no-fund", "--silent"])
    program = ["node", str(home / "secured.js"), as_json(secured, tmp_path)]
    assert done(run(program, home, RUN_TIMEOUT_S)) == list(map(str, CELLS))


@pytest.mark.java
@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_java(secured: EveryMechanism, tmp_path: Path, cell: Cell) -> None:
    try:
        kafka_class_path()
    except KafkaUnavailable as reason:
        pytest.skip(str(reason))
    file = tmp_path / "client.properties"
    file.write_text(format_properties(of_java(secured, cell, tmp_path)))
    value = uuid.uuid4().hex
    kafka_tool(
        "org.apache.kafka.tools.ConsoleProducer",
        *("--bootstrap-server", secured.bootstrap_of(cell), "--topic", TOPIC, "--command-config", file),
        *("--command-property", "acks=all"),
        logs=tmp_path,
        stdin=value + "\n",
        options=[f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={(tmp_path / 'token').as_uri()}"],
    )
    assert value in values(secured)


def of_java(node: EveryMechanism, cell: Cell, root: Path) -> dict[str, str]:
    given = {"security.protocol": cell.protocol}
    if cell.has_tls:
        given |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": node.trusted}
    if cell.protocol == "SSL":
        given |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": node.certificate}
    base = "org.apache.kafka.common.security"
    if cell.mechanism in PASSWORDS:
        login = f'username="{USER}" password="{PASSWORD}"'
        given["sasl.jaas.config"] = f"{base}.{MODULES[str(cell.mechanism)]} required {login};"
    elif cell.mechanism is not None:
        (root / "token").write_text(node.token())
        given |= {
            "sasl.jaas.config": f"{base}.oauthbearer.OAuthBearerLoginModule required;",
            "sasl.login.callback.handler.class": f"{base}.oauthbearer.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": (root / "token").as_uri(),
        }
    return given | ({} if cell.mechanism is None else {"sasl.mechanism": cell.mechanism})


def values(node: EveryMechanism) -> list[str]:
    consumer = Consumer(node.client_config | {"group.id": "values", "enable.partition.eof": True})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found = []
    while (message := consumer.poll(TIMEOUT_S)) is not None and message.error() is None:
        found.append((message.value() or b"").decode("latin-1"))
    consumer.close()
    return found


@pytest.mark.java
def test_kafkas_tools_with_the_files_of_security_init(tmp_path: Path) -> None:
    try:
        kafka_class_path()
    except KafkaUnavailable as reason:
        pytest.skip(str(reason))
    with strandline.embedded(secure=True) as log:
        assert log.command_config is not None
        tools, config = Tools(log.bootstrap, tmp_path), ("--command-config", log.command_config)
        tools.run("TopicCommand", "--create", "--topic", "orders", *config)
        tools.run("ConsoleProducer", "--topic", "orders", *config, stdin="paid\n")
        options = ("--topic", "orders", "--from-beginning", "--max-messages", "1", "--timeout-ms", "60000")
        assert tools.run("consumer.ConsoleConsumer", *options, *config).splitlines() == ["paid"]
        tools.configs(
            *("--alter", "--entity-type", "users", "--entity-name", "bob"),
            *("--add-config", "SCRAM-SHA-512=[password=bobs]", *config),
        )
        acl = ("--add", "--allow-principal", "User:bob", "--operation", "Read", "--topic", "orders")
        assert "User:bob" in kafka_tool(
            *("org.apache.kafka.tools.AclCommand", "--bootstrap-server", log.bootstrap, *acl, *config), logs=tmp_path
        )

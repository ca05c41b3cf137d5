"""The Python clients and kcat over TLS: every mechanism that they have, and certificates in place of a login.

`tests/clients/test_sasl.py` and `test_oauthbearer.py` have the same without TLS.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import ssl
import subprocess
import time
import uuid
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AiokafkaTokens
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as Place
from kafka.net.sasl.oauth import AbstractTokenProvider
from tests.clients.secured.every_mechanism import CELLS, PASSWORD, PASSWORDS, TOPIC, USER, Cell, EveryMechanism

TIMEOUT_S = 60
WITH_TLS = [cell for cell in CELLS if cell.has_tls]


@pytest.mark.parametrize("cell", WITH_TLS, ids=str)
def test_confluent(secured: EveryMechanism, cell: Cell) -> None:
    given: dict[str, Any] = dict(secured.librdkafka(cell))
    if cell.mechanism == "OAUTHBEARER":
        given["oauth_cb"] = lambda config: (secured.token(), time.time() + 300)
    value = uuid.uuid4().bytes
    placed: list[TopicPartition] = []
    producer = Producer(given)
    producer.produce(TOPIC, value, on_delivery=lambda _, message: placed.append(place_of(message)))
    assert producer.flush(TIMEOUT_S) == 0
    consumer = Consumer(given | {"group.id": str(cell)})
    consumer.assign(placed)
    message = consumer.poll(TIMEOUT_S)
    assert message is not None
    assert message.value() == value
    consumer.close()


def place_of(message: Any) -> TopicPartition:
    assert message.error() is None
    return TopicPartition(message.topic(), message.partition(), message.offset())


class Tokens(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
    def __init__(self, node: EveryMechanism) -> None:
        self._node = node

    def token(self) -> str:
        return self._node.token()


class AsyncTokens(AiokafkaTokens):
    def __init__(self, node: EveryMechanism) -> None:
        self._node = node

    async def token(self) -> str:
        return self._node.token()


def python_settings(node: EveryMechanism, cell: Cell, tokens: object) -> dict[str, Any]:
    context = ssl.create_default_context(cafile=node.trusted)
    if cell.protocol == "SSL":
        context.load_cert_chain(node.certificate)
    given: dict[str, Any] = {
        "bootstrap_servers": node.bootstrap_of(cell),
        "security_protocol": cell.protocol,
        "ssl_context": context,
    }
    if cell.mechanism is not None:
        given["sasl_mechanism"] = cell.mechanism
    if cell.mechanism in PASSWORDS:
        given |= {"sasl_plain_username": USER, "sasl_plain_password": PASSWORD}
    elif cell.mechanism is not None:
        given["sasl_oauth_token_provider"] = tokens
    return given


@pytest.mark.parametrize("cell", WITH_TLS, ids=str)
def test_kafka_python(secured: EveryMechanism, cell: Cell) -> None:
    given = python_settings(secured, cell, Tokens(secured))
    value = uuid.uuid4().bytes
    producer = KafkaProducer(**given, max_block_ms=TIMEOUT_S * 1000)
    offset = producer.send(TOPIC, value).get(TIMEOUT_S).offset
    producer.close()
    consumer = KafkaConsumer(**given, consumer_timeout_ms=TIMEOUT_S * 1000)
    consumer.assign([Place(TOPIC, 0)])
    consumer.seek(Place(TOPIC, 0), offset)
    assert next(iter(consumer)).value == value
    consumer.close()


@pytest.mark.parametrize("cell", WITH_TLS, ids=str)
def test_aiokafka(secured: EveryMechanism, cell: Cell) -> None:
    value = uuid.uuid4().bytes

    async def talk() -> None:
        given = python_settings(secured, cell, AsyncTokens(secured))
        producer, consumer = AIOKafkaProducer(**given), AIOKafkaConsumer(TOPIC, **given, auto_offset_reset="earliest")
        try:
            await producer.start()
            await consumer.start()
            await producer.send_and_wait(TOPIC, value)
            async with asyncio.timeout(TIMEOUT_S):
                while (await consumer.getone()).value != value:
                    pass
        finally:
            await consumer.stop()
            await producer.stop()

    asyncio.run(talk())


@pytest.mark.parametrize("cell", [cell for cell in CELLS if cell.mechanism != "OAUTHBEARER"], ids=str)
def test_kcat(secured: EveryMechanism, cell: Cell) -> None:
    if shutil.which("kcat") is None:
        pytest.skip("kcat is not on PATH")
    options = [word for name, text in secured.librdkafka(cell).items() for word in ("-X", f"{name}={text}")]
    if str(cell.mechanism).startswith("SCRAM") and librdkafka_of_kcat() < (2, 6, 1):
        # It repeats its own nonce, which Kafka 4 rejects as well (CVE-2024-56128).
        done = subprocess.run(["kcat", "-L", *options], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        assert "invalid credentials with SASL mechanism SCRAM" in done.stderr
        return
    value = uuid.uuid4().hex
    kcat(["kcat", "-P", "-t", TOPIC, *options], value)
    assert value in kcat(["kcat", "-C", "-e", "-q", "-t", TOPIC, "-o", "beginning", *options]).split()


def librdkafka_of_kcat() -> tuple[int, ...]:
    found = re.search(r"librdkafka (\d+)\.(\d+)\.(\d+)", kcat(["kcat", "-V"]))
    assert found is not None
    return tuple(map(int, found.groups()))


def kcat(command: list[str], content: str = "") -> str:
    done = subprocess.run(
        command, input=content, capture_output=True, encoding="latin-1", timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout

"""Stock clients log in with tokens, against a node that checks them with the keys in a file."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AiokafkaTokens
from confluent_kafka import KafkaError, Producer

import strandline

pytest.importorskip("cryptography")

from kafka import KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider
from tests.unit.security.sasl.test_jwt import CLAIMS, KEYS, OTHER, RSA, token  # needs cryptography

TOPIC = "tokens"


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    file = tmp_path_factory.mktemp("keys") / "jwks.json"
    file.write_bytes(KEYS)
    properties = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": file.as_uri(),
        "sasl.oauthbearer.expected.issuer": "https://issuer",
        "sasl.oauthbearer.expected.audience": "strandline",
    }
    with strandline.embedded(properties=properties) as broker:
        yield broker.bootstrap


def fresh(lifetime_s: int = 300, *, is_forged: bool = False) -> str:
    now = int(time.time())
    return token(
        CLAIMS | {"iat": now, "exp": now + lifetime_s, "jti": uuid.uuid4().hex}, key=OTHER if is_forged else RSA
    )


def settings(bootstrap: str) -> dict[str, str]:
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "log_level": "0",
    }


def test_confluent(bootstrap: str) -> None:
    lost: list[KafkaError] = []
    given = {"oauth_cb": lambda config: (fresh(), time.time() + 300), "error_cb": lost.append}
    producer = Producer(settings(bootstrap) | given)
    producer.produce(TOPIC, b"x", on_delivery=lambda error, message: error and lost.append(error))
    assert producer.flush(60) == 0
    assert lost == []


def test_confluent_with_a_forged_token(bootstrap: str) -> None:
    failures: list[KafkaError] = []
    given = {"oauth_cb": lambda config: (fresh(is_forged=True), time.time() + 300), "error_cb": failures.append}
    producer = Producer(settings(bootstrap) | given)
    producer.produce(TOPIC, b"x")
    deadline = time.monotonic() + 60
    while not failures and time.monotonic() < deadline:
        producer.poll(0.1)
    assert "invalid_token" in str(failures[0])
    producer.purge()
    producer.flush(10)


def test_a_session_ends_with_its_token_and_is_renewed(bootstrap: str) -> None:
    # librdkafka gets a new token each two seconds, so that none is about to end when it authenticates again.
    lost: list[KafkaError] = []
    given = {"oauth_cb": lambda config: (fresh(6), time.time() + 2), "error_cb": lost.append}
    producer = Producer(settings(bootstrap) | given)
    ends_at = time.monotonic() + 8
    while time.monotonic() < ends_at:
        producer.produce(TOPIC, b"x", on_delivery=lambda error, message: error and lost.append(error))
        assert producer.flush(60) == 0
        producer.poll(0.02)
    assert lost == []


class Tokens(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
    def token(self) -> str:
        return fresh()


def test_kafka_python(bootstrap: str) -> None:
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Tokens(),
        max_block_ms=30_000,
    )
    assert producer.send(TOPIC, b"x").get(60).topic == TOPIC
    producer.close()


class AsyncTokens(AiokafkaTokens):
    async def token(self) -> str:
        return fresh()


def test_aiokafka(bootstrap: str) -> None:
    async def talk() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=AsyncTokens(),
        )
        try:
            await producer.start()
            await producer.send_and_wait(TOPIC, b"x")
        finally:
            await producer.stop()

    asyncio.run(talk())

"""Stock clients log in with every mechanism that they have, against a node with SASL_PLAINTEXT."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, UserScramCredentialUpsertion
from confluent_kafka.admin import ScramMechanism as Mechanism
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

import strandline

USER, PASSWORD = "alice", "a secret, with =2C and =3D"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="a secret, with =2C and =3D";'
PROPERTIES = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    "listener.name.plaintext.plain.sasl.jaas.config": JAAS,
    "group.initial.rebalance.delay.ms": "0",
}
RoundTrip = Callable[[str, str, str, str], bytes | None]


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with strandline.embedded(properties=PROPERTIES) as broker:
        add_user(broker.bootstrap)
        yield broker.bootstrap


def add_user(bootstrap: str) -> None:
    """Write the SCRAM credentials of the user that PLAIN knows from the settings."""
    admin = AdminClient(librdkafka(bootstrap, "PLAIN", PASSWORD))
    for mechanism in (Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512):
        credential = UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
        admin.alter_user_scram_credentials([credential])[USER].result()


def librdkafka(bootstrap: str, mechanism: str, password: str) -> dict[str, str]:
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": password,
        "log_level": "0",
    }


def by_confluent(bootstrap: str, mechanism: str, password: str, topic: str) -> bytes | None:
    given = librdkafka(bootstrap, mechanism, password)
    failures: list[KafkaError] = []
    producer = Producer(given | {"message.timeout.ms": "20000", "error_cb": failures.append})
    producer.produce(topic, b"by confluent")
    while len(producer):
        producer.poll(0.1)
        if any(each.code() == KafkaError._AUTHENTICATION for each in failures):
            raise KafkaException(failures[0])
    consumer = Consumer(given | {"group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            consumer.close()
            return message.value()
    return None


def by_kafka_python(bootstrap: str, mechanism: str, password: str, topic: str) -> bytes | None:
    given = {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": password,
    }
    producer = KafkaProducer(**given, max_block_ms=10_000)
    producer.send(topic, b"by kafka-python").get(20)
    producer.close()
    consumer = KafkaConsumer(**given, consumer_timeout_ms=60_000)
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    record = next(iter(consumer))
    consumer.close()
    return bytes(record.value)


def by_aiokafka(bootstrap: str, mechanism: str, password: str, topic: str) -> bytes | None:
    given = {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": password,
    }

    async def talk() -> bytes | None:
        producer = AIOKafkaProducer(**given)
        try:
            await producer.start()
            await producer.send_and_wait(topic, b"by aiokafka")
        finally:
            await producer.stop()
        consumer = AIOKafkaConsumer(topic, **given, auto_offset_reset="earliest")
        try:
            await consumer.start()
            record = await asyncio.wait_for(consumer.getone(), 60)
        finally:
            await consumer.stop()
        return record.value

    return asyncio.run(talk())


CLIENTS = pytest.mark.parametrize("round_trip", [by_confluent, by_kafka_python, by_aiokafka])


@CLIENTS
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_record_goes_round(bootstrap: str, mechanism: str, round_trip: RoundTrip) -> None:
    topic = f"sasl-{uuid.uuid4().hex[:8]}"
    value = round_trip(bootstrap, mechanism, PASSWORD, topic)
    assert value is not None
    assert value.startswith(b"by ")


# kafka-python leaves its sockets open when a login fails.
@pytest.mark.parametrize("round_trip", [by_confluent, by_aiokafka])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_told(bootstrap: str, mechanism: str, round_trip: RoundTrip) -> None:
    with pytest.raises(Exception, match=r"(?i)authentic|invalid|connect"):
        round_trip(bootstrap, mechanism, "wrong", "never")


def test_plain_passwords_are_checked_against_scram_credentials() -> None:
    with strandline.embedded(properties=PROPERTIES) as broker:
        add_user(broker.bootstrap)
        broker.stop()
        broker.properties |= {"strandline.sasl.plain.credentials": "scram"}
        del broker.properties["listener.name.plaintext.plain.sasl.jaas.config"]
        broker.start()
        assert by_confluent(broker.bootstrap, "PLAIN", PASSWORD, "checked") == b"by confluent"
        with pytest.raises(KafkaException):
            by_confluent(broker.bootstrap, "PLAIN", "wrong", "never")


def test_a_client_authenticates_again_while_it_produces() -> None:
    """librdkafka authenticates again before the end of its session of a second, so that no request is lost."""
    with strandline.embedded(properties=PROPERTIES | {"connections.max.reauth.ms": "1500"}) as broker:
        lost: list[KafkaError] = []
        producer = Producer(librdkafka(broker.bootstrap, "PLAIN", PASSWORD) | {"error_cb": lost.append, "retries": "0"})
        sent, ends_at = 0, time.monotonic() + 5
        while time.monotonic() < ends_at:
            producer.produce(
                "steady", str(sent).encode(), on_delivery=lambda error, message: error and lost.append(error)
            )
            assert producer.flush(60) == 0
            sent += 1
            # The rate means nothing; it must only be more than once in a session.
            producer.poll(0.02)
        assert lost == []
        assert sent > 3

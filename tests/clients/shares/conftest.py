"""The brokers of the table of share groups: Strandline, and Apache Kafka with the same settings."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from bench.brokers import start_kafka
from bench.kafka_jars import KafkaUnavailable, kafka_class_path
from tests.clients.broker import BROKER_PROPERTIES, existing_bootstrap
from tests.clients.shares.stories import SHARE_PROPERTIES

from strandline.testing import embedded


@pytest.fixture(scope="session")
def bootstrap() -> Iterator[str]:
    """Strandline, or the cluster that STRANDLINE_TEST_BOOTSTRAP names, which should have SHARE_PROPERTIES."""
    existing = existing_bootstrap()
    if existing:
        yield existing
        return
    with embedded(properties=BROKER_PROPERTIES | SHARE_PROPERTIES) as broker:
        yield broker.bootstrap


@pytest.fixture(scope="session")
def kafka_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    try:
        kafka_class_path()
    except KafkaUnavailable as reason:
        pytest.skip(f"no Apache Kafka: {reason}")
    broker = start_kafka(tmp_path_factory.mktemp("kafka") / "node", settings=SHARE_PROPERTIES)
    try:
        yield broker.bootstrap
    finally:
        broker.discard()

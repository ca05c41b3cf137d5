"""The brokers of the table of share groups: Strandline, and Apache Kafka with the same settings."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.clients.broker import BROKER_PROPERTIES, existing_bootstrap
from tests.clients.kafka_server import running_kafka
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
    with running_kafka(tmp_path_factory, SHARE_PROPERTIES) as broker:
        yield broker.bootstrap

"""The broker of the group tests: sessions may be short, and nothing waits before the first rebalance."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.clients.broker import BROKER_PROPERTIES, existing_bootstrap

from strandline.testing import embedded

GROUP_PROPERTIES = BROKER_PROPERTIES | {
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
}


@pytest.fixture(scope="session")
def bootstrap() -> Iterator[str]:
    """Strandline, or the cluster that STRANDLINE_TEST_BOOTSTRAP names, which should have the properties above."""
    existing = existing_bootstrap()
    if existing:
        yield existing
        return
    with embedded(properties=GROUP_PROPERTIES) as broker:
        yield broker.bootstrap

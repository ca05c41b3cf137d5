"""The broker that the clients meet: Strandline, or the cluster named by STRANDLINE_TEST_BOOTSTRAP.

Run against Apache Kafka, the suite shows that it demands what Kafka does. That cluster should have
`group.initial.rebalance.delay.ms=0`, or every group waits three seconds.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator

import pytest

BROKER_PROPERTIES = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "4"}


@pytest.fixture(scope="session")
def bootstrap() -> Iterator[str]:
    existing = os.environ.get("STRANDLINE_TEST_BOOTSTRAP")
    if existing:
        yield existing
        return
    from strandline.testing import embedded

    with embedded(properties=BROKER_PROPERTIES) as broker:
        yield broker.bootstrap


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name of its own for each test: the broker is shared."""
    return re.sub(r"[^a-z0-9-]+", "-", request.node.name.lower()).strip("-") + "-" + uuid.uuid4().hex[:8]

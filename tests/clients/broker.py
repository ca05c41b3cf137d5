"""The broker that tests of clients meet: Strandline, or the cluster that STRANDLINE_TEST_BOOTSTRAP names.

Run against Apache Kafka, these tests show that they demand what Kafka does. That cluster should have
`group.initial.rebalance.delay.ms=0`, or every group waits three seconds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

# With a place to show them, a node also takes the metrics that clients push, and Java's do so unasked.
BROKER_PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "http.listener": "127.0.0.1:0",
}


def existing_bootstrap() -> str | None:
    return os.environ.get("STRANDLINE_TEST_BOOTSTRAP")


@contextmanager
def shared_broker(**settings: str) -> Iterator[str]:
    """The bootstrap address of a running broker; settings with underscores for dots."""
    existing = existing_bootstrap()
    if existing:
        yield existing
        return
    from strandline.testing import embedded

    given = {name.replace("_", "."): value for name, value in settings.items()}
    with embedded(properties=BROKER_PROPERTIES | given) as broker:
        yield broker.bootstrap

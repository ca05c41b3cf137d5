"""The broker of the tables of transactions looks often for those that have timed out."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.clients.broker import BROKER_PROPERTIES, existing_bootstrap

from strandline.testing import embedded

TRANSACTION_PROPERTIES = BROKER_PROPERTIES | {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "transaction.state.log.num.partitions": "4",
}


@pytest.fixture(scope="session")
def bootstrap() -> Iterator[str]:
    """Strandline, or the cluster that STRANDLINE_TEST_BOOTSTRAP names, which should have the properties above."""
    existing = existing_bootstrap()
    if existing:
        yield existing
        return
    with embedded(properties=TRANSACTION_PROPERTIES) as broker:
        yield broker.bootstrap

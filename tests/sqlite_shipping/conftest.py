"""The broker of the tests of shipping."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.clients.broker import shared_broker


@pytest.fixture(scope="session")
def bootstrap() -> Iterator[str]:
    with shared_broker(transaction_state_log_num_partitions="4") as address:
        yield address

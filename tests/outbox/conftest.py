"""A database and a broker for tests of outbox and inbox."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.connect.postgres_server import postgres

import strandline
from strandline import EmbeddedBroker

__all__ = ["broker", "postgres"]


@pytest.fixture(scope="session")
def broker() -> Iterator[EmbeddedBroker]:
    """One broker for all tests; each test has topics of its own."""
    with strandline.embedded() as log:
        yield log

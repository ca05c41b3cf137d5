"""Fixtures for the client suite."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator

import pytest
from tests.clients.broker import shared_broker


@pytest.fixture(scope="session")
def bootstrap() -> Iterator[str]:
    # Some records are of years ago, and would be deleted when the broker first looks.
    with shared_broker(log_retention_ms="-1") as bootstrap:
        yield bootstrap


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name of its own for each test: the broker is shared."""
    return re.sub(r"[^a-z0-9-]+", "-", request.node.name.lower()).strip("-") + "-" + uuid.uuid4().hex[:8]

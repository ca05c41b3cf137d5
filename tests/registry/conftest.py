"""A broker and a registry that all tests here share; each uses subjects of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.clients.broker import shared_broker
from tests.registry.running_registry import RunningRegistry, running_registry


@pytest.fixture(scope="session")
def registry_bootstrap() -> Iterator[str]:
    with shared_broker() as bootstrap:
        yield bootstrap


@pytest.fixture(scope="session")
def registry(registry_bootstrap: str) -> Iterator[RunningRegistry]:
    with running_registry(registry_bootstrap) as running:
        yield running

"""Fixtures for users' tests: a real broker per test or session, one with a virtual clock, or a cluster of three.

pytest loads this module in every run of an environment where Strandline is installed, so it imports next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from strandline.local.embedded_broker import EmbeddedBroker
    from strandline.local.embedded_cluster import EmbeddedCluster
    from strandline.local.virtual_clock import VirtualClockBroker


@pytest.fixture(scope="session")
def strandline_properties() -> Mapping[str, str]:
    """Broker properties for the fixtures below; override it in a `conftest.py` to set your own."""
    return {}


@pytest.fixture
def strandline_broker(strandline_properties: Mapping[str, str]) -> Iterator[EmbeddedBroker]:
    """A fresh broker for one test."""
    from strandline.local.embedded import embedded

    with embedded(properties=strandline_properties) as broker:
        yield broker


@pytest.fixture(scope="session")
def strandline_session_broker(strandline_properties: Mapping[str, str]) -> Iterator[EmbeddedBroker]:
    """One broker for all tests of the session; let each test use topics of its own."""
    from strandline.local.embedded import embedded

    with embedded(properties=strandline_properties) as broker:
        yield broker


@pytest.fixture
def strandline_virtual_broker(strandline_properties: Mapping[str, str]) -> Iterator[VirtualClockBroker]:
    """A fresh broker for one test, whose time moves only by `strandline_virtual_broker.clock.advance`."""
    from strandline.local.embedded import embedded

    with embedded(clock="virtual", properties=strandline_properties) as broker:
        yield broker


@pytest.fixture
def strandline_cluster(strandline_properties: Mapping[str, str]) -> Iterator[EmbeddedCluster]:
    """A fresh cluster of three brokers for one test, with `kill`, `pause` and `partition`."""
    from strandline.local.embedded import embedded

    with embedded(nodes=3, properties=strandline_properties) as cluster:
        yield cluster

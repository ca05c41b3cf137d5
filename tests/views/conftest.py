"""The session and the broker that all tests with Spark share, a registry of its own pipelines, and a desk."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.spark_fixtures import broker, spark, topic

from strandline.local.embedded_broker import EmbeddedBroker
from strandline.pipelines.versions.version_store import Registry
from strandline.views import Desk

__all__ = ["broker", "desk", "registry", "shop", "spark", "topic"]


@pytest.fixture
def registry(broker: EmbeddedBroker) -> Iterator[Registry]:
    with Registry(broker.bootstrap) as registry:
        yield registry


@pytest.fixture
def desk(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[Desk]:
    with Desk(broker.bootstrap, directory=tmp_path) as desk:
        yield desk


@pytest.fixture
def shop() -> str:
    return f"shop_{uuid.uuid4().hex[:8]}"

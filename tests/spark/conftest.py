"""One Spark session and one broker for all tests with Spark: a session takes ten seconds to start, a query one."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import strandline.spark
from strandline.testing import embedded
from strandline.testing.embedded_broker import EmbeddedBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BROKER_PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session of the whole run, as a user gets it, on two cores."""
    home = tmp_path_factory.mktemp("spark")
    session = strandline.spark.session(
        "tests",
        master="local[2]",
        spark_sql_shuffle_partitions=2,
        spark_sql_warehouse_dir=str(home / "warehouse"),
        spark_local_dir=str(home / "local"),
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker() -> Iterator[EmbeddedBroker]:
    """One broker for the whole run: each test uses topics of its own."""
    with embedded(properties=BROKER_PROPERTIES) as broker:
        yield broker


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test has."""
    return re.sub(r"[^a-z0-9-]+", "-", request.node.name.lower()).strip("-")[:60] + "-" + uuid.uuid4().hex[:8]

"""One Spark session and one broker for all tests with Spark: a session takes ten seconds to start, a query one.

The conftest of each directory with such tests imports these by name. pytest keeps a fixture for each name and place it
was imported at, so what is shared by the whole run is kept here and ended with it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from strandline.local.embedded_broker import EmbeddedBroker
from strandline.testing import embedded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BROKER_PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    # Some tests write records of years ago, which would be deleted when the broker first looks.
    "log.retention.ms": "-1",
}

# Many short queries: code that Java compiles for the long run would not live to pay for it. Children inherit it.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

_kept = contextlib.ExitStack()


@functools.cache
def _session() -> SparkSession:
    import strandline.spark

    home = Path(
        _kept.enter_context(tempfile.TemporaryDirectory(prefix="strandline-spark-", ignore_cleanup_errors=True))
    )
    session = strandline.spark.session(
        "tests",
        master="local[2]",
        spark_sql_shuffle_partitions=2,
        spark_sql_warehouse_dir=str(home / "warehouse"),
        spark_local_dir=str(home / "local"),
    )
    _kept.callback(session.stop)
    return session


@functools.cache
def _broker() -> EmbeddedBroker:
    return _kept.enter_context(embedded(properties=BROKER_PROPERTIES))


@pytest.fixture(scope="session")
def spark(pytestconfig: pytest.Config) -> SparkSession:
    """The session of the whole run, as a user gets it, on two cores."""
    pytestconfig.add_cleanup(_kept.close)
    return _session()


@pytest.fixture(scope="session")
def broker(pytestconfig: pytest.Config) -> EmbeddedBroker:
    """One broker for the whole run: each test uses topics of its own."""
    pytestconfig.add_cleanup(_kept.close)
    return _broker()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test has."""
    return re.sub(r"[^a-z0-9-]+", "-", request.node.name.lower()).strip("-")[:60] + "-" + uuid.uuid4().hex[:8]


@pytest.fixture
def lonely() -> Iterator[EmbeddedBroker]:
    """A broker that no other test has written to."""
    with embedded(properties=BROKER_PROPERTIES) as broker:
        yield broker

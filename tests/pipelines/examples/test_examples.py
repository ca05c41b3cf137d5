"""Every example, undisturbed: what it writes is held against plain Python, record by record."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.pipelines.examples import references
from tests.pipelines.examples.checks import CHECKS, EXAMPLES, Parts
from tests.pipelines.examples.running import run_once, write_and_run_changing
from tests.spark_fixtures import BROKER_PROPERTIES

from strandline.testing import embedded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


ALWAYS = ("windows.py", "taxes.py", "large_orders.sql")
"""Windows and sessions, a table, and SQL. The other examples are marked as slow."""


class Shop(NamedTuple):
    bootstrap: str
    checkpoints: Path
    parts: Parts


@pytest.fixture(scope="module")
def shop(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A log with half a day in it. Examples have topics of fixed names, so it is a log of their own."""
    checkpoints = tmp_path_factory.mktemp("checkpoints")
    with embedded(properties=BROKER_PROPERTIES) as node:
        yield Shop(node.bootstrap, checkpoints, write_and_run_changing(spark, node.bootstrap, checkpoints))


@pytest.mark.parametrize(
    "example", [each if each in ALWAYS else pytest.param(each, marks=pytest.mark.slow) for each in CHECKS]
)
def test_an_example_writes_what_plain_python_says(example: str, spark: SparkSession, shop: Shop) -> None:
    progress = run_once(spark, shop.bootstrap, example, shop.checkpoints)
    CHECKS[example](shop.bootstrap, shop.parts)
    if example == "windows.py":
        late = {name: each.late_rows for name, each in progress.items()}
        assert late == late_rows(shop.parts)


def late_rows(parts: Parts) -> dict[str, int]:
    """Spark counts what is late after it has put rows of one window, or of one session, together."""
    records = [record for part in parts for record in part]
    quarter, half = timedelta(minutes=15), timedelta(minutes=30)
    return {
        "sales_by_quarter_hour": references.windows(records, quarter, quarter, "country")[1],
        "sales_last_half_hour": references.windows(records, half, quarter)[1],
        "visits": len(references.divided(references.rows_of(records, "clicks"), "clicks")[1]),
    }


def test_every_example_is_checked() -> None:
    files = [path for path in EXAMPLES.iterdir() if path.is_file()]
    pipelines = {path.name for path in files if path.suffix == ".sql" or "pipeline." in path.read_text()}
    assert pipelines - {"feed.py", "README.md"} == set(CHECKS)

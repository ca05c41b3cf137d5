"""What `pipeline run` shows until the first batch, and what it must not say before it knows."""

from __future__ import annotations

import io
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from pyspark.sql.streaming.query import StreamingQuery

from strandline.cli.pipeline import display as pipeline_display
from strandline.cli.pipeline.display import RunDisplay
from strandline.pipelines.run.progress import RunProgress, taken
from strandline.pipelines.run.stages import Stages
from strandline.pipelines.versions.state import QueryProgress


@dataclass
class FakeQuery:
    """What a run asks of a query of Spark's."""

    message: str
    recentProgress: list[Mapping[str, Any]] = field(default_factory=list)
    isActive: bool = True
    runId: str = "r"

    @property
    def status(self) -> dict[str, Any]:
        return {"message": self.message}

    def exception(self) -> None:
        return None


def report(batch_id: int, rows: int, written: int = -1) -> Mapping[str, Any]:
    return {
        "batchId": batch_id,
        "numInputRows": rows,
        "processedRowsPerSecond": float(rows),
        "durationMs": {"addBatch": 1},
        "sources": [],
        "sink": {"description": "", "numOutputRows": written},
    }


@pytest.fixture
def said() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def display(said: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> RunDisplay:
    monkeypatch.setattr(pipeline_display, "QUIET_S", 0.0)
    return RunDisplay(Stages(said))


def followed(display: RunDisplay, query: FakeQuery) -> RunProgress:
    progress = RunProgress(display, {})
    progress.follow(cast(StreamingQuery, query), "large")
    return progress


def test_a_first_batch_whose_report_is_late_is_not_taken_for_nothing(display: RunDisplay, said: io.StringIO) -> None:
    """Spark tells of a batch from another thread, on a busy machine seconds after the query waits for the next."""
    query = FakeQuery("Initializing sources")
    progress = followed(display, query)
    progress.look()
    assert said.getvalue() == ""
    query.message, query.recentProgress = "Waiting for next trigger", [report(0, 12)]
    progress.look()
    assert "large: read 12 rows, " in said.getvalue()
    assert "nothing to read" not in said.getvalue()


def test_a_query_that_waits_without_a_batch_has_nothing_to_read_yet(display: RunDisplay, said: io.StringIO) -> None:
    query = FakeQuery("Waiting for data to arrive")
    progress = followed(display, query)
    progress.look()
    assert said.getvalue().split()[:2] == ["first", "batch"]
    assert said.getvalue().endswith("nothing to read yet\n")
    query.recentProgress = [report(0, 3)]
    progress.look()
    assert "large: read 3 rows, " in said.getvalue().splitlines()[1]


def test_a_run_that_is_stopped_before_its_first_batch_does_not_say_that_there_was_nothing(
    display: RunDisplay, said: io.StringIO
) -> None:
    query = FakeQuery("Processing new data")
    progress = followed(display, query)
    progress.look()
    query.isActive = False
    progress.look()
    display.close(progress.views)
    assert said.getvalue().startswith("large: ended after 0 batches, 0 rows, ")
    assert "first batch" not in said.getvalue()


def test_rows_read_and_rows_written_are_told_apart(display: RunDisplay, said: io.StringIO) -> None:
    """A query of dead letters reads every record, and writes the few that do not fit."""
    query = FakeQuery("Waiting for next trigger", [report(0, 4, 1)])
    progress = followed(display, query)
    progress.look()
    assert "large: read 4 rows, wrote 1, " in said.getvalue()
    query.recentProgress = [report(1, 6, 0)]
    query.isActive = False
    progress.look()
    assert progress.views[0].line(time.monotonic()).endswith(", 1 row written")
    assert (progress.progress()["large"].rows, progress.progress()["large"].written_rows) == (10, 1)


@pytest.mark.parametrize(
    ("before", "written", "expected"),
    [
        (QueryProgress(), 2, 2),
        (QueryProgress(batch_id=3, rows=9, written_rows=5), 2, 7),
        (QueryProgress(), -1, None),
        (QueryProgress(batch_id=3, rows=9, written_rows=None), 2, None),
    ],
    ids=["first batch", "goes on", "a table's sink does not count", "an older release ran it"],
)
def test_rows_written_are_not_guessed(before: QueryProgress, written: int, expected: int | None) -> None:
    assert taken(before, report(4, 4, written)).written_rows == expected

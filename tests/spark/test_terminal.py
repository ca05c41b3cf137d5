"""What a terminal shows of a query, and what waiting for it brings."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import subprocess
import sys
import termios
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from strandline.spark import SparkFailed, follow
from strandline.spark.display import LineDisplay, LiveDisplay
from strandline.spark.query_view import QueryView, lag_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def progress(batch: int, rows: int, *, end: Any = None, latest: Any = None, ran: bool = True) -> dict[str, Any]:
    return {
        "batchId": batch,
        "numInputRows": rows,
        "processedRowsPerSecond": rows / 2,
        "durationMs": {"addBatch": 2000, "triggerExecution": 2000} if ran else {"latestOffset": 1},
        "sources": [{"endOffset": end, "latestOffset": latest}],
    }


def test_a_query_in_one_line() -> None:
    view = QueryView("orders", began_s=100.0)
    assert view.line(104.0) == "orders: starting, 4.0 s"
    assert view.take(progress(0, 4000, end='{"t":{"0":4000}}', latest='{"t":{"0":9000,"1":3000}}'))
    assert view.line(104.0) == "orders: batch 0, 4,000 rows, 2,000 rows/s, 8,000 behind, about 4.0 s"
    assert view.take(progress(1, 8000, end='{"t":{"0":9000,"1":3000}}', latest='{"t":{"0":9000,"1":3000}}'))
    assert view.line(104.0) == "orders: batch 1, 12,000 rows, 4,000 rows/s, caught up"
    view.ended_s = 700.0
    assert view.line(900.0) == "orders: ended after 2 batches, 12,000 rows, 10 min, caught up"
    view.failed, view.batches = True, 1
    assert view.line(900.0) == "orders: failed after 1 batch, 12,000 rows, 10 min, caught up"


def test_a_report_that_comes_late_does_not_say_how_far_it_is() -> None:
    """Spark tells of batches from a thread of its own, when others may have been asked for already."""
    view = QueryView("totals", 0.0)
    first = progress(0, 4, end='{"t":{"0":4}}', latest='{"t":{"0":9}}')
    assert view.take(progress(1, 5, end='{"t":{"0":9}}', latest='{"t":{"0":9}}'))
    assert not view.take(first)
    assert view.lag == 0
    assert not view.take(progress(2, 0, end='{"t":{"0":9}}', latest='{"t":{"0":12}}', ran=False))
    assert view.lag == 3


def test_a_batch_counts_once() -> None:
    """An idle query reports the batch it will run next, and what was read up at the start may be reported again."""
    view = QueryView("orders", began_s=0.0)
    assert not view.take(progress(0, 0, ran=False))
    assert view.take(progress(0, 10))
    assert not view.take(progress(0, 10))
    assert not view.take(progress(1, 0, ran=False))
    assert view.take(progress(1, 10))
    assert (view.batches, view.rows) == (2, 20)


@pytest.mark.parametrize(
    ("end", "latest", "lag"),
    [
        ('{"t":{"0":5}}', '{"t":{"0":9}}', 4),
        ({"t": {"0": 5}}, {"t": {"0": 9}}, 4),
        ('{"t":{"0":9}}', '{"t":{"0":5}}', 0),
        ('{"t":{"0":5},"#topic-ids":{"t":"x"}}', '{"t":{"0":9},"#topic-ids":{"t":"x"}}', 4),
        ("14", "20", None),
        (None, None, None),
        ('{"t":{"0":5}}', None, None),
        ("not json", '{"t":{"0":9}}', None),
        ('{"t":{"0":"x"}}', '{"t":{"0":9}}', None),
    ],
)
def test_lag_is_known_where_offsets_are_those_of_a_log(end: Any, latest: Any, lag: int | None) -> None:
    assert lag_of(progress(0, 1, end=end, latest=latest)) == lag


def test_lines_come_once_a_second_at_most_and_the_last_word_always() -> None:
    stream, view = io.StringIO(), QueryView("orders", began_s=0.0)
    display = LineDisplay(stream)
    for batch in range(5):
        view.take(progress(batch, 10))
        display.show([view], view)
    display.show([view], None)
    display.close([view])
    assert stream.getvalue().splitlines() == [
        "orders: batch 0, 10 rows, 5 rows/s",
        "orders: batch 4, 50 rows, 5 rows/s",
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_the_last_word_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal, view = Terminal(), QueryView("orders [bold]", began_s=0.0)
    display = LiveDisplay(terminal)
    view.take(progress(7, 10))
    display.show([view], view)
    view.ended_s = 3.0
    display.close([view])
    assert terminal.getvalue().rstrip("\x1b[?25h\n\r").endswith("orders [bold]: ended after 1 batch, 10 rows, 3.0 s")


def rates(spark: SparkSession, checkpoint: Path, column: str) -> Any:
    frame = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load().selectExpr(column)
    return frame.writeStream.format("noop").queryName("rates").option("checkpointLocation", str(checkpoint))


def test_following_a_query_to_its_end(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "in"
    spark.range(20).repartition(2).write.json(str(source))
    frame = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(str(source))
    writer = frame.writeStream.format("noop").queryName("files").option("checkpointLocation", str(tmp_path / "c"))
    query = writer.trigger(availableNow=True).start()
    follow(query, lines=True)
    shown = capsys.readouterr().err.splitlines()
    assert shown[-1].startswith("files: ended after 2 batches, 20 rows, "), shown
    follow(query, lines=True)
    assert capsys.readouterr().err.startswith("files: ended after 2 batches, 20 rows, ")
    follow(query)
    assert capsys.readouterr().err == ""


def test_following_a_query_that_fails(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SparkFailed, match=r"^Division by zero"):
        follow(rates(spark, tmp_path, "1 / (value - 7)").start(), lines=True)
    shown = capsys.readouterr().err.splitlines()
    assert shown[-1].startswith("rates: failed after 1 batch, 5 rows"), shown


def test_control_c_stops_the_query(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    query = rates(spark, tmp_path, "value").start()
    waited = threading.Event.wait

    def interrupted(event: threading.Event, timeout: float | None = None) -> bool:
        is_here = threading.current_thread() is threading.main_thread()
        if is_here and timeout == 1.0 and query.lastProgress is not None:
            raise KeyboardInterrupt
        return waited(event, timeout)

    monkeypatch.setattr(threading.Event, "wait", interrupted)
    follow(query, lines=True)
    assert not query.isActive
    assert "rates: ended after " in capsys.readouterr().err


PROGRAM = """
import sys, strandline.spark
spark = strandline.spark.session(master="local[1]")
frame = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
writer = frame.writeStream.format("noop").queryName("rates").option("checkpointLocation", sys.argv[1])
strandline.spark.follow(writer.trigger(processingTime="1 second").start())
print("went on", spark.range(3).count())
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_control_c_on_a_real_terminal(tmp_path: Path) -> None:
    """The key interrupts every process of the terminal: Spark's must live on, or nothing could be stopped in peace."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        start_new_session=True,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "100", "TMPDIR": str(tmp_path)},
        # Its session's own terminal, without which the key would interrupt nobody.
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(follower)
    shown = ""
    # Linux answers EIO, not an empty read, when the last process has closed its end of a terminal.
    while piece := _read_or_end(leader):
        interrupted = "rows/s" in shown
        shown += piece
        if "rows/s" in shown and not interrupted:
            os.write(leader, b"\x03")
    os.close(leader)
    assert process.wait(60) == 0, shown
    assert "rates: ended after " in shown
    assert "went on 3" in shown
    assert "Traceback" not in shown


def _read_or_end(descriptor: int) -> str:
    try:
        return os.read(descriptor, 65536).decode()
    except OSError:
        return ""

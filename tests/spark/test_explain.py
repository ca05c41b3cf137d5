"""Whatever Spark raises comes out as one sentence: ours where we failed, Spark's without its wrapping elsewhere."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark import failing_source
from tests.spark.failing_source import FailingSource

from strandline.spark import SparkFailed, await_end, explain_failure, plainly, spark_log
from strandline.spark.error_translation import SENTENCE_LENGTH_MAX
from strandline.spark.spark_log import SparkLog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

WORDS = "there is no topic 'x': create it with `strandline topic create x`"


class Raised(Exception):
    """An error of Spark's, by its words alone."""


def of_spark(text: str) -> str:
    return explain_failure(Raised(text))


@pytest.fixture(scope="module")
def failing(spark: SparkSession) -> Iterator[SparkSession]:
    from pyspark import cloudpickle

    # Spark's Python processes cannot import the tests.
    cloudpickle.register_pickle_by_value(failing_source)
    spark.dataSource.register(FailingSource)
    yield spark
    cloudpickle.unregister_pickle_by_value(failing_source)


def options(at: str) -> dict[str, str]:
    return {"at": at, "words": WORDS}


def stream(spark: SparkSession, checkpoint: Path, *, read_at: str = "", write_at: str = "") -> StreamingQuery:
    frame = spark.readStream.format("failing").options(**options(read_at)).load()
    writer = frame.writeStream.format("failing").options(**options(write_at))
    return writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()


@pytest.mark.parametrize("at", ["schema", pytest.param("reader", marks=pytest.mark.slow), "partitions", "read"])
def test_what_the_source_says_in_a_batch(failing: SparkSession, at: str) -> None:
    with pytest.raises(SparkFailed) as failed, plainly():
        failing.read.format("failing").options(**options(at)).load().collect()
    assert str(failed.value) == WORDS


@pytest.mark.parametrize("at", ["writer", "write", "commit"])
def test_what_the_sink_says_in_a_batch(failing: SparkSession, at: str) -> None:
    rows = failing.range(2).selectExpr("cast(id as int) as number")
    with pytest.raises(SparkFailed) as failed, plainly():
        rows.write.format("failing").mode("append").options(**options(at)).save()
    assert str(failed.value) == WORDS


@pytest.mark.parametrize("at", ["reader", "latestOffset", "read"])
def test_what_the_source_says_in_a_stream(failing: SparkSession, tmp_path: Path, at: str) -> None:
    with pytest.raises(SparkFailed) as failed:
        await_end(stream(failing, tmp_path, read_at=at), timeout_s=120)
    assert str(failed.value) == WORDS


@pytest.mark.parametrize("at", ["writer", "write"])
def test_what_the_sink_says_in_a_stream(failing: SparkSession, tmp_path: Path, at: str) -> None:
    with pytest.raises(SparkFailed) as failed:
        await_end(stream(failing, tmp_path, write_at=at), timeout_s=120)
    assert str(failed.value) == WORDS


def test_verbose_leaves_the_error_as_it_was_and_the_checkpoint_stays_usable(
    failing: SparkSession, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    with pytest.raises(StreamingQueryException):
        await_end(stream(failing, tmp_path, write_at="commit"), timeout_s=120, verbose=True)
    assert await_end(stream(failing, tmp_path), timeout_s=120)


def test_the_sentence_is_all_that_is_printed_but_the_cause_is_kept(failing: SparkSession) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(SparkFailed) as failed, plainly():
        failing.read.format("failing").options(**options("read")).load().collect()
    assert failed.value.__suppress_context__
    assert isinstance(failed.value.__context__, PySparkException)


def code_of_a_user(spark: SparkSession) -> DataFrame:
    from pyspark.sql.functions import udf

    return spark.range(1).select(udf(lambda number: 1 // number, "int")("id"))


@pytest.mark.parametrize(
    ("do", "words"),
    [
        (
            lambda spark: code_of_a_user(spark).collect(),
            ["Python code in a Spark task failed: ZeroDivisionError: integer division", "test_explain.py, line"],
        ),
        (lambda spark: spark.range(1).select("nix"), ["name `nix` cannot be resolved. Did you mean", "[`id`]"]),
        (lambda spark: spark.sql("select from x where"), ["Syntax error at or near end of input"]),
        (lambda spark: spark.sql("select cast('x' as int)").collect(), ["cannot be cast to", "Use `try_cast`"]),
        (lambda spark: spark.read.format("nixda").load(), ["Failed to find the data source: nixda"]),
        (lambda spark: spark.read.format("kafka").load(), ["format('strandline')"]),
        (
            lambda spark: spark.readStream.format("rate").load().writeStream.format("failing").start(),
            ["checkpointLocation must be specified"],
        ),
    ],
    ids=["udf", "column", "syntax", "cast", "format", "kafka", "checkpoint"],
)
def test_failures_that_are_not_ours(failing: SparkSession, do: Any, words: list[str]) -> None:
    with pytest.raises(SparkFailed) as failed, plainly():
        do(failing)
    (sentence,) = str(failed.value).splitlines()
    assert all(each in sentence for each in words), sentence
    assert "SQLSTATE" not in sentence
    assert "at org.apache" not in sentence
    assert not sentence.startswith("[")


def test_errors_of_others_pass_by() -> None:
    with pytest.raises(KeyError), plainly():
        {}["x"]
    with pytest.raises(SparkFailed, match="mine"), plainly():
        raise SparkFailed("mine")


def test_a_sentence_is_found_behind_a_second_exception_of_sparks() -> None:
    """PySpark stumbles over its own variable when a stream's reader cannot be made."""
    text = (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: [PYTHON_DATA_SOURCE_ERROR] Failed to plan: "
        'Traceback (most recent call last):\n  File "a.py", line 1, in f\n'
        "strandline.spark.source.failures.Refused: no option subscribe:\nname a topic\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        'Traceback (most recent call last):\n  File "b.py", line 2, in main\nUnboundLocalError: reader\n SQLSTATE: 3800'
    )
    assert of_spark(text) == "no option subscribe: name a topic"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ModuleNotFoundError: No module named 'strandline'", "strandline.spark.ship(spark)"),
        ("ModuleNotFoundError: No module named 'pyarrow'", "has no pyarrow: set PYSPARK_PYTHON"),
        ("[PACKAGE_NOT_INSTALLED] PyArrow >= 18.0.0 must be installed; however", "has no PyArrow: set"),
        ("x: java.lang.OutOfMemoryError: Java heap space\n\tat a.b", "out of memory: Java heap space: give it more"),
        ("x: java.lang.OutOfMemoryError\n\tat a.b", "ran out of memory: give it more"),
        ("java.io.IOException: No space left on device", "disk that Spark writes to is full"),
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11, PySpark",
            "workers run Python 3.9 and the driver 3.11",
        ),
        (
            "[STREAM_FAILED] Query [id = 1, runId = 2] x: Python worker failed to connect back.",
            "did not come up within",
        ),
        ('java.io.IOException: Cannot run program "/x/python3": error=2', "cannot start /x/python3: set"),
    ],
)
def test_well_known_failures_say_what_to_do(text: str, words: str) -> None:
    assert words in of_spark(text)


def test_the_outer_of_two_sentences_of_ours_is_the_one_for_the_user() -> None:
    text = (
        "Traceback (most recent call last):\nstrandline.errors.Disconnected: closed\n\nThe above exception was the "
        "direct cause of the following exception:\n\nTraceback (most recent call last):\n"
        "strandline.spark.sink.failures.SinkFailed: nobody answers\n SQLSTATE: 38000"
    )
    assert of_spark(text) == "nobody answers"


def test_javas_own_failures_are_cut_to_their_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_log, "_running", None)
    text = (
        "An error occurred while calling o1.collect.\n: org.apache.spark.SparkException: Job aborted.\n"
        "\tat org.apache.spark.A.b(A.scala:1)\nCaused by: java.net.ConnectException: Connection refused\n"
        "\t... 3 more\n"
    )
    assert of_spark(text) == "Connection refused (ConnectException)"
    stage = (
        "An error occurred while calling o1.collect.\n: org.apache.spark.SparkException: Job aborted due to stage "
        "failure: Task 0 in stage 1.0 failed 4 times, most recent failure: Lost task 0.3 in stage 1.0 (TID 3) "
        "(10.0.0.1 executor 1): java.lang.IllegalStateException: odd\n\tat a.b\n"
    )
    assert of_spark(stage) == "java.lang.IllegalStateException: odd"
    log = SparkLog()
    log.begin()
    assert of_spark(text) == f"Connection refused (ConnectException); Spark's log is in {log.directory}"
    shutil.rmtree(log.directory)


def test_the_words_behind_a_querys_epitaph() -> None:
    text = (
        "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: It is odd. SQLSTATE: XXKST\n=== Streaming"
    )
    assert of_spark(text) == "It is odd."
    assert of_spark(text.replace("It is", "[ODD_THING.WITH_HINT] It is")) == "It is odd."


class OfJava:
    """An exception of Java's, as Python holds it."""

    def __init__(self, message: str | None) -> None:
        self._message = message

    def getMessage(self) -> str | None:
        return self._message

    def getClass(self) -> OfJava:
        return self

    def getSimpleName(self) -> str:
        return "NotSerializableException"


@pytest.mark.parametrize(("message", "words"), [("a.b.C", ": a.b.C"), (None, "")])
def test_a_step_of_sparks_that_failed_is_told_with_what_it_failed_with(
    monkeypatch: pytest.MonkeyPatch, message: str | None, words: str
) -> None:
    monkeypatch.setattr(spark_log, "_running", None)
    error = Raised("Task not serializable\n=== Streaming Query ===\nIdentifier: totals [id = 1]\nLogical Plan: ...")
    error._cause = Raised("Task not serializable")  # type: ignore[attr-defined]
    error._cause._cause = Raised("")  # type: ignore[attr-defined]
    error._cause._cause._origin = OfJava(message)  # type: ignore[attr-defined]
    assert explain_failure(error) == f"Task not serializable (NotSerializableException{words})"


def test_a_sentence_stays_a_sentence() -> None:
    assert len(of_spark("[SOME_CONDITION] " + "x " * 5000)) == SENTENCE_LENGTH_MAX
    assert of_spark("") == "Raised"


def test_a_java_process_that_is_gone_can_still_be_told_of() -> None:
    from py4j.protocol import Py4JNetworkError

    assert "Java process is gone" in explain_failure(Py4JNetworkError("Answer from Java side is empty"))


def test_what_spark_raises_in_the_batch_of_a_table_is_told_in_its_own_words() -> None:
    """Java calls a function of ours for each, so that Spark's failure comes back inside a traceback of py4j."""
    text = (
        "[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function in foreach batch sink. "
        "Reason: An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):\n"
        '  File "/x/py4j/clientserver.py", line 644, in _call_proxy\n    return_value = method(*params)\n'
        '  File "/x/py4j/java_gateway.py", line 1362, in __call__\n    return_value = get_return_value(\n'
        "pyspark.errors.exceptions.captured.ArithmeticException: [DIVIDE_BY_ZERO] Division by zero. Use `try_divide`. "
        "SQLSTATE: 22012\n== DataFrame ==\n"
    )
    assert of_spark(text) == "Division by zero. Use `try_divide`."

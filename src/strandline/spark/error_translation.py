"""A failure of Spark in one sentence with what to do, instead of a page of Java.

Our source and sink fail in Python processes of Spark's. What they say comes back inside a Python traceback inside a
Java exception inside a query's epitaph; `explain_failure` finds the sentence in there. For failures that are not ours
it takes Spark's own message without its wrapping, or says what a well-known one means.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from strandline.client.failures import ClientFailed
from strandline.spark.lost_java import is_of_lost_java
from strandline.spark.spark_log import where_to_read_more

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

SENTENCE_LENGTH_MAX: Final = 1000
"""Of what is quoted from Spark: some messages repeat a whole plan or row."""


class SparkFailed(ClientFailed):
    """What went wrong and what to do, in one sentence; the context keeps everything that Spark said."""


# What ends the message of a Python exception inside Spark's text: its SQL state, a second traceback, a query's epitaph,
# or Java's stack.
_AFTER_MESSAGE: Final = r"(?=\n? SQLSTATE:|\n\s*\n|\n=== |\n\tat |\nTraceback |\nDriver stacktrace|\n\s+\.\.\. |\Z)"
_OURS: Final = re.compile(rf"^strandline(?:\.\w+)+: (.+?){_AFTER_MESSAGE}", re.MULTILINE | re.DOTALL)
_RAISED: Final = re.compile(rf"^(?:\w+\.)*(\w+)(?:: (.+?))?{_AFTER_MESSAGE}", re.MULTILINE | re.DOTALL)
_FRAME: Final = re.compile(r'^  File "([^"]+)", line (\d+), in (\S+)', re.MULTILINE)
_TRACEBACK: Final = "Traceback (most recent call last):\n"
_CONDITION: Final = re.compile(r"\[[A-Z][A-Z0-9_.]{4,}\] ")
_AFTER_CONDITION: Final = re.compile(r";? SQLSTATE: |\n\n|\n\tat |\n===? ")
_QUERY_ENDED: Final = re.compile(r"^Query \[id = [^]]*\] terminated with exception: ")
_STAGE: Final = re.compile(r"most recent failure: (?:Lost task [^)]*\)[^)]*\): )?(.+)")
_JAVA: Final = re.compile(r"^(?:Caused by|): (?:[\w$]+\.)+([\w$]+)(?:: (.+))?$", re.MULTILINE)

_KNOWN: Final = [
    # Of raise_error, with which a query says by itself what it will not take.
    (r"\[USER_RAISED_EXCEPTION\] (.+?)(?: SQLSTATE: |\n|\Z)", "{0}"),
    (
        r"No module named '(strandline|pyspark_strandline|confluent_kafka|crc32c|cramjam|lz4|zstandard)",
        "the executors have no {0}: start Spark with strandline.spark.session(master=...), which ships it, or call "
        "strandline.spark.ship(spark)",
    ),
    (
        r"No module named '(pyarrow|pandas|numpy|pyspark)'|(PyArrow) >= \S+ must be installed",
        "the Python that Spark's workers run has no {0}: set PYSPARK_PYTHON to one with strandline[spark] installed, "
        "and start Spark again",
    ),
    (
        r"Failed to find the data source: strandline\b",
        "Spark does not find the format 'strandline': `pip install 'strandline[spark]'` for the Python that "
        "PYSPARK_PYTHON names",
    ),
    (
        r"Failed to find data source: kafka\b",
        "Spark's own Kafka connector is not there: say format('strandline'), which takes the same options and needs "
        "no jar",
    ),
    (
        r"java\.lang\.OutOfMemoryError(: [^\n]+)?",
        "Spark's Java process ran out of memory{0}: give it more (spark_driver_memory='4g', on a cluster "
        "spark_executor_memory), or take smaller batches (maxOffsetsPerTrigger)",
    ),
    (r"No space left on device", "a disk that Spark writes to is full: make room, or move spark.local.dir"),
    (
        r"PYTHON_VERSION_MISMATCH\D*(\d+\.\d+)\D+(\d+\.\d+)",
        "Spark's workers run Python {0} and the driver {1}, which PySpark does not allow: set PYSPARK_PYTHON to the "
        "same version on every machine",
    ),
    (
        r"Cannot run program \"([^\"]*python[^\"]*)\"",
        "Spark's workers cannot start {0}: set PYSPARK_PYTHON to a Python that is there on every machine",
    ),
    (
        r"Python worker failed to connect back",
        "a Python process of Spark's did not come up within ten seconds: the machine is very busy, or the Python that "
        "PYSPARK_PYTHON names does not run; start again, a query goes on where its checkpoint says",
    ),
    (
        r"All masters are unresponsive",
        "the Spark master does not answer any more: is it running, and of the same version as this pyspark?",
    ),
]


# Of Spark's own messages, those that only say in which of its steps something else failed.
_SAYS_NOTHING: Final = {"Task not serializable", "Job aborted", "Writing job aborted"}


def explain_failure(error: BaseException) -> str:
    """One sentence for what Spark (or py4j) raised; for everything else its own words."""
    if isinstance(error, ClientFailed):
        return str(error)
    text = _text_of(error)
    if ours := _OURS.findall(text):
        # The last one: where one of ours was raised from another, it is the one that was meant for the user.
        return _one_line(ours[-1])
    for pattern, sentence in _KNOWN:
        if found := re.search(pattern, text):
            return sentence.format(*(group for group in found.groups(default="") if group or found.re.groups == 1))
    if is_of_lost_java(error):
        return _lost_java()
    words = _of_python(text) or _of_spark(text) or _of_java(text) or _first_words(text) or type(error).__name__
    return f"{words}{_root_cause(error)}{where_to_read_more()}" if words in _SAYS_NOTHING else words


def _root_cause(error: BaseException) -> str:
    """What was at the bottom of it, in brackets: Java's name of it and its words."""
    root: Any = error
    while getattr(root, "_cause", None) is not None:
        root = root._cause
    origin = getattr(root, "_origin", None)
    if origin is None:
        return ""
    name, message = str(origin.getClass().getSimpleName()), str(origin.getMessage() or "")
    return f" ({_one_line(f'{name}: {message}' if message else name)})"


def in_a_sentence(error: BaseException) -> str:
    """What ended something, for those who were not there: Spark's failures explained, others in their own words."""
    if not isinstance(error, Exception):
        return "interrupted"
    return explain_failure(error) if is_of_spark(error) else str(error) or type(error).__name__


@contextmanager
def plainly(*, verbose: bool = False) -> Iterator[None]:
    """Whatever Spark raises in the block becomes `SparkFailed` with a sentence; `verbose` leaves it as it is."""
    try:
        yield
    except Exception as error:
        if verbose or not is_of_spark(error):
            raise
        # The context stays for those who look; printed would be a page of Java before the sentence.
        raise SparkFailed(explain_failure(error)) from None


def await_end(query: StreamingQuery, *, timeout_s: float | None = None, verbose: bool = False) -> bool:
    """Wait until `query` ends: True if it did. A failure of it is raised as `SparkFailed` with a sentence."""
    with plainly(verbose=verbose):
        if timeout_s is None:
            query.awaitTermination()
            return True
        return bool(query.awaitTermination(timeout_s))  # type: ignore[arg-type]  # Spark takes parts of a second.


def is_of_spark(error: BaseException) -> bool:
    """Whether Spark raised it, or what PySpark speaks to Java with."""
    return is_of_lost_java(error) or any(
        each.__module__.split(".")[0] in {"pyspark", "py4j"} for each in type(error).__mro__
    )


def _lost_java() -> str:
    return (
        "Spark's Java process is gone (it ended, or the system killed it to get memory back): start again, with more "
        f"spark.driver.memory if it was memory{where_to_read_more()}"
    )


def _text_of(error: Any) -> str:
    try:
        return str(error)
    except Exception as unreadable:
        # PySpark asks the Java process for the words of an exception, and that process may be what was lost.
        if not is_of_spark(unreadable):
            raise
        return str(getattr(error, "_desc", None) or getattr(error, "errmsg", None) or _lost_java())


def _of_python(text: str) -> str:
    """The last exception of a Python worker, with the last line of code in it that is not Spark's."""
    _, found, traceback = text.rpartition(_TRACEBACK)
    if not found:
        return ""
    frames = [frame for frame in _FRAME.finditer(traceback) if "/pyspark/" not in frame[1]]
    raised = _RAISED.search(traceback, frames[-1].end() if frames else 0)
    # What Spark raises in a function of ours, as that of a table's batch, speaks for itself.
    if raised is None or raised[0].startswith("pyspark.errors."):
        return ""
    what = f"{raised[1]}: {_one_line(raised[2])}" if raised[2] else raised[1]
    where = f" ({frames[-1][1]}, line {frames[-1][2]}, in {frames[-1][3]})" if frames else ""
    return f"Python code in a Spark task failed: {what}{where}"


def _of_spark(text: str) -> str:
    """Spark's own message, of the innermost of its error conditions."""
    _, *messages = _CONDITION.split(text)
    return _one_line(_AFTER_CONDITION.split(_QUERY_ENDED.sub("", messages[-1]))[0]) if messages else ""


def _of_java(text: str) -> str:
    if stage := _STAGE.search(text):
        return f"{_one_line(stage[1])}{where_to_read_more()}"
    causes: list[tuple[str, str]] = _JAVA.findall(text)
    if not causes:
        return ""
    name, message = causes[-1]
    return f"{_one_line(f'{message} ({name})' if message else name)}{where_to_read_more()}"


def _first_words(text: str) -> str:
    """Without the plan and the state of the query that follow."""
    return _one_line(_AFTER_CONDITION.split(text)[0]) or _one_line(text)


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SENTENCE_LENGTH_MAX else f"{line[: SENTENCE_LENGTH_MAX - 3]}..."

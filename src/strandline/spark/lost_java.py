"""A Java process that ended before it was asked to: how that is known, and how it is not told in four tracebacks."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from types import TracebackType


def is_java_gone() -> bool:
    """Whether the process that PySpark has started here has ended."""
    # Who has not imported PySpark has started none.
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    process = getattr(getattr(context, "_gateway", None), "proc", None)
    return process is not None and process.poll() is not None


def is_of_lost_java(error: BaseException) -> bool:
    """Return whether py4j raised this because its Java process is gone."""
    names = {each.__name__ for each in type(error).__mro__}
    if "Py4JNetworkError" in names:
        return True
    if isinstance(error, ConnectionError):
        # py4j does not wrap a refused connection. Other code connects, too, so the module that raised it counts.
        return _module_at_the_end(error.__traceback__).startswith("py4j.")
    # A connection that breaks in the middle of a call is logged, and then is an error of which nothing is known.
    text = str(error) if names >= {"Py4JError"} and "Py4JJavaError" not in names else ""
    return text.startswith("An error occurred while calling ") and "Trace:" not in text


def _module_at_the_end(at: TracebackType | None) -> str:
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return "" if at is None else str(at.tb_frame.f_globals.get("__name__", ""))


def keep_py4j_quiet() -> None:
    """Keep tracebacks of py4j from stderr: what failed is raised, or Java tells it as the failure of a query.

    py4j gives the root logger those of calls that Java did not answer. It gives a logger of its own those of what Java
    called here, and each batch of a table is such a call.
    """
    own = logging.getLogger("py4j")
    own.propagate = False
    if not own.handlers:
        own.addHandler(logging.NullHandler())
    root = logging.getLogger()
    if _is_not_of_py4j not in root.filters:
        root.addFilter(_is_not_of_py4j)
        if not root.handlers and logging.lastResort is not None:
            # The one that is used as long as there is none: py4j's first record would bring a louder one.
            root.addHandler(logging.lastResort)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"

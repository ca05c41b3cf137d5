"""A failure of Spark in one sentence (first version: the words of the error, without Java's stack)."""

from __future__ import annotations


class SparkFailed(Exception):
    """What went wrong and what to do, in one sentence; the cause keeps everything that Spark said."""


def explain(error: BaseException) -> str:
    return str(error).splitlines()[0]

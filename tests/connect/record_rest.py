"""Records the REST table from a live Apache Kafka Connect: `python -m tests.connect.record_rest`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bench.connect_workers import live_connect
from tests.connect.rest_calls import calls
from tests.connect.rest_table import Answer, answers, store

import strandline

SETTLE_S: Final = 1.5
"""A worker reports a state that is about to change for a moment."""


def recorded(on_answer: Callable[[Answer], None] = lambda _: None) -> list[Answer]:
    """Start a broker and Kafka Connect, and return its answers to every question."""
    found = []
    with tempfile.TemporaryDirectory() as name, strandline.embedded() as log:
        directory = Path(name)
        with live_connect(log.bootstrap, directory) as url:
            for each in answers(url, calls(), directory, SETTLE_S):
                on_answer(each)
                found.append(each)
    return found


def main() -> None:
    """Write the table that tests replay."""
    found = recorded(lambda each: print(each["answered"]["status"], each["asked"]["name"], flush=True))
    store(found)
    print(f"{len(found)} answers")


if __name__ == "__main__":
    main()

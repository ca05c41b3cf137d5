"""The command line as a person waits for it: from the return key to the prompt, for the help and for a list of topics.

Each run is a process of its own, started the way the installed script starts, with its output in a pipe.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

from bench.figures import Figure, Samples, at_most
from bench.stage import ASYNC_FLUSH, Stage

NAME = "cli-start"
SUMMARY = "wall time of `strandline --help` and `strandline topic list`"
TOPICS = 20
RUNS = 10
_PROGRAM = "import sys; from strandline.cli import main; sys.exit(main())"


def run(stage: Stage) -> list[Figure]:
    stage.put_shared_pair_away()
    strandline = next(iter(stage.starters()))
    broker = stage.start(strandline, settings=ASYNC_FLUSH)
    samples = Samples()
    try:
        for number in range(TOPICS):
            broker.create_topic(f"{NAME}-{number}", 1)
        for number in range(1 + stage.scaled(RUNS, 3)):
            taken = {
                "help_ms": _wall_ms(broker.bootstrap, "--help"),
                "list_ms": _wall_ms(broker.bootstrap, "topic", "list"),
            }
            if number:  # The first run reads the modules from the disk.
                samples.add(NAME, taken)
    finally:
        stage.discard(broker)
    return [
        Figure("strandline --help", "ms", samples.of(NAME, "help_ms"), target=at_most(250.0)),
        Figure("strandline topic list", "ms", samples.of(NAME, "list_ms"), target=at_most(400.0), note="over loopback"),
    ]


def _wall_ms(bootstrap: str, *arguments: str) -> float:
    environ = os.environ | {"STRANDLINE_BOOTSTRAP": bootstrap}
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", _PROGRAM, *arguments], env=environ, stdout=subprocess.PIPE, check=True)
    return (time.perf_counter() - began) * 1000

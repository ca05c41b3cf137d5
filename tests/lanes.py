"""`python -m tests.lanes`: all tests that must pass, in lanes side by side, for a machine with two cores.

Most tests wait for something, brokers, disks or Spark, and four lanes fill the gaps of each other. Each is a pytest of
its own, so what is shared within a run (a broker, a Spark session) is shared as ever. The first lane is shown as it
runs, the others when they have ended; the last line is the sum of all closing lines. `--spark` runs only the lanes with
tests that need Spark. `--quick` runs the unit tests, the tidy tests and mypy, without tests that are marked `lengthy`.
Other options go to every lane.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

TESTS: Final = Path(__file__).parent
SPARK: Final = (
    ("pipelines", "views"),
    ("spark", "pipelines/examples"),
)
"""Directories with tests that need Spark, and wait for it more than they work: each lane has one session."""
NAMED: Final = (
    # In one lane here: another session is another Java that starts, and all lanes share the processors.
    (*SPARK[0], "spark", "services", "differential", "connect"),
    ("clients", "crash", "chaos", "outbox", "sqlite_shipping", "console", "cdc", "simulation"),
    ("unit", "clients/groups", "fuzz", "interop", "tidy", "queues", "tiers"),
)
"""The lanes behind the first, dealt out so that all take about as long; the first has the rest, also what is yet to be
made."""
QUICK: Final = (
    ("unit/codec", "unit/coordinators", "unit/handlers", "unit/log", "unit/partition", "unit/quorum"),
    ("unit", "tidy"),
)
"""The lanes of `--quick`, which compute more than they wait: one for each core. Mypy runs beside them."""
_COUNT: Final = re.compile(r"(\d+) (passed|failed|errors?|skipped|deselected|xfailed|xpassed|warnings?)")
_CLOSING: Final = re.compile(rf"(=+ )?{_COUNT.pattern}(, {_COUNT.pattern})* in [\d.]+s( \([^)]+\))?( =+)?")
"""The whole of pytest's closing line: what tests print may count something, too."""


def lanes(named: Sequence[Sequence[str]] = NAMED) -> list[list[str]]:
    """Return the arguments of pytest for each lane: its directories, less those below them that are another's."""
    everywhere = [name for lane in named for name in lane]
    there = sorted(each.name for each in TESTS.iterdir() if each.is_dir() and any(each.rglob("test_*.py")))
    others = [name for name in there if name not in everywhere]
    return [
        [f"tests/{name}" for name in lane]
        + [f"--ignore=tests/{each}" for each in everywhere if each not in lane and each.rpartition("/")[0] in lane]
        for lane in (*([others] if named is NAMED else []), *named)
    ]


def commands(arguments: list[str]) -> list[list[str]]:
    """Return what to run side by side for the arguments of the command line."""
    options = [each for each in arguments if each not in ("--spark", "--quick")]
    is_quick = "--quick" in arguments
    if is_quick:
        options += ["-m", "not slow and not lengthy"]
    named = QUICK if is_quick else SPARK if "--spark" in arguments else NAMED
    # Two runs at once must not share a cache, which each of them writes at its end.
    return [
        [sys.executable, "-m", "pytest", "-q", "-o", f"cache_dir=.pytest_cache/lane-{number}", *options, *paths]
        for number, paths in enumerate(lanes(named), 1)
    ] + ([[sys.executable, "-m", "mypy"]] if is_quick else [])


def follow(process: subprocess.Popen[bytes], output: IO[bytes]) -> None:
    """Show what a lane writes until it ends."""
    while True:
        has_ended = process.poll() is not None
        piece = output.read()
        if piece:
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
        elif has_ended:
            return
        else:
            time.sleep(0.2)


def closing_counts(text: str) -> Counter[str]:
    """Return what the closing line of a pytest run counts."""
    last = next((line for line in reversed(text.splitlines()) if _CLOSING.fullmatch(line)), "")
    return Counter({kind: int(count) for count, kind in _COUNT.findall(last)})


def main() -> int:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="strandline-tests-") as directory:
        running: list[tuple[subprocess.Popen[bytes], Path]] = []
        try:
            for number, command in enumerate(commands(sys.argv[1:]), 1):
                print(f"lane {number}: {' '.join(command[2:])}", flush=True)
                written = Path(directory) / f"lane-{number}"
                with written.open("wb") as output:
                    process = subprocess.Popen(command, cwd=TESTS.parent, stdout=output, stderr=subprocess.STDOUT)
                    running.append((process, written))
            for process, written in running:
                with written.open("rb") as output:
                    follow(process, output)
            texts = [written.read_text(errors="replace") for _, written in running]
        finally:
            for process, _ in running:
                if process.poll() is None:
                    process.terminate()
                process.wait()
    total = sum(map(closing_counts, texts), Counter[str]())
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(total.items()))
    print(f"===== {counts} in {time.monotonic() - began:.2f}s, {len(texts)} lanes =====", flush=True)
    return max(process.returncode for process, _ in running)


if __name__ == "__main__":
    sys.exit(main())

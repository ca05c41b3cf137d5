"""`python -m bench.profile SCENARIO`: a flame graph of the broker's CPU by function, native frames included.

The scenario runs with Strandline alone, without warm rounds. py-spy samples every broker that it starts, from its first
answer to its end. An earlier commit, the newest release unless another is named, takes its turn and gets a graph of its
own.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.brokers import BEFORE, STRANDLINE, Broker
from bench.clusters import Cluster
from bench.earlier import ROOT, source_of
from bench.environment import environment
from bench.flame_graph import Stack, own_samples, read_stacks, svg
from bench.local_brokers import LocalBrokers
from bench.report import RESULTS
from bench.scenarios import SCENARIOS
from bench.stage import Stage

PROFILES = RESULTS / "profiles"
TOP_FUNCTIONS = 25
ATTACH_TIMEOUT_S = 60.0
WRITE_TIMEOUT_S = 120.0


class ProfilerFailed(Exception):
    """py-spy is missing, or could not sample a broker."""


@dataclass
class Recording:
    """py-spy at one process. It writes the stacks when that process ends."""

    column: str
    sampler: subprocess.Popen[bytes]
    stacks: Path
    words: Path

    def wait_sampling(self) -> None:
        deadline = time.monotonic() + ATTACH_TIMEOUT_S
        while "Sampling process" not in self.words.read_text():
            if self.sampler.poll() is not None or time.monotonic() > deadline:
                self.sampler.kill()
                hint = "where kernel.yama.ptrace_scope is not 0, only root may look into a process"
                raise ProfilerFailed(f"py-spy samples nothing ({hint}): {self.words.read_text().strip()}")
            time.sleep(0.02)

    def finished(self) -> Counter[Stack]:
        """Return the stacks of a broker that has ended."""
        self.sampler.wait(WRITE_TIMEOUT_S)
        return read_stacks(self.stacks.read_text()) if self.stacks.exists() else Counter()


@dataclass
class ProfiledStage(Stage):
    """A stage on which every broker of Strandline is sampled."""

    rate: int = 100
    recordings: list[Recording] = field(default_factory=list)

    def start(self, name: str, **options: Any) -> Broker:
        broker = super().start(name, **options)
        self.sample(name, broker.pid)
        return broker

    def start_cluster(self, name: str, **options: Any) -> Cluster:
        cluster = super().start_cluster(name, **options)
        for node in cluster.nodes:
            self.sample(name, node.pid)
        return cluster

    def start_brokers(self, name: str, count: int, **options: Any) -> LocalBrokers:
        brokers = super().start_brokers(name, count, **options)
        self.sample(STRANDLINE, brokers.pid)
        return brokers

    def sample(self, column: str, process_id: int) -> None:
        place = Path(tempfile.mkdtemp(prefix="profile-", dir=self.root))
        stacks, words = place / "stacks", place / "words"
        command = [_py_spy(), "record", "--pid", str(process_id), "--native", "--function", "--subprocesses"]
        command += ["--format", "raw", "--rate", str(self.rate), "--duration", "unlimited", "--output", str(stacks)]
        with words.open("w") as output:
            sampler = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        recording = Recording(column, sampler, stacks, words)
        self.recordings.append(recording)
        recording.wait_sampling()

    def sampled(self) -> dict[str, Counter[Stack]]:
        """Stop all brokers and return the stacks of each column."""
        self.put_shared_pair_away()
        found: dict[str, Counter[Stack]] = {}
        for recording in self.recordings:
            found.setdefault(recording.column, Counter()).update(recording.finished())
        return {column: stacks for column, stacks in found.items() if stacks}

    def close(self) -> None:
        for recording in self.recordings:
            if recording.sampler.poll() is None:
                recording.sampler.kill()
                recording.sampler.wait()
        super().close()


def _py_spy() -> str:
    beside = Path(sys.executable).parent / "py-spy"
    found = str(beside) if beside.exists() else shutil.which("py-spy")
    if found is None:
        raise ProfilerFailed("py-spy is not installed; `make setup` brings it, or `pip install py-spy`")
    return found


def last_release() -> str:
    """Return the newest tag before the commit; empty if there is none."""
    command = ["git", "-C", str(ROOT), "describe", "--tags", "--abbrev=0"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def hottest(columns: dict[str, Counter[Stack]]) -> Table:
    """Return the functions with the most time of their own, as shares of all samples."""
    own = {column: own_samples(stacks) for column, stacks in columns.items()}
    shown = Table(title=f"The {TOP_FUNCTIONS} functions with the most CPU of their own", header_style="bold")
    shown.add_column("function")
    for column in own:
        shown.add_column(column, justify="right")
    for function, _ in next(iter(own.values())).most_common(TOP_FUNCTIONS):
        shown.add_row(function, *(f"{samples[function] / samples.total():.1%}" for samples in own.values()))
    return shown


def write(columns: dict[str, Counter[Stack]], scenario: str, suffix: str = "") -> list[Path]:
    """Write one graph for each column, named by the scenario and the column."""
    PROFILES.mkdir(parents=True, exist_ok=True)
    written = []
    for column, stacks in columns.items():
        path = PROFILES / f"{scenario}-{re.sub(r'[^A-Za-z0-9.]+', '-', column)}{suffix}.svg"
        path.write_text(svg(stacks, f"{scenario}, Strandline {column}: broker CPU, {stacks.total():,} samples"))
        written.append(path)
    return written


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.profile", description="Sample Strandline's broker.")
    parser.add_argument("scenario", choices=list(SCENARIOS), metavar="SCENARIO", help="see python -m bench --help")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of the scenario (default 3)")
    parser.add_argument("--rate", type=int, default=100, help="samples per second (default 100)")
    parser.add_argument("--quick", action="store_true", help="tiny rounds: shows that it runs")
    parser.add_argument("--before", metavar="COMMIT", help="the earlier commit (default: the newest release, if any)")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    console = Console(width=None if sys.stdout.isatty() else 160)
    before = options.before or last_release()
    stage = ProfiledStage(
        rounds=options.rounds,
        warm_rounds=0,
        quick=options.quick,
        with_kafka=False,
        before=source_of(before) if before else None,
        rate=options.rate,
        scenario=options.scenario,
        say=lambda line: console.print(line, style="dim", markup=False, highlight=False),
    )
    try:
        SCENARIOS[options.scenario].run(stage)
        sampled = stage.sampled()
    except ProfilerFailed as reason:
        console.print(str(reason), style="bold red", markup=False)
        return 2
    finally:
        stage.close()
    if STRANDLINE not in sampled:
        console.print(f"{options.scenario} starts no broker of Strandline, or one that did nothing.", style="bold red")
        return 2
    names = {STRANDLINE: environment([])["commit"], BEFORE: before}
    columns = {names[column]: stacks for column, stacks in sampled.items()}
    console.print(hottest(columns))
    for path in write(columns, options.scenario, "-quick" if options.quick else ""):
        console.print(f"written: {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Simulated hours of clusters, from seeds, on as many processes as there are cores.

    python -m tests.simulator --hours 1                an hour of whole brokers, and one of the Raft core
    python -m tests.simulator --whole --hours 2        whole brokers only
    python -m tests.simulator --core-only --hours 20   the metadata quorum's core only, far faster
    python -m tests.simulator --whole --seed 17        one seed, exactly as it ran before

An hour counts only if it had at least 200 faults, 20 changes of leader and 50,000 acknowledged operations (a record is
one). Hours of the two kinds are never added up. A failure prints its seed, what the seed means, and the command that
replays it.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from multiprocessing import get_context
from typing import Final

HOUR_S: Final = 3600.0
FAULTS_PER_HOUR: Final = 200
LEADER_CHANGES_PER_HOUR: Final = 20
ACKNOWLEDGED_PER_HOUR: Final = 50_000
CORE_RUN_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Done:
    """One seed's run, as plain numbers that pass between processes."""

    kind: str
    seed: int
    simulated_s: float
    faults: int
    leader_changes: int
    acknowledged: int
    requests: int
    trace: int
    real_s: float
    failure: str | None
    words: str
    transactions: int = 0
    """That were decided."""


@dataclass
class Totals:
    """What was simulated of one kind, hour by hour in the order of the seeds."""

    kind: str
    runs: list[Done] = field(default_factory=list)

    @property
    def simulated_s(self) -> float:
        return sum(run.simulated_s for run in self.runs)

    def hours(self) -> Iterator[list[Done]]:
        """Runs in the order of their seeds, an hour's worth at a time; what is left over is no hour."""
        hour: list[Done] = []
        for run in sorted(self.runs, key=lambda run: run.seed):
            hour.append(run)
            if sum(each.simulated_s for each in hour) >= HOUR_S:
                yield hour
                hour = []

    def counted(self) -> int:
        return sum(is_counted(hour) for hour in self.hours())

    def lines(self) -> list[str]:
        failures = [run for run in self.runs if run.failure is not None]
        real_s = sum(run.real_s for run in self.runs)
        rate = self.simulated_s / real_s if real_s else 0.0
        return [
            f"{self.kind}: {self.simulated_s / HOUR_S:.2f} simulated hours, {self.counted()} counted; "
            f"{len(self.runs)} seeds, {sum(run.faults for run in self.runs)} faults, "
            f"{sum(run.leader_changes for run in self.runs)} leader changes, "
            f"{sum(run.acknowledged for run in self.runs)} acknowledged operations "
            f"in {sum(run.requests for run in self.runs)} requests, "
            f"{sum(run.transactions for run in self.runs)} transactions decided; "
            f"{real_s:.0f} s of one core, {rate:.0f} times real time; {len(failures)} failures"
        ]


def is_counted(hour: Sequence[Done]) -> bool:
    return (
        sum(run.faults for run in hour) >= FAULTS_PER_HOUR
        and sum(run.leader_changes for run in hour) >= LEADER_CHANGES_PER_HOUR
        and sum(run.acknowledged for run in hour) >= ACKNOWLEDGED_PER_HOUR
        and not any(run.failure for run in hour)
    )


def run_whole(
    seed: int,
    safety_s: float | None,
    nodes: int | None,
    transactional: bool = True,
    cleaning: bool = True,
    users: bool = True,
    shares: bool = True,
    tiers: bool = True,
    objects: bool = True,
) -> Done:
    from tests.simulator.options import options_of
    from tests.simulator.run import run

    options = options_of(
        seed,
        safety_s=safety_s,
        nodes=nodes,
        transactional=transactional,
        cleaning=cleaning,
        users=users,
        shares=shares,
        tiers=tiers,
        objects=objects,
    )
    result = run(options)
    return Done(
        "whole brokers",
        seed,
        result.simulated_s,
        result.faults,
        result.leader_changes,
        result.acknowledged,
        result.requests_acknowledged,
        result.trace,
        result.real_s,
        result.failure,
        str(result),
        result.transactions_committed + result.transactions_aborted,
    )


def run_core(seed: int) -> Done:
    from tests.simulator.raft.simulation import run

    began = time.perf_counter()
    outcome = run(seed, simulated_s=CORE_RUN_S)
    return Done(
        "Raft core only",
        seed,
        outcome.simulated_s,
        outcome.faults,
        outcome.leader_changes,
        outcome.acknowledged,
        outcome.acknowledged,
        outcome.trace,
        time.perf_counter() - began,
        None if outcome.violation is None else str(outcome),
        str(outcome).splitlines()[0],
    )


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    kinds = ["core"] if options.core_only else ["whole"] if options.whole else ["whole", "core"]
    if options.seed is not None and options.hours is None:
        return _replay(options, kinds[0])
    failed = False
    for kind in kinds:
        wanted_s = (1.0 if options.hours is None else options.hours) * HOUR_S
        totals = _simulate(options, kind, wanted_s, first_seed=options.seed or 0)
        failed |= any(run.failure is not None for run in totals.runs)
        print("\n".join(totals.lines()), flush=True)
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.simulator", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--whole", action="store_true", help="whole brokers only")
    kind.add_argument("--core-only", action="store_true", help="the Raft core only")
    parser.add_argument("--hours", type=float, help="simulated hours of each kind (default 1)")
    parser.add_argument("--seed", type=int, help="with --hours the first seed; without it the one to run")
    parser.add_argument("--safety", type=float, metavar="S", help="simulated seconds of faults in each run")
    parser.add_argument("--nodes", type=int, help="nodes of each cluster (default: the seed says)")
    parser.add_argument("--no-transactions", action="store_true", help="what seeds meant when there were none yet")
    parser.add_argument("--no-cleaning", action="store_true", help="what seeds meant when nothing was cleaned yet")
    parser.add_argument("--no-users", action="store_true", help="what seeds meant before users did all that they do")
    parser.add_argument("--no-shares", action="store_true", help="what seeds meant before there were share groups")
    parser.add_argument("--no-tiers", action="store_true", help="what seeds meant before topics had an object store")
    parser.add_argument("--no-objects", action="store_true", help="what seeds meant before there were object topics")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="processes")
    parser.add_argument("--keep-going", action="store_true", help="do not end with the first failure")
    return parser


def _command(options: argparse.Namespace, kind: str, seed: int) -> str:
    words = ["python -m tests.simulator", "--whole" if kind == "whole" else "--core-only", f"--seed {seed}"]
    if kind == "whole" and options.safety is not None:
        words.append(f"--safety {options.safety:g}")
    if kind == "whole" and options.nodes is not None:
        words.append(f"--nodes {options.nodes}")
    if kind == "whole" and options.no_transactions:
        words.append("--no-transactions")
    if kind == "whole" and options.no_cleaning:
        words.append("--no-cleaning")
    if kind == "whole" and options.no_users:
        words.append("--no-users")
    if kind == "whole" and options.no_shares:
        words.append("--no-shares")
    if kind == "whole" and options.no_tiers:
        words.append("--no-tiers")
    if kind == "whole" and options.no_objects:
        words.append("--no-objects")
    return " ".join(words)


def _replay(options: argparse.Namespace, kind: str) -> int:
    if kind == "core":
        done = run_core(options.seed)
    else:
        done = _whole(options)(options.seed)
    print(done.words)
    if done.failure is not None:
        print(done.failure)
    return 1 if done.failure is not None else 0


def _whole(options: argparse.Namespace) -> Callable[[int], Done]:
    return partial(
        run_whole,
        safety_s=options.safety,
        nodes=options.nodes,
        transactional=not options.no_transactions,
        cleaning=not options.no_cleaning,
        users=not options.no_users,
        shares=not options.no_shares,
        tiers=not options.no_tiers,
        objects=not options.no_objects,
    )


def _simulate(options: argparse.Namespace, kind: str, wanted_s: float, *, first_seed: int) -> Totals:
    """Seed after seed until the hours are full, or one fails."""
    totals = Totals("Raft core only" if kind == "core" else "whole brokers")
    work = run_core if kind == "core" else _whole(options)
    seeds = count(first_seed)
    # A fresh interpreter for each process: what one run leaves behind must not reach another by a fork.
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn"), max_tasks_per_child=20) as pool:
        running: set[Future[Done]] = set()
        is_over = False
        while running or not is_over:
            while not is_over and len(running) < options.jobs:
                running.add(pool.submit(work, next(seeds)))
            finished, running = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                done = future.result()
                totals.runs.append(done)
                print(f"{totals.simulated_s / HOUR_S:7.2f} h  {done.words}", flush=True)
                if done.failure is not None:
                    print(f"{done.failure}\nreplay: {_command(options, kind, done.seed)}", flush=True)
                    is_over = is_over or not options.keep_going
            is_over = is_over or totals.simulated_s >= wanted_s
    return totals

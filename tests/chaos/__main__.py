"""`python -m tests.chaos`: three brokers as processes, real faults, stock clients, and the checker as judge."""

from __future__ import annotations

import argparse
import random
import signal
import sys
import threading
import time
from types import FrameType

from bench.brokers import BrokerFailed
from bench.cluster_node import KafkaSystem, StrandlineSystem, System
from bench.kafka_jars import KafkaUnavailable
from rich.console import Console
from tests.chaos import report
from tests.chaos.faults import FAULTS, possible
from tests.chaos.ground import Ground, GroundFailed, ground
from tests.chaos.groups import GROUP_SETTINGS
from tests.chaos.nemesis import Nemesis
from tests.chaos.report import Outcome
from tests.chaos.rounds import play
from tests.chaos.shares import SHARE_SETTINGS
from tests.chaos.tables import CLEANING_SETTINGS
from tests.chaos.transactions import TRANSACTION_SETTINGS

ROUND_S = 300.0


def arguments() -> argparse.Namespace:
    kinds = ", ".join(fault.kind for fault in FAULTS)
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__, epilog=f"faults: {kinds}")
    parser.add_argument("--minutes", type=float, default=5.0, help="how long faults are inflicted")
    parser.add_argument("--system", choices=("strandline", "kafka"), default="strandline")
    parser.add_argument("--seed", type=int, default=None, help="which faults, when, on whom; printed if not given")
    parser.add_argument("--fault", action="append", metavar="KIND", help="only these; may be repeated")
    parser.add_argument("--plain", action="store_true", help="without namespaces and mounts, even as root")
    parser.add_argument("--session-ms", type=int, default=4_000, help="broker.session.timeout.ms of the cluster")
    parser.add_argument("--rate", type=int, default=800, help="records per second, all producers together")
    parser.add_argument("--round-s", type=float, default=ROUND_S, help="seconds between two full reads")
    parser.add_argument("--keep", action="store_true", help="keep the nodes' logs even if all is well")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    console = Console(width=None if sys.stdout.isatty() else 160)
    seed = options.seed if options.seed is not None else random.SystemRandom().getrandbits(32)
    console.print(f"seed {seed}", highlight=False)
    stopping = _stop_on_signals()
    try:
        system: System = StrandlineSystem() if options.system == "strandline" else KafkaSystem(heap_mb=512)
        settings = {
            **GROUP_SETTINGS,
            **TRANSACTION_SETTINGS,
            **CLEANING_SETTINGS,
            **SHARE_SETTINGS,
            "broker.session.timeout.ms": str(options.session_ms),
            "broker.heartbeat.interval.ms": str(min(500, options.session_ms // 4)),
        }
        with ground(system, settings=settings, plain=options.plain) as made:
            return run(made, options, seed, stopping, console)
    except (BrokerFailed, GroundFailed, KafkaUnavailable) as reason:
        console.print(f"No chaos: {reason}", style="red", markup=False)
        return 2


def run(made: Ground, options: argparse.Namespace, seed: int, stopping: threading.Event, console: Console) -> int:
    def say(line: str) -> None:
        console.print(line, style="dim", markup=False, highlight=False)

    for sentence in made.missing:
        console.print(sentence, style="yellow", markup=False)
    outcome = Outcome(made.cluster.name, seed, options.session_ms, missing=made.missing)
    rng = random.Random(seed)
    nemesis = Nemesis(made, possible(made, options.fault), rng, options.session_ms / 1000, say)
    try:
        made.cluster.start()
        end = time.monotonic() + options.minutes * 60
        while (left_s := end - time.monotonic()) > 1 and not stopping.is_set():
            played = play(
                nemesis,
                len(outcome.rounds) + 1,
                seconds=min(left_s, options.round_s),
                per_second=options.rate,
                seed=seed,
                stopping=stopping,
                say=say,
            )
            if played.is_clean:
                played.ops = []  # Judged and good: an hour of histories would fill the memory.
            outcome.rounds.append(played)
    except Exception as failure:  # Whatever broke, the figures so far and the logs are worth keeping.
        console.print_exception()
        outcome.failure = f"{type(failure).__name__}: {failure}"
    finally:
        for node in made.cluster.nodes:
            if node.is_paused:
                node.resume()
        if made.network is not None:
            made.network.heal()
        made.cluster.stop()
    outcome.look_at_logs(made.cluster)
    if options.keep or not outcome.is_clean(nemesis):
        report.keep(outcome, made.cluster, nemesis)
    result = outcome.as_json(nemesis, sys.argv[1:])
    report.show(outcome, result, console)
    console.print(f"written: {report.write(outcome, result).name} (bench/results)")
    return 0 if result["clean"] else 1


def _stop_on_signals() -> threading.Event:
    """The first Ctrl-C or SIGTERM ends the run after the fault under way; the second ends it at once."""
    stopping = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if stopping.is_set():
            raise KeyboardInterrupt
        stopping.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    return stopping


if __name__ == "__main__":
    sys.exit(main())

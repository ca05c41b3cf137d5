"""`python -m bench`: Strandline beside Apache Kafka, on this machine, in one run."""

from __future__ import annotations

import argparse
import re
import signal
import sys
import time

from rich.console import Console

from bench import front_page, report
from bench.earlier import source_of
from bench.environment import environment
from bench.figures import Figure, Verdict
from bench.kafka_jars import KAFKA_VERSION, KafkaUnavailable, kafka_class_path
from bench.scenarios import SCENARIOS
from bench.stage import Stage
from strandline._twins import is_compiled


def arguments() -> argparse.Namespace:
    width = max(map(len, SCENARIOS))
    scenarios = "\n".join(f"  {name:{width}}  {scenario.SUMMARY}" for name, scenario in SCENARIOS.items())
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=f"Measure Strandline beside Apache Kafka {KAFKA_VERSION}.",
        epilog=f"scenarios:\n{scenarios}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--only", action="append", choices=list(SCENARIOS), metavar="SCENARIO", help="may be repeated")
    chosen.add_argument("--all", action="store_true", help="every scenario, not only those of the table in README.md")
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds per broker (default 5)")
    parser.add_argument("--warm-rounds", type=int, default=3, help="rounds before them that do not count (default 3)")
    parser.add_argument("--quick", action="store_true", help="tiny rounds: shows that it runs; no figures to quote")
    parser.add_argument("--no-kafka", action="store_true", help="bench Strandline alone")
    parser.add_argument("--before", metavar="COMMIT", help="bench this earlier commit of Strandline in turn, too")
    parser.add_argument("--kafka-twice", action="store_true", help="Kafka against itself: how large the noise is")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    # Unwind as after Ctrl-C, because a bench that is terminated must leave no broker behind.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    console = Console(width=None if sys.stdout.isatty() else 220)
    with_kafka = not options.no_kafka
    if with_kafka:
        console.print(f"Bringing Apache Kafka {KAFKA_VERSION} (the first time downloads about 60 MB) ...")
        try:
            kafka_class_path()
        except KafkaUnavailable as reason:
            console.print(f"No Apache Kafka: {reason}. Benching Strandline alone.", style="bold yellow", markup=False)
            with_kafka = False
    stage = Stage(
        rounds=options.rounds,
        warm_rounds=options.warm_rounds,
        quick=options.quick,
        with_kafka=with_kafka,
        kafka_twice=options.kafka_twice,
        before=source_of(options.before) if options.before else None,
        say=lambda line: console.print(line, style="dim", markup=False, highlight=False),
    )
    if not is_compiled():
        stage.remarks.append("compiled modules are missing or older than their text: run `python hatch_build.py` first")
    if options.quick:
        stage.remarks.append(
            "--quick: too short to warm a JVM, so every ratio to Kafka flatters Strandline; do not quote it"
        )
    surroundings = environment(sys.argv[1:])
    seconds: dict[str, int] = {}
    figures: dict[str, list[Figure]] = {}
    broken: list[str] = []
    try:
        for name in _chosen(options):
            scenario, start = SCENARIOS[name], time.monotonic()
            stage.scenario = name
            console.print(f"[bold]{name}[/bold]  {scenario.SUMMARY}")
            try:
                figures[name] = scenario.run(stage)
            except Exception as failure:  # One scenario that breaks must not cost the figures of the others.
                console.print_exception()
                broken.append(name)
                stage.remarks.append(f"{name} broke: {type(failure).__name__}: {failure}")
            seconds[name] = round(time.monotonic() - start)
    finally:
        stage.close()
    surroundings |= {"brokers": stage.commands, "seconds": seconds}
    report.show(figures, stage.remarks, console)
    name = _run_name(options, surroundings)
    for path in report.save(figures, surroundings, stage.remarks, name):
        console.print(f"written: {path.relative_to(report.RESULTS.parent.parent)}")
    is_whole = with_kafka and not (options.only or options.quick or options.kafka_twice or options.before)
    reason = front_page.reason_to_leave(is_whole=is_whole, broken=broken, commit=surroundings["commit"])
    if reason:
        console.print(f"The table in README.md stays as it is: {reason}.", markup=False)
    else:
        table = front_page.block(figures, surroundings, name)
        front_page.PAGE.write_text(front_page.rewritten(front_page.PAGE.read_text(), table))
        console.print(f"written: {front_page.PAGE.name}")
    missed = any(figure.verdict is Verdict.MISSED for rows in figures.values() for figure in rows)
    return 2 if broken else 1 if missed and not options.quick else 0


def _chosen(options: argparse.Namespace) -> list[str]:
    if options.only:
        return list(options.only)
    wanted = SCENARIOS.keys() if options.all else front_page.scenarios()
    return [name for name in SCENARIOS if name in wanted]


def _run_name(options: argparse.Namespace, surroundings: dict[str, str]) -> str:
    """Date, commit and what was left out, so that a partial run never looks like a whole one."""
    parts = [surroundings["date"][:16].replace(":", ""), surroundings["commit"]]
    only = options.only or []
    parts += only if len(only) <= 3 else ["part"]
    parts += [flag for flag in ("all", "quick", "no_kafka", "kafka_twice") if getattr(options, flag)]
    parts += ["before", options.before[:7]] if options.before else []
    return re.sub(r"[^A-Za-z0-9-]+", "-", "-".join(parts))


if __name__ == "__main__":
    sys.exit(main())

"""`python -m tests.mutations`: every planted bug must be noticed. See README.md."""

from __future__ import annotations

import argparse
import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table
from tests.mutations import scratch
from tests.mutations.planted import BadPatch, Planted, planted_bugs
from tests.mutations.traps import TRAPS
from tests.mutations.verdict import Verdict, judge

RESULTS = scratch.ROOT / "bench" / "results"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("names", nargs="*", help="only patches whose name contains one of these")
    parser.add_argument("--check", action="store_true", help="only see whether each patch applies")
    parser.add_argument(
        "--compiled", action="store_true", help="only bugs in modules with a compiled twin, compiled with the bug"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at a time")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    console = Console(width=None if sys.stdout.isatty() else 200)
    try:
        bugs = [bug for bug in planted_bugs() if not options.names or any(part in bug.name for part in options.names)]
        if options.check:
            return _check(bugs, console)
    except BadPatch as reason:
        console.print(str(reason), style="red", markup=False)
        return 2
    if options.compiled:
        bugs = [bug for bug in bugs if scratch.compiled_modules(bug.files)]
    if not bugs:
        console.print("There is no such patch.")
        return 2

    def say(line: str) -> None:
        console.print(line, style="dim", markup=False, highlight=False)

    verdicts = judge(bugs, jobs=options.jobs, say=say, is_compiled=options.compiled)
    console.print(_table(verdicts))
    caught = sum(verdict.is_caught for verdict in verdicts)
    console.print(f"{caught} of {len(verdicts)} planted bugs were caught.")
    if not options.names:
        path = _save(verdicts, "mutations-compiled.json" if options.compiled else "mutations.json")
        console.print(f"written: {path.relative_to(scratch.ROOT)}")
    return 0 if caught == len(verdicts) else 1


def _check(bugs: list[Planted], console: Console) -> int:
    for bug in bugs:
        scratch.apply(bug.path, scratch.ROOT, check=True)
    uncovered = [key for key, trap in TRAPS.items() if not trap.not_yet and key not in {bug.trap for bug in bugs}]
    console.print(f"{len(bugs)} patches apply. Traps without one: {', '.join(uncovered) or 'none'}.")
    return 0


def _table(verdicts: list[Verdict]) -> Table:
    shown = Table(title="Planted bugs", header_style="bold")
    for heading in ("trap", "patch", "verdict", "s", "what noticed it"):
        shown.add_column(heading, justify="right" if heading == "s" else "left")
    for verdict in sorted(verdicts, key=lambda each: list(TRAPS).index(each.planted.trap)):
        colour = "green" if verdict.is_caught else "red"
        shown.add_row(
            verdict.planted.trap,
            verdict.planted.name,
            f"[{colour}]{verdict.outcome}[/]",
            f"{verdict.seconds:.0f}",
            verdict.evidence.replace("[", r"\["),
        )
    return shown


def _save(verdicts: list[Verdict], name: str) -> Path:
    now = datetime.now(UTC)
    rows = [
        {
            "trap": verdict.planted.trap,
            "patch": verdict.planted.name,
            "breaks": verdict.planted.breaks,
            "outcome": verdict.outcome,
            "evidence": verdict.evidence,
            "seconds": round(verdict.seconds, 1),
        }
        for verdict in verdicts
    ]
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / name
    content = {"date": now.isoformat(timespec="seconds"), "caught": sum(v.is_caught for v in verdicts), "rows": rows}
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path


if __name__ == "__main__":
    sys.exit(main())

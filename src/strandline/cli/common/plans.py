"""Plans before what cannot be taken back: said first, then confirmed, by a person or by --yes."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from strandline.cli.common.failures import CommandFailed, UsageFailed
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import count

LINES_SHOWN = 20


def confirm(output: Output, plan: Sequence[str], *, yes: bool, question: str, undone: str) -> None:
    """Show the plan and go on only with a yes; `undone` is what is said when there is none."""
    for line in plan[:LINES_SHOWN]:
        output.talk(line)
    if len(plan) > LINES_SHOWN:
        output.talk(f"... and {count(len(plan) - LINES_SHOWN, 'more line')}")
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageFailed(undone, hint="read the plan above, and say --yes to do it")
    if not typer.confirm(question, err=True):
        raise CommandFailed(undone)

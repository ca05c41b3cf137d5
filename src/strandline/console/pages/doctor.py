"""Doctor: what is wrong or could be safer, and what mends it. The checks are those of `strandline doctor`."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from strandline.cli.common.plain_words import count
from strandline.cli.doctor.cluster_doctor import look_at_cluster
from strandline.cli.doctor.findings import Finding, Level
from strandline.console.context import PageContext
from strandline.console.declarations import ConsolePage, PageModule, PageQuery

DOCTOR_S: Final = 30.0
DOCTOR_WAIT_S: Final = 10.0
"""The first visitor waits that long for the whole look."""
SHOWN_MAX: Final = 200
"""Findings of one section."""
COMMANDS_MAX: Final = 3
LEVELS: Final = ("", "problem", "warning", "note")
_RANKS: Final = {Level.PROBLEM: 0, Level.WARNING: 1, Level.NOTE: 2, Level.OK: 3}
_QUOTED: Final = re.compile(r"`strandline ([^`]+)`")
_PLAIN: Final = re.compile(r"(?:^|[:;] )strandline ([^;`]+)$")

Section = tuple[str, list[Finding]]


async def doctor(context: PageContext) -> Mapping[str, Any]:
    """Answer what is wrong, and what mends it."""
    level = context.choice("level", LEVELS)
    shared = context.reading.shared

    def look() -> list[Section]:
        found: list[Section] = []

        def tell(heading: str, findings: Iterable[Finding]) -> None:
            found.append((heading, list(findings)))

        look_at_cluster(shared.cluster, tell, grouped=True)
        return found

    reading = context.reading
    health, sections = await asyncio.gather(
        reading.part("The cluster now", reading.findings(), [], wait_s=reading.patience_s("findings")),
        reading.part(
            "The whole look",
            reading.know("doctor", lambda: shared.in_thread(look), DOCTOR_S),
            [],
            wait_s=DOCTOR_WAIT_S if not shared.first_asked_s("doctor") else reading.patience_s("doctor"),
        ),
    )
    known = {(each.check, each.text) for each in health}
    rest = [(heading, [each for each in some if (each.check, each.text) not in known]) for heading, some in sections]
    every = [("the cluster now", health), *rest]
    return {
        "verdict": verdict([each for _, some in every for each in some]),
        "level": level,
        "counts": {str(each): sum(one.level is each for _, some in every for one in some) for each in Level},
        "sections": [_section(context, heading, some, level) for heading, some in every],
    }


def verdict(found: Sequence[Finding]) -> dict[str, str]:
    """Return the answer in one sentence, and its level."""
    problems = sum(each.level is Level.PROBLEM for each in found)
    warnings = sum(each.level is Level.WARNING for each in found)
    if problems:
        more = f" and {count(warnings, 'warning')}" if warnings else ""
        return {"level": "problem", "text": f"Something is wrong: {count(problems, 'problem')}{more}."}
    if warnings:
        return {"level": "warning", "text": f"Everything works, and {count(warnings, 'thing')} could be safer."}
    return {"level": "ok", "text": "Nothing is wrong."}


def _section(context: PageContext, heading: str, found: Sequence[Finding], level: str) -> dict[str, Any]:
    wanted = [each for each in found if not level or str(each.level) == level]
    wanted.sort(key=lambda each: _RANKS[each.level])
    return {
        "heading": heading,
        "findings": [
            {**each.as_json(), "commands": commands_of(each.advice, context.cluster.bootstrap)}
            for each in wanted[:SHOWN_MAX]
        ],
        "left_out": max(0, len(wanted) - SHOWN_MAX),
    }


def commands_of(advice: str, bootstrap: str) -> list[list[str]]:
    """Return the commands that an advice names, as they are pasted."""
    found = [*_QUOTED.findall(advice), *_PLAIN.findall(advice)]
    commands = []
    for text in found[:COMMANDS_MAX]:
        try:
            commands.append(["strandline", *shlex.split(text), "--bootstrap-server", bootstrap])
        except ValueError:
            # A name with a quote in it: the advice itself is still there to read.
            continue
    return commands


PAGE: Final = ConsolePage(
    name="doctor",
    path="/doctor",
    title="Doctor",
    question="What is wrong or could be safer, and which command mends it?",
    model=doctor,
    template="doctor.html",
    queries=(PageQuery("level", "Findings of this level alone"),),
    group="Cluster",
)
MODULE: Final = PageModule(pages=(PAGE,))

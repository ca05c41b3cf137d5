"""Plants one bug after the other and judges what came of it."""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tests.mutations import scratch
from tests.mutations.planted import BadPatch, Planted

LAST_LINES = 6
_SLIP = re.compile(
    r"^(?:E\s+)?(?:ImportError|ModuleNotFoundError|SyntaxError|IndentationError|NameError)\b", re.MULTILINE
)
"""A patch with a slip in it proves nothing, even if the words that are expected stand in the source that it shows."""


class Outcome(StrEnum):
    CAUGHT = "caught"
    SURVIVED = "survived"
    """Every catcher passed: the guard is not really tested."""
    BROKE = "broke"
    """A catcher failed, but not with what was expected: an import error, a slip in the patch, another invariant."""
    HUNG = "hung"
    STALE = "stale"
    """The patch no longer applies."""
    UNSOUND = "unsound"
    """A catcher fails on the tree as it is, so its failure proves nothing."""


@dataclass(frozen=True, slots=True)
class Verdict:
    planted: Planted
    outcome: Outcome
    evidence: str
    seconds: float

    @property
    def is_caught(self) -> bool:
        return self.outcome is Outcome.CAUGHT


def judge(
    bugs: Sequence[Planted],
    *,
    jobs: int,
    say: Callable[[str], None],
    root: Path = scratch.ROOT,
    is_compiled: bool = False,
) -> list[Verdict]:
    """Every catcher once on the tree as it is, then every bug in a copy of its own."""
    with tempfile.TemporaryDirectory(prefix="strandline-mutations-") as name, ThreadPoolExecutor(jobs) as pool:
        pristine = Path(name) / "pristine"
        scratch.copy(pristine, root, is_compiled=is_compiled)
        unsound = _unsound_catchers(bugs, pristine, pool, say)

        def plant(bug: Planted) -> Verdict:
            tree = Path(name) / bug.name
            scratch.link(tree, pristine, is_compiled=is_compiled)
            verdict = _judge_one(bug, tree, unsound, is_compiled=is_compiled)
            shutil.rmtree(tree)
            say(f"{verdict.outcome:9} {bug.name}: {verdict.evidence}")
            return verdict

        return list(pool.map(plant, bugs))


def _unsound_catchers(
    bugs: Sequence[Planted], pristine: Path, pool: ThreadPoolExecutor, say: Callable[[str], None]
) -> dict[tuple[str, ...], str]:
    """The catchers that do not pass without any bug, each with its last words."""
    wanted: dict[tuple[str, ...], float] = {}
    for bug in bugs:
        for catcher in bug.catchers:
            wanted[catcher] = max(bug.timeout_s, wanted.get(catcher, 0.0))
    say(f"{len(wanted)} catchers on the tree as it is ...")
    runs = pool.map(lambda catcher: scratch.run(catcher, pristine, timeout_s=wanted[catcher]), wanted)
    unsound = {done.command: last_words(done.output) for done in runs if done.status != 0}
    for catcher, words in unsound.items():
        say(f"fails without any bug: {' '.join(catcher)}: {words}")
    return unsound


def _judge_one(bug: Planted, tree: Path, unsound: dict[tuple[str, ...], str], *, is_compiled: bool = False) -> Verdict:
    started = time.perf_counter()

    def verdict(outcome: Outcome, evidence: str) -> Verdict:
        return Verdict(bug, outcome, evidence, time.perf_counter() - started)

    for catcher in bug.catchers:
        if catcher in unsound:
            return verdict(Outcome.UNSOUND, f"{' '.join(catcher)} fails without it: {unsound[catcher]}")
    try:
        scratch.apply(bug.path, tree)
    except BadPatch as reason:
        return verdict(Outcome.STALE, str(reason))
    scratch.forget_bytecode(bug.files, tree)
    if is_compiled and (failed := scratch.compile_changed(bug.files, tree)) is not None:
        return verdict(Outcome.BROKE, f"{' '.join(failed.command)}: {last_words(failed.output)}")
    broke = ""
    for catcher in bug.catchers:
        done = scratch.run(catcher, tree, timeout_s=bug.timeout_s)
        if done.status == 0:
            continue
        found = bug.expect.search(done.output)
        if found and not _SLIP.search(done.output):
            return verdict(Outcome.CAUGHT, line_around(done.output, found.start()))
        if done.status is None:
            return verdict(Outcome.HUNG, f"{' '.join(catcher)} did not end within {bug.timeout_s:g} s")
        broke = broke or f"{' '.join(catcher)} ended with {done.status}: {last_words(done.output)}"
    return verdict(Outcome.BROKE, broke) if broke else verdict(Outcome.SURVIVED, "every catcher passed")


def line_around(text: str, position: int) -> str:
    """The line that holds the proof."""
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    return text[start : end if end >= 0 else len(text)].strip()[:300]


def last_words(output: str) -> str:
    return " / ".join(line.strip() for line in output.strip().splitlines()[-LAST_LINES:])[:600]

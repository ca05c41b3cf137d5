"""Every known trap has a planted bug, which shows that the tests notice the trap, and every planted bug applies."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

from tests.mutations import scratch
from tests.mutations.planted import planted_bugs
from tests.mutations.traps import TRAPS


def test_every_trap_has_a_planted_bug() -> None:
    planted = {bug.trap for bug in planted_bugs()}
    missing = [key for key, trap in TRAPS.items() if not trap.not_yet and key not in planted]
    assert not missing, f"no patch in tests/mutations for {missing}"


def test_every_planted_bug_applies() -> None:
    check = partial(scratch.apply, tree=scratch.ROOT, check=True)
    # Most of the time goes to starting git, once for each patch.
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(check, [bug.path for bug in planted_bugs()]))

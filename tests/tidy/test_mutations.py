"""Every trap that others fell into, and that we could fall into, has a planted bug that shows it would be noticed."""

from __future__ import annotations

from tests.mutations.planted import planted_bugs
from tests.mutations.traps import TRAPS


def test_every_trap_has_a_planted_bug() -> None:
    planted = {bug.trap for bug in planted_bugs()}
    missing = [key for key, trap in TRAPS.items() if not trap.not_yet and key not in planted]
    assert not missing, f"no patch in tests/mutations for {missing}"

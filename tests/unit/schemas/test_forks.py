"""A fork of a state: whatever is decided upon it, it is the fold of the same records, and its base stays as it was."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.schemas.desk import Desk, facts, folded
from tests.unit.schemas.test_state_properties import COMMANDS, perform

from strandline.schemas.failures import RegistryError

SCRIPTS = st.lists(COMMANDS, min_size=5, max_size=25)


def perform_all(desk: Desk, script: list[tuple[Any, ...]]) -> None:
    for command in script:
        with suppress(RegistryError):
            perform(desk, command)


@settings(max_examples=60, deadline=None)
@given(SCRIPTS, SCRIPTS)
def test_a_fork_is_the_fold_of_both_logs_and_its_base_of_the_first(
    before: list[tuple[Any, ...]], after: list[tuple[Any, ...]]
) -> None:
    desk, plain = Desk(), Desk()
    perform_all(desk, before)
    base, written = desk.state, len(desk.log)
    desk.state = base.fork()
    perform_all(desk, after)
    perform_all(plain, [*before, *after])
    assert desk.log == plain.log, "decided otherwise than upon the state itself"
    assert facts(desk.state) == facts(plain.state)
    assert facts(base) == facts(folded(desk.log[:written]))

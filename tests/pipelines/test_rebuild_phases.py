"""What comes next in a rebuild, in every phase and for every wish."""

from __future__ import annotations

from dataclasses import replace

import pytest

from strandline.pipelines.language.model import Kind
from strandline.pipelines.rebuild import phases
from strandline.pipelines.rebuild.phases import Phase, RebuildRefused, Step, Wish
from strandline.pipelines.versions.state import DatasetState, PipelineState, RebuildState, VersionState, text_of


def dataset(name: str, version: int, *, kind: Kind = Kind.TABLE, is_public: bool) -> DatasetState:
    return DatasetState(name, kind, name if is_public else f"{name}.v{version}", name, key=("id",))


def pipeline(phase: Phase | None = None) -> PipelineState:
    """Version 1 is public; if there is a rebuild, version 2 is beside it, with a table that version 1 has not."""
    first = {each.name: each for each in (dataset("totals", 1, is_public=True), dataset("gone", 1, is_public=True))}
    first["all"] = dataset("all", 1, kind=Kind.STREAM, is_public=True)
    second = {each.name: each for each in (dataset("totals", 2, is_public=False), dataset("more", 2, is_public=False))}
    second["all"] = dataset("all", 2, kind=Kind.STREAM, is_public=False)
    versions = {1: VersionState(1, datasets=first)}
    if phase is None:
        return PipelineState("shop", versions=versions)
    versions[2] = VersionState(2, datasets=second)
    return PipelineState("shop", versions=versions, rebuild=RebuildState(phase.value, 1, 2, owner="me"))


def topics(state: PipelineState, version: int) -> dict[str, str]:
    return {name: each.topic for name, each in state.versions[version].datasets.items()}


EVERY_STEP = [
    (None, Wish.REBUILD, False, Step.BEGIN),
    (None, Wish.ROLL_BACK, False, "has no rebuild to roll back"),
    (None, Wish.FINISH, False, "has no rebuild to finish"),
    (Phase.BUILDING, Wish.REBUILD, False, Step.BUILD),
    (Phase.BUILDING, Wish.ROLL_BACK, False, Step.TURN_BACK),
    (Phase.BUILDING, Wish.FINISH, False, "is not public yet"),
    (Phase.SWITCHING, Wish.REBUILD, False, Step.SWITCH),
    # By a rollback that was killed.
    (Phase.SWITCHING, Wish.REBUILD, True, Step.TURN_BACK),
    (Phase.SWITCHING, Wish.ROLL_BACK, True, Step.TURN_BACK),
    # What the broker has committed is public: the switch is completed, and then made in the other direction.
    (Phase.SWITCHING, Wish.ROLL_BACK, False, Step.SWITCH),
    (Phase.SWITCHING, Wish.FINISH, False, "is not public yet"),
    (Phase.SWITCHING, Wish.FINISH, True, Step.TURN_BACK),
    (Phase.SWITCHED, Wish.REBUILD, False, Step.DONE),
    (Phase.SWITCHED, Wish.ROLL_BACK, False, Step.RETURN),
    (Phase.SWITCHED, Wish.FINISH, False, Step.REMOVE),
    (Phase.RETURNING, Wish.REBUILD, False, Step.BUILD),
    (Phase.RETURNING, Wish.ROLL_BACK, False, Step.BUILD),
    (Phase.RETURNING, Wish.FINISH, False, Step.TURN_BACK),
    (Phase.SWITCHING_BACK, Wish.REBUILD, False, Step.SWITCH),
    (Phase.SWITCHING_BACK, Wish.ROLL_BACK, False, Step.SWITCH),
    (Phase.SWITCHING_BACK, Wish.ROLL_BACK, True, Step.TURN_BACK),
    (Phase.SWITCHING_BACK, Wish.FINISH, True, Step.TURN_BACK),
    (Phase.SWITCHING_BACK, Wish.FINISH, False, "on its way back to version 1, which is decided"),
    (Phase.DROPPING, Wish.REBUILD, False, Step.REMOVE),
    (Phase.DROPPING, Wish.ROLL_BACK, False, Step.REMOVE),
    (Phase.DROPPING, Wish.FINISH, False, Step.REMOVE),
    (Phase.FINISHING, Wish.REBUILD, False, Step.REMOVE),
    (Phase.FINISHING, Wish.ROLL_BACK, False, Step.REMOVE),
    (Phase.FINISHING, Wish.FINISH, False, Step.REMOVE),
]


@pytest.mark.parametrize(("phase", "wish", "is_given_up", "expected"), EVERY_STEP)
def test_what_comes_next(phase: Phase | None, wish: Wish, is_given_up: bool, expected: Step | str) -> None:
    if isinstance(expected, Step):
        assert phases.next_step(pipeline(phase), wish, is_given_up=is_given_up) is expected
    else:
        with pytest.raises(RebuildRefused, match=expected):
            phases.next_step(pipeline(phase), wish, is_given_up=is_given_up)


def test_every_phase_is_in_the_table() -> None:
    assert {(phase, wish) for phase, wish, _, _ in EVERY_STEP} == {(p, w) for p in (None, *Phase) for w in Wish}


def test_a_phase_of_a_newer_program_is_refused() -> None:
    state = pipeline(Phase.BUILDING)
    assert state.rebuild is not None
    strange = replace(state, rebuild=replace(state.rebuild, phase="polishing"))
    with pytest.raises(RebuildRefused, match="polishing"):
        phases.next_step(strange, Wish.REBUILD)


def test_the_whole_way_and_back() -> None:
    """Topics of tables move, streams keep theirs, and a table of one version alone is left where it is."""
    state = phases.letting_go(pipeline(Phase.BUILDING))
    state = phases.copying(state, "switch-1", {"totals": {"0": 7}}, {"totals.v2": {"0": 9}})
    assert topics(state, 1) == {"totals": "totals", "gone": "gone", "all": "all"}
    state = phases.copied(state)
    assert state.active == 1, "until the switch the name means the version before, in its own topics"
    assert topics(state, 1) == {"totals": "totals.v1", "gone": "gone", "all": "all"}
    assert topics(state, 2) == {"totals": "totals.v2", "more": "more.v2", "all": "all.v2"}
    state = phases.switched(state)
    assert (state.active, state.rebuild and state.rebuild.phase) == (2, "switched")
    assert topics(state, 1) == {"totals": "totals.v1", "gone": "gone", "all": "all"}
    assert topics(state, 2) == {"totals": "totals", "more": "more", "all": "all.v2"}

    state = phases.with_phase(state, Phase.RETURNING)
    assert state.rebuild is not None
    assert phases.switch_of(state.rebuild) == phases.Switch(leaving=2, coming=1)
    state = phases.letting_go(state)
    assert state.rebuild is not None
    assert state.rebuild.phase == "switching back"
    assert phases.letting_go(state) == state, "done twice it is done once"
    state = phases.switched(phases.copied(state))
    assert (state.active, state.rebuild and state.rebuild.phase) == (1, "dropping")
    assert topics(state, 1) == {"totals": "totals", "gone": "gone", "all": "all"}
    assert topics(state, 2) == {"totals": "totals.v2", "more": "more", "all": "all.v2"}
    assert state.rebuild is not None
    assert phases.doomed_version(state.rebuild) == 2
    assert sorted(phases.without(state, 2).versions) == [1]


def test_a_switch_that_is_held_back_is_as_it_was_before() -> None:
    there = pipeline(Phase.BUILDING)
    assert phases.held_back(phases.letting_go(there)) == there
    back = phases.with_phase(phases.switched(phases.letting_go(there)), Phase.RETURNING)
    assert phases.held_back(phases.letting_go(back)) == back


def test_turned_back_after_the_copy_the_name_means_the_public_topics_again() -> None:
    state = phases.copied(phases.letting_go(pipeline(Phase.BUILDING)))
    state = phases.turned_back(state)
    assert topics(state, 1) == {"totals": "totals", "gone": "gone", "all": "all"}
    assert state.active == 1
    assert state.rebuild is not None
    assert state.rebuild.phase == "dropping"


def test_a_way_back_that_is_given_up_leaves_the_new_version_public() -> None:
    state = phases.switched(phases.letting_go(pipeline(Phase.BUILDING)))
    state = phases.copied(phases.letting_go(phases.with_phase(state, Phase.RETURNING)))
    assert topics(state, 2) == {"totals": "totals.v2", "more": "more", "all": "all.v2"}
    assert state.rebuild is not None
    assert phases.how_to_end("shop", state.rebuild).endswith("rebuild shop --rollback`, or give it up with --finish")
    state = phases.turned_back(state)
    assert topics(state, 2) == {"totals": "totals", "more": "more", "all": "all.v2"}
    assert (state.active, state.rebuild and state.rebuild.phase) == (2, "finishing")
    assert state.rebuild is not None
    assert phases.doomed_version(state.rebuild) == 1


def test_a_rebuild_of_another_process_is_left_alone_while_it_is_heard_of() -> None:
    state = pipeline(Phase.SWITCHING)
    phases.check_free(state, "me", heartbeat_ms=99_000, now_ms=100_000)
    phases.check_free(state, "other", heartbeat_ms=90_000, now_ms=100_000)
    with pytest.raises(RebuildRefused, match=r"being rebuilt by another process .switching, heard of 10 s ago"):
        phases.check_free(state, "other", heartbeat_ms=90_001, now_ms=100_000)
    with pytest.raises(RebuildRefused, match="taken this rebuild over"):
        phases.check_owned(state, "other")


def test_the_state_survives_the_registry() -> None:
    import json

    state = phases.copying(phases.letting_go(pipeline(Phase.BUILDING)), "switch-1", {"totals": {"0": 7}}, {})
    assert PipelineState.from_json(json.loads(text_of(state))) == state

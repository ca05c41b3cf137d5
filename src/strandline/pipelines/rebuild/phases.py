"""What comes next in a rebuild, whatever it was killed in the middle of (pure).

    (none) ──begin──▶ building ──caught up──▶ switching ──committed──▶ switched ──finish──▶ finishing ──▶ (none)
                          │                      │                        │
                          │                      │ undecided              └──rollback──▶ returning ──▶ switching back
                          └──────rollback────────┴──▶ dropping ──▶ (none)                    │             │
                                                                                             │             │
                                                 (none) ◀── finishing ◀─────────finish───────┴─undecided───┤
                                                                        (none) ◀── dropping ◀──committed──┘

The phase lies in the registry, in the one record of the pipeline. A process that takes a rebuild up reads it and does
the next step; each step may have been done before, in part or whole, and is harmless to do again.

`switching` begins when the old version is asked to let go, so neither version runs in this phase. It has one
point of no return, the decision of the broker on the batch with the differences: before it a rollback drops the new
version, after it the switch is completed first. Which of the two holds is asked of the broker, not of the registry. The
way back is the same with the versions exchanged, and it is `--finish` that gives it up. A switch that would remove much
is held back before anything is noted or written, until the user says yes to that: `building` or `returning` again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from strandline.pipelines.failures import PipelineRefused
from strandline.pipelines.language.model import versioned_topic
from strandline.pipelines.versions.state import ALIVE_MS_MAX, DatasetState, Offsets, PipelineState, RebuildState


class Phase(Enum):
    BUILDING = "building"
    SWITCHING = "switching"
    SWITCHED = "switched"
    RETURNING = "returning"
    """The version before, which was kept, catches up to take its place again."""
    SWITCHING_BACK = "switching back"
    DROPPING = "dropping"
    """The version that did not stay is removed."""
    FINISHING = "finishing"
    """The version before is removed."""


class Wish(Enum):
    """What the user says."""

    REBUILD = "rebuild"
    ROLL_BACK = "rollback"
    FINISH = "finish"


class Step(Enum):
    """What is to be done next."""

    BEGIN = "begin"
    BUILD = "build"
    """Run the version that comes beside the one that is, until it has caught up."""
    SWITCH = "switch"
    TURN_BACK = "turn back"
    """The user wants the version that is public, and not the one that comes: from here on that is removed."""
    RETURN = "return"
    """The user wants the old version, and the new one is public."""
    REMOVE = "remove"
    DONE = "done"


class RebuildRefused(PipelineRefused):
    """What the user wants cannot be done now; a sentence with what to do."""


@dataclass(frozen=True, slots=True)
class Switch:
    """Which version takes the place of which."""

    leaving: int
    coming: int


def phase_of(rebuild: RebuildState) -> Phase:
    try:
        return Phase(rebuild.phase)
    except ValueError:
        raise RebuildRefused(
            f"The rebuild is in a phase that this version of Strandline does not know ({rebuild.phase}): "
            "go on with the newer version that began it."
        ) from None


def switch_of(rebuild: RebuildState) -> Switch:
    """The switch that the phase is about."""
    if phase_of(rebuild) in (Phase.RETURNING, Phase.SWITCHING_BACK):
        return Switch(rebuild.new_version, rebuild.old_version)
    return Switch(rebuild.old_version, rebuild.new_version)


def doomed_version(rebuild: RebuildState) -> int:
    """The version that DROPPING or FINISHING removes."""
    return rebuild.old_version if phase_of(rebuild) is Phase.FINISHING else rebuild.new_version


def next_step(pipeline: PipelineState, wish: Wish, *, is_given_up: bool = False) -> Step:
    """What brings the wish nearer; RebuildRefused if nothing can.

    `is_given_up` says that the switch under way is never made: the broker has decided so, for this process or for one
    that was killed.
    """
    name = pipeline.name
    rebuild = pipeline.rebuild
    if rebuild is None:
        if wish is Wish.REBUILD:
            return Step.BEGIN
        raise RebuildRefused(
            f"Pipeline {name} has no rebuild to {'roll back' if wish is Wish.ROLL_BACK else 'finish'}: version "
            f"{pipeline.active} is the only one."
        )
    phase = phase_of(rebuild)
    if phase in (Phase.DROPPING, Phase.FINISHING):
        return Step.REMOVE
    if is_given_up:
        return Step.TURN_BACK
    if wish is Wish.FINISH and phase not in (Phase.SWITCHED, Phase.RETURNING):
        raise RebuildRefused(_not_yet(name, rebuild, phase))
    if phase is Phase.BUILDING:
        return Step.TURN_BACK if wish is Wish.ROLL_BACK else Step.BUILD
    if phase is Phase.SWITCHED:
        return {Wish.REBUILD: Step.DONE, Wish.ROLL_BACK: Step.RETURN, Wish.FINISH: Step.REMOVE}[wish]
    if phase is Phase.RETURNING:
        # Who says only "rebuild" has the way back completed; to stay with the new version is to finish.
        return Step.TURN_BACK if wish is Wish.FINISH else Step.BUILD
    return Step.SWITCH


def _not_yet(name: str, rebuild: RebuildState, phase: Phase) -> str:
    if phase is Phase.SWITCHING_BACK:
        return (
            f"Pipeline {name} is on its way back to version {rebuild.old_version}, which is decided: complete that "
            f"with `strandline pipeline rebuild {name} --rollback`."
        )
    return (
        f"Version {rebuild.new_version} of pipeline {name} is not public yet, so version {rebuild.old_version} is "
        f"needed: complete the rebuild with `strandline pipeline rebuild {name}`, or give it up with --rollback."
    )


# How the record changes. Each of these is written as one record, which is what makes it a step.


def begun(pipeline: PipelineState, new_version: int, now_ms: int, *, from_beginning: bool = False) -> PipelineState:
    rebuild = RebuildState(
        Phase.BUILDING.value, pipeline.active, new_version, started_ms=now_ms, from_beginning=from_beginning
    )
    return replace(pipeline, rebuild=rebuild)


def with_phase(pipeline: PipelineState, phase: Phase, **changes: object) -> PipelineState:
    assert pipeline.rebuild is not None
    return replace(pipeline, rebuild=replace(pipeline.rebuild, phase=phase.value, **changes))  # type: ignore[arg-type]


def letting_go(pipeline: PipelineState) -> PipelineState:
    """Return the state in which no process may run a version of the pipeline."""
    assert pipeline.rebuild is not None
    is_back = phase_of(pipeline.rebuild) in (Phase.RETURNING, Phase.SWITCHING_BACK)
    return with_phase(pipeline, Phase.SWITCHING_BACK if is_back else Phase.SWITCHING)


def held_back(pipeline: PipelineState) -> PipelineState:
    """Return to before the switch, of which nothing was written: the public version goes on, the other stays built."""
    assert pipeline.rebuild is not None
    assert not pipeline.rebuild.public_ends
    is_back = phase_of(pipeline.rebuild) is Phase.SWITCHING_BACK
    return with_phase(pipeline, Phase.RETURNING if is_back else Phase.BUILDING)


def copying(pipeline: PipelineState, sink_id: str, public_ends: Offsets, version_ends: Offsets) -> PipelineState:
    """Note where all logs end, now that both versions stand still. What lies before is copied and compared."""
    assert pipeline.rebuild is not None
    rebuild = replace(pipeline.rebuild, sink_id=sink_id, public_ends=public_ends, version_ends=version_ends)
    return replace(pipeline, rebuild=rebuild)


def copied(pipeline: PipelineState) -> PipelineState:
    """The tables of the version that leaves are in topics of its own: from now on its name means these."""
    assert pipeline.rebuild is not None
    switch = switch_of(pipeline.rebuild)
    # A table that only one version has stays where it is.
    shared = {each.public_topic for each in tables(pipeline, switch.coming)}
    return _with_tables(pipeline, switch.leaving, shared, is_public=False)


def switched(pipeline: PipelineState) -> PipelineState:
    """The record that changes what the name means."""
    assert pipeline.rebuild is not None
    switch = switch_of(pipeline.rebuild)
    is_back = phase_of(pipeline.rebuild) is Phase.SWITCHING_BACK
    pipeline = _all_public(copied(pipeline), switch.coming)
    pipeline = with_phase(pipeline, Phase.DROPPING if is_back else Phase.SWITCHED, public_ends={}, version_ends={})
    return replace(pipeline, active=switch.coming)


def turned_back(pipeline: PipelineState) -> PipelineState:
    """Nothing was switched: the public topics are those of the version that was to leave, as they were."""
    assert pipeline.rebuild is not None
    stays = switch_of(pipeline.rebuild).leaving
    phase = Phase.DROPPING if stays == pipeline.rebuild.old_version else Phase.FINISHING
    return with_phase(_all_public(pipeline, stays), phase, public_ends={}, version_ends={})


def tables(pipeline: PipelineState, version: int) -> list[DatasetState]:
    return [each for each in pipeline.versions[version].datasets.values() if each.kind.has_keys]


def own_topic(dataset: DatasetState, version: int) -> str:
    """Where a table of a version is while the public topic is another version's."""
    return versioned_topic(dataset.public_topic, version, is_active=False)


def _all_public(pipeline: PipelineState, version: int) -> PipelineState:
    public = {each.public_topic for each in tables(pipeline, version)}
    return _with_tables(pipeline, version, public, is_public=True)


def _with_tables(pipeline: PipelineState, version: int, public: set[str], *, is_public: bool) -> PipelineState:
    """Tables of a version in the public topics, or in its own. A stream has one topic for as long as it lives."""
    state = pipeline.versions[version]
    datasets = {
        name: replace(each, topic=versioned_topic(each.public_topic, version, is_active=is_public))
        if each.kind.has_keys and each.public_topic in public
        else each
        for name, each in state.datasets.items()
    }
    return replace(pipeline, versions={**pipeline.versions, version: replace(state, datasets=datasets)})


def without(pipeline: PipelineState, version: int) -> PipelineState:
    """The end of a rebuild: one version is left."""
    versions = {number: each for number, each in pipeline.versions.items() if number != version}
    return replace(pipeline, versions=versions, rebuild=None)


def is_switching(rebuild: RebuildState | None) -> bool:
    """Return whether a switch is under way. No version may write to the topics that it compares."""
    return rebuild is not None and phase_of(rebuild) in (Phase.SWITCHING, Phase.SWITCHING_BACK)


def is_unwanted(rebuild: RebuildState, wish: Wish) -> bool:
    """Whether a switch is under way to the version that is not wished for."""
    return (phase_of(rebuild), wish) in ((Phase.SWITCHING, Wish.ROLL_BACK), (Phase.SWITCHING_BACK, Wish.FINISH))


def how_to_end(name: str, rebuild: RebuildState) -> str:
    """What the user can say while a switch is under way."""
    complete, give_up = ("", "--rollback") if phase_of(rebuild) is Phase.SWITCHING else (" --rollback", "--finish")
    return f"complete that with `strandline pipeline rebuild {name}{complete}`, or give it up with {give_up}"


def check_free(pipeline: PipelineState, owner: str, heartbeat_ms: int, now_ms: int) -> None:
    """Refuse to work on a rebuild on which another process works; `heartbeat_ms` is when its owner was last heard."""
    rebuild = pipeline.rebuild
    if rebuild is None or rebuild.owner in ("", owner):
        return
    silent_ms = now_ms - max(heartbeat_ms, rebuild.heartbeat_ms)
    if silent_ms < ALIVE_MS_MAX:
        raise RebuildRefused(
            f"Pipeline {pipeline.name} is being rebuilt by {_process(rebuild.owner)} ({phase_of(rebuild).value}, "
            f"heard of {max(0, silent_ms) / 1000:.0f} s ago): wait until it is done, or stop it and try again in "
            f"{ALIVE_MS_MAX // 1000} s."
        )


def _process(owner: str) -> str:
    """An owner is `host/pid/something`."""
    host, _, rest = owner.partition("/")
    pid, has_more, _ = rest.partition("/")
    return f"process {pid} on {host}" if has_more else "another process"


def check_owned(pipeline: PipelineState | None, owner: str) -> PipelineState:
    """The state, if the rebuild is still this process's."""
    if pipeline is None or pipeline.rebuild is None or pipeline.rebuild.owner != owner:
        raise RebuildRefused("Another process has taken this rebuild over, because nothing was heard of this one.")
    return pipeline

"""`pipeline rebuild`: carries a rebuild out, step by step, from wherever it is (docs/rebuild.md).

`rebuild_phases` says what comes next; this does it, with the runner for what Spark does and `switching` for what the
log does. Whatever the process is killed in the middle of, another one goes on from what the registry says.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from strandline.client.cluster_client import ClientSettings, ClusterClient
from strandline.ids import TopicPartition
from strandline.pipelines.failures import PipelineRefused
from strandline.pipelines.language.model import Pipeline
from strandline.pipelines.rebuild import phases, removing
from strandline.pipelines.rebuild.checks import check_rebuildable, input_ends, unknown_words
from strandline.pipelines.rebuild.comparing import Comparison, compare
from strandline.pipelines.rebuild.ownership import Ownership
from strandline.pipelines.rebuild.phases import Phase, RebuildRefused, Step, Wish
from strandline.pipelines.rebuild.switching import Removal, RemovesMuch, Switching, Tell, give_up, was_given_up
from strandline.pipelines.run import first_offsets, outputs
from strandline.pipelines.run.local_node import HOME
from strandline.pipelines.run.multi_topic_commit import delete_sinks
from strandline.pipelines.run.run_record import now_ms
from strandline.pipelines.run.running import Outcome, Runner, RunOptions
from strandline.pipelines.versions.state import PipelineState, RebuildState, VersionState
from strandline.pipelines.versions.version_files import digest_of, file_of, forget_file, with_file
from strandline.pipelines.versions.version_store import Registry
from strandline.runtime.fault_points import fault_point
from strandline.spark.display import Display
from strandline.spark.error_translation import in_a_sentence

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_S: Final = 0.25
ROUNDS_MAX: Final = 20
"""Of reading what came while the round before was read: a version that never catches up is slower than its input."""
ROUND_RECORDS: Final = 10_000
"""What comes in while so many records are read is read while the old version is stopped for the switch."""
BATCH_OFFSETS: Final = 500_000
"""Records of one batch while a version is built, so that it shows how far it is; unless the source says otherwise."""


@dataclass(frozen=True)
class RebuildEnd:
    """What became of it."""

    active: int
    phase: Phase | None
    """None: nothing is left to do."""
    words: str
    written: dict[str, int] = field(default_factory=dict)
    """By public topic, how many records the switch was."""
    comparisons: tuple[Comparison, ...] = ()


@dataclass
class Means:
    """What a rebuild is done with."""

    load: Callable[[str], Pipeline]
    spark: Callable[[], SparkSession]
    """Called when Spark is needed first."""
    checkpoints: Callable[[], str]
    display: Callable[[Runner], Display]
    tell: Tell
    stop: threading.Event
    may_switch: Callable[[list[Comparison]], bool]
    """Asked with what was compared, if the user wants that."""
    may_remove: Callable[[list[Removal]], bool]
    """Asked with the tables of which the switch would remove a large part."""
    home: Path = HOME
    recovers: bool = False
    """Whether checkpoints of the new version that are gone are made from the log."""
    from_beginning: bool = False
    """A new version reads its sources from their first records, and not from where the version before began."""


class RebuildInterrupted(PipelineRefused):
    """The user stopped it; it can be taken up again."""


class Rebuilding:
    def __init__(self, registry: Registry, name: str, means: Means) -> None:
        self._registry = registry
        self._name = name
        self._means = means
        self._owned = Ownership(registry, name)
        self._written: dict[str, int] = {}
        self._comparisons: list[Comparison] = []
        self._may_remove = False
        """Whether the user has said yes to a switch that removes a large part of a table."""
        self._read_up_to: dict[TopicPartition, int] | None = None
        """Of the inputs, what the version that comes has read at least."""

    def carry_out(self, wish: Wish, *, file: str | None = None, compares: bool = False) -> RebuildEnd:
        """Until the wish is fulfilled, or cannot be; RebuildRefused or PipelineRefused say why."""
        state = self._registry.refresh().pipeline(self._name)
        if state is None or state.current is None:
            raise RebuildRefused(unknown_words(self._name, list(self._registry.pipelines)))
        with self._owned.heartbeat():
            if state.rebuild is not None:
                self._owned.take()
                if wish is Wish.REBUILD:
                    self._give_up_unlike(file)
            try:
                return self._steps(wish, file, compares)
            finally:
                self._owned.let_go()

    def _steps(self, wish: Wish, file: str | None, compares: bool) -> RebuildEnd:
        while True:
            state = self._state()
            step = phases.next_step(state, wish, is_given_up=self._is_given_up(state, wish))
            if step is Step.BEGIN:
                self._begin(state, file)
            elif step is Step.BUILD:
                self._build(state)
                # Who has seen it once, and said yes, is not asked again after a switch that was held back.
                if compares and not self._comparisons and not self._compare():
                    again, give_up = self._ways()
                    return self._ended(
                        f"nothing was switched: say it again with {again}--yes to switch, or give it up with {give_up}"
                    )
                self._change(phases.letting_go)
                fault_point("switch-letting-go")
            elif step is Step.SWITCH:
                self._switch()
                if wish is Wish.REBUILD and phases.phase_of(self._rebuild()) is Phase.SWITCHED:
                    return self._ended(f"version {self._rebuild().new_version} is what {self._name} means now")
            elif step is Step.TURN_BACK:
                self._change(phases.turned_back)
            elif step is Step.RETURN:
                # The batches of the first switch are decided, so none can come late.
                delete_sinks(self._registry.bootstrap, filter(None, [self._rebuild().sink_id]))
                self._change(lambda told: phases.with_phase(told, Phase.RETURNING, sink_id=""))
                fault_point("return-begun")
            elif step is Step.REMOVE:
                return self._remove(state)
            else:
                return self._ended(self._already(state, file))

    def _is_given_up(self, state: PipelineState, wish: Wish) -> bool:
        """Whether the switch under way is never made. If it is not wished for, that is decided here."""
        if state.rebuild is None or not phases.is_switching(state.rebuild):
            return False
        phases.check_owned(state, self._owned.owner)
        ask = give_up if phases.is_unwanted(state.rebuild, wish) else was_given_up
        found = ask(self._registry, state)
        if found:
            fault_point("turn-decided")
        return found

    # Steps

    def _begin(self, state: PipelineState, file: str | None) -> None:
        assert state.current is not None
        file = file or state.current.file
        pipeline = self._load(file)
        check_rebuildable(self._registry.bootstrap, state, pipeline, self._means.checkpoints())
        from_beginning = self._means.from_beginning
        starts = first_offsets.carried_over(
            self._registry.bootstrap, pipeline, state.current, from_beginning=from_beginning, tell=self._means.tell
        )
        number = max(state.newest, *state.versions) + 1
        # Its topics are known before they are made: should nothing more be heard of this process, they can be removed.
        datasets = outputs.planned_datasets(pipeline, number)
        version = VersionState(
            number, checkpoints=self._means.checkpoints(), created_ms=now_ms(), datasets=datasets, starts=starts
        )
        version = with_file(version, file)

        def begun(told: PipelineState) -> PipelineState:
            told = phases.begun(told, number, now_ms(), from_beginning=from_beginning)
            return replace(told, versions={**told.versions, number: version}, newest=number)

        self._owned.begin(begun)
        self._means.tell(f"version {number} of {self._name} is built beside version {state.active}")
        fault_point("rebuild-begun")

    def _build(self, state: PipelineState) -> None:
        """Run the version that comes until it has nearly all that there is."""
        number = phases.switch_of(self._rebuild()).coming
        pipeline = self._load(file_of(state.versions[number], self._name, home=self._means.home))
        for _ in range(ROUNDS_MAX):
            ends = input_ends(self._registry, pipeline)
            self._run(pipeline, state, number)
            self._read_up_to = ends
            came = sum(input_ends(self._registry, pipeline).values()) - sum(ends.values())
            if came <= ROUND_RECORDS:
                fault_point("rebuild-caught-up")
                return
            self._means.tell(f"{came:,} records came in the meantime")
        raise PipelineRefused(
            f"version {number} of {self._name} does not catch up with what comes in: give Spark more (--master, "
            "spark.driver.memory), or slow the input down; version "
            f"{state.active} goes on, and the rebuild can be taken up again"
        )

    def _run(self, pipeline: Pipeline, state: PipelineState, number: int) -> None:
        """Everything that is there, once."""
        options = RunOptions(
            state.versions[number].checkpoints or self._means.checkpoints(),
            version=number,
            once=True,
            # Who ran it before is not its owner any more.
            takeover=True,
            source_options={"maxOffsetsPerTrigger": str(BATCH_OFFSETS)},
            recovers=self._means.recovers,
            rebuilds=True,
        )
        runner = Runner(pipeline, self._registry, options, owner=self._owned.owner, tell=self._means.tell)
        try:
            runner.claim()
            fault_point("rebuild-topics-made")
            runner.plan(self._means.spark())
        except BaseException as error:
            runner.give_up(in_a_sentence(error) if isinstance(error, Exception) else None)
            raise
        runner.display = self._means.display(runner)
        if runner.run(self._means.stop) is not Outcome.DONE:
            raise RebuildInterrupted(
                f"the rebuild of {self._name} was stopped: `strandline pipeline rebuild {self._name}` takes it up "
                "again, with --rollback it is given up"
            )

    def _compare(self) -> bool:
        client = ClusterClient(ClientSettings(self._registry.bootstrap, client_id="strandline-rebuild"))
        try:
            self._comparisons = compare(client, self._state())
        finally:
            client.close()
        return self._means.may_switch(self._comparisons)

    def _switch(self) -> None:
        state = self._state()
        switch = phases.switch_of(self._rebuild())
        self._await_stop(switch.leaving)
        fault_point("switch-let-go")
        if not self._rebuild().public_ends:
            # Once the ends are noted nothing may come behind them. Until then all that is there is read, so that what
            # the name means does not go back in time.
            pipeline = self._load(file_of(state.versions[switch.coming], self._name, home=self._means.home))
            if input_ends(self._registry, pipeline) != self._read_up_to:
                self._run(pipeline, state, switch.coming)
            fault_point("switch-drained")
        switching = Switching(
            self._registry, self._name, self._owned.owner, self._means.tell, may_remove=self._may_remove
        )
        try:
            switching.perform()
        except RemovesMuch as found:
            # The version that is public goes on while the user thinks about it.
            self._change(phases.held_back)
            self._ask_removal(found.removals, switch)
            return
        self._written = switching.written

    def _ask_removal(self, removals: list[Removal], switch: phases.Switch) -> None:
        """Return if the user says yes to it; then the switch is tried again."""
        self._may_remove = self._means.may_remove(removals)
        if self._may_remove:
            return
        again, give_up = self._ways()
        raise RebuildRefused(
            f"The switch would remove {' and '.join(map(str, removals))}, so nothing was switched and version "
            f"{switch.leaving} goes on. Look at both with --compare. If that is meant, say `strandline pipeline "
            f"rebuild {self._name} {again}--remove-rows`; else give it up with {give_up}."
        )

    def _ways(self) -> tuple[str, str]:
        """Return the options that complete the switch under way, and those that give it up."""
        is_back = phases.switch_of(self._rebuild()).coming == self._rebuild().old_version
        return ("--rollback ", "--finish") if is_back else ("", "--rollback")

    def _await_stop(self, version: int) -> None:
        """Wait until the process that runs a version sees the switch and stops. A dead one is not waited for."""
        is_told = False
        # Also one that was killed on this machine: its Java may outlive it by a batch.
        while (run := self._registry.refresh().run(self._name, version)) is not None and run.is_alive(now_ms()):
            if run.owner == self._owned.owner:
                return
            if not is_told:
                is_told = True
                self._means.tell(f"version {version} is running as process {run.pid} on {run.host}: it stops for this")
            if self._means.stop.wait(LOOK_S):
                raise RebuildInterrupted(
                    f"the rebuild of {self._name} was stopped in the middle of its switch: "
                    f"`strandline pipeline rebuild {self._name}` completes it"
                )

    def _remove(self, state: PipelineState) -> RebuildEnd:
        if phases.phase_of(self._rebuild()) is Phase.SWITCHED:
            state = self._change(lambda told: phases.with_phase(told, Phase.FINISHING))
        others = {name: each for name, each in self._registry.pipelines.items() if name != self._name}
        what = removing.doomed(state, others)
        removing.remove(self._registry.bootstrap, what)
        forget_file(self._name, what.version, home=self._means.home)
        for key in (f"run/{self._name}/{what.version}", f"rebuild/{self._name}"):
            self._registry.put(key, None)
        self._change(lambda told: phases.without(told, what.version))
        for topic in what.kept:
            self._means.tell(f"topic {topic} is kept, others may read it: `strandline topic delete {topic}` removes it")
        return self._ended(f"version {what.version} is removed, {self._name} means version {state.active}")

    def _give_up_unlike(self, file: str | None) -> None:
        """A version that is being built from another text, or another beginning, is not what the user wants."""
        state = self._state()
        if state.rebuild is None or phases.phase_of(self._rebuild()) is not Phase.BUILDING:
            return
        building = state.versions[state.rebuild.new_version]
        file = file or building.file
        if self._means.from_beginning and not self._rebuild().from_beginning:
            because = f"version {building.number} was not begun from the beginning"
        elif not Path(file).is_file() or digest_of(Path(file).read_bytes()) == building.digest:
            return
        else:
            because = f"{file} has changed since version {building.number} was begun"
        self._load(file)
        self._means.tell(f"{because}, so that one is dropped")
        self._change(phases.turned_back)
        self._remove(self._state())

    # What is known

    def _already(self, state: PipelineState, file: str | None) -> str:
        assert state.current is not None
        path = Path(file or state.current.file)
        if path.is_file() and digest_of(path.read_bytes()) != state.current.digest:
            raise RebuildRefused(
                f"{self._name} has been rebuilt as version {state.active}, and version {self._rebuild().old_version} "
                f"is kept: end that with `strandline pipeline rebuild {self._name} --finish` (or --rollback), then "
                "rebuild it again."
            )
        return (
            f"version {state.active} is what {self._name} means; version {self._rebuild().old_version} is kept until "
            "--finish, and comes back with --rollback"
        )

    def _load(self, file: str) -> Pipeline:
        pipeline = self._means.load(file)
        if pipeline.name != self._name:
            raise PipelineRefused(
                f"{file} declares the pipeline {pipeline.name}, not {self._name}: name the file of {self._name}, or "
                f'say pipeline.name("{self._name}") in it'
            )
        return pipeline

    def _ended(self, words: str) -> RebuildEnd:
        state = self._state()
        phase = None if state.rebuild is None else phases.phase_of(state.rebuild)
        return RebuildEnd(state.active, phase, words, self._written, tuple(self._comparisons))

    def _rebuild(self) -> RebuildState:
        rebuild = self._state().rebuild
        assert rebuild is not None
        return rebuild

    # The registry

    def _state(self) -> PipelineState:
        return self._owned.state()

    def _change(self, change: Callable[[PipelineState], PipelineState]) -> PipelineState:
        return self._owned.change(change)

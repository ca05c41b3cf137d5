"""The switch: one version leaves the public topics, another comes, and a reader by name never sees it half done.

When this begins neither version runs, and the one that comes has read everything. Then

    copy      what the public tables say goes to topics of the leaving version (`totals.v1`)       batch 0 of a sink
              the registry says that the leaving version, which the name still means, is there
    differ    the differences from old to new go to the public topics, all tables at once          batch 1
              the registry says that the name means the version that came, in the public topics

Between the two records of the registry a reader by name reads the copy. So it does not matter that the markers of
batch 1 land one after the other, nor that a log cleaner takes away what they replace. A reader takes offsets first
and asks the registry again afterwards: if a name still means the same, the offsets are from before the differences.

Everything may be done twice: batches are decided once, records of the registry are changed upon the newest one, and
what is compared lies before offsets that were noted before anything was written.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from strandline.client.cluster_client import ClientSettings, ClusterClient
from strandline.client.failures import TopicMissing
from strandline.pipelines.rebuild import phases
from strandline.pipelines.rebuild.checkpoint_moves import Moves, drop_moves, stage_moves, take_moves
from strandline.pipelines.rebuild.phases import RebuildRefused
from strandline.pipelines.rebuild.table_snapshot import (
    Ends,
    committed_ends,
    count_removed,
    difference,
    first_readable,
    newest_records,
)
from strandline.pipelines.rebuild.topic_copies import make_like
from strandline.pipelines.run.multi_topic_commit import MultiTopicCommit, silence
from strandline.pipelines.versions.state import DatasetState, Offsets, PipelineState, RebuildState
from strandline.pipelines.versions.version_store import Registry
from strandline.runtime.fault_points import fault_point

COPY: Final = 0
DIFFERENCES: Final = 1
REMOVED_ONE_IN: Final = 10
"""A switch that removes more than one row in so many of a table wants a yes of its own."""

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Removal:
    """How much of a public table a switch takes away."""

    topic: str
    rows: int
    removed: int

    @property
    def is_large(self) -> bool:
        return self.removed * REMOVED_ONE_IN > self.rows

    def __str__(self) -> str:
        return f"{self.removed:,} of the {self.rows:,} rows of {self.topic}"


class RemovesMuch(Exception):
    """A switch that was not begun, because it would remove a large part of these tables."""

    def __init__(self, removals: list[Removal]) -> None:
        super().__init__(", ".join(map(str, removals)))
        self.removals = removals


class Switching:
    """One switch of one pipeline, by the process that owns the rebuild."""

    def __init__(
        self,
        registry: Registry,
        name: str,
        owner: str,
        tell: Tell = lambda words: None,
        *,
        may_remove: bool = False,
    ) -> None:
        """`may_remove`: the user has said yes to a switch that removes a large part of a table."""
        self._registry = registry
        self._name = name
        self._owner = owner
        self._tell = tell
        self._may_remove = may_remove
        self.written: dict[str, int] = {}
        """By public topic, how many records the differences were."""

    def perform(self) -> None:
        """Make the switch; RemovesMuch, before anything is noted or written, if it needs a yes that was not said."""
        state = self._state()
        if not _rebuild(state).public_ends:
            state = self._note(state)
        fault_point("switch-ends-noted")
        rebuild = _rebuild(state)
        # What a process that was killed wrote and did not decide is written again.
        silence(self._registry.bootstrap, [rebuild.sink_id])
        with MultiTopicCommit(self._registry.bootstrap, rebuild.sink_id) as commit:
            self._perform(state, rebuild, commit)

    def _perform(self, state: PipelineState, rebuild: RebuildState, commit: MultiTopicCommit) -> None:
        client = ClusterClient(ClientSettings(self._registry.bootstrap, client_id="strandline-rebuild"))
        try:
            if commit.last_batch() < DIFFERENCES:
                self._tell("copying the tables of the version that leaves")
                commit.write(COPY, self._copies(client, state, rebuild), point="switch-copy-written")
                commit.settle()
                fault_point("switch-copied")
                self._stage_leaving(client, state, rebuild)
                state = self._change(phases.copied)
                fault_point("switch-copy-named")
                self._tell("writing the differences to the public topics")
                commit.write(DIFFERENCES, self._differences(client, state, rebuild), point="switch-differences-written")
                fault_point("switch-committed")
            if commit.is_given_up(DIFFERENCES):
                raise RebuildRefused(f"The switch of {self._name} was given up by another process meanwhile.")
            commit.settle()
            fault_point("switch-settled")
            self._stage_coming(client, state)
            for number in (phases.switch_of(rebuild).leaving, phases.switch_of(rebuild).coming):
                take_moves(state, number)
            fault_point("switch-moved")
        finally:
            client.close()
        self._change(phases.switched)
        fault_point("switch-made")

    # What is written

    def _note(self, state: PipelineState) -> PipelineState:
        """Make the topics that are missing, and note where all of them end."""
        # What a killed task left open would hide everything behind it, and what is decided must be seen.
        sinks = [each.query_id for version in state.versions.values() for each in version.datasets.values()]
        silence(self._registry.bootstrap, [each for each in sinks if each])
        client = ClusterClient(ClientSettings(self._registry.bootstrap, client_id="strandline-rebuild"))
        public_ends: dict[str, dict[str, int]] = {}
        version_ends: dict[str, dict[str, int]] = {}
        try:
            # From here on a process that takes the switch up completes it, so this is the last time to ask.
            if not self._may_remove and (much := [each for each in removals(client, state) if each.is_large]):
                raise RemovesMuch(much)
            leaving = phases.switch_of(_rebuild(state)).leaving
            for old, new in pairs(state):
                make_like(self._registry.bootstrap, new.topic, new.public_topic)
                public_ends[new.public_topic] = _written(committed_ends(client, new.public_topic))
                version_ends[new.topic] = _written(committed_ends(client, new.topic))
                if old is not None:
                    copy = phases.own_topic(old, leaving)
                    make_like(self._registry.bootstrap, old.public_topic, copy)
                    version_ends[copy] = _written(committed_ends(client, copy))
        finally:
            client.close()
        sink_id = f"switch-{uuid.uuid4()}"
        return self._change(lambda told: phases.copying(told, sink_id, public_ends, version_ends))

    def _copies(
        self, client: ClusterClient, state: PipelineState, rebuild: RebuildState
    ) -> Iterator[tuple[str, pa.Table]]:
        leaving = phases.switch_of(rebuild).leaving
        for old, _ in pairs(state):
            if old is not None:
                copy = phases.own_topic(old, leaving)
                rows = self._copy(client, rebuild, old.public_topic, copy)
                where = ["partition"] if _are_alike(rebuild, old.public_topic, copy) else []
                yield copy, rows.select(["key", "value", "headers", *where])
        self._state()

    def _copy(self, client: ClusterClient, rebuild: RebuildState, public: str, copy: str) -> pa.Table:
        was = newest_records(client, copy, _read(rebuild.version_ends, copy))
        return difference(was, newest_records(client, public, _read(rebuild.public_ends, public)))

    def _differences(
        self, client: ClusterClient, state: PipelineState, rebuild: RebuildState
    ) -> Iterator[tuple[str, pa.Table]]:
        for _, new in pairs(state):
            is_now = newest_records(client, new.public_topic, _read(rebuild.public_ends, new.public_topic))
            shall_be = newest_records(client, new.topic, _read(rebuild.version_ends, new.topic))
            rows = difference(is_now, shall_be)
            self.written[new.public_topic] = rows.num_rows
            yield new.public_topic, rows.select(["key", "value", "headers"])
        # Who slept while another completed the rebuild must not decide anything.
        self._state()

    # Positions of queries that read the changes of a table of their own pipeline

    def _stage_leaving(self, client: ClusterClient, state: PipelineState, rebuild: RebuildState) -> None:
        """From the public topic to the copy, to where the copy has what they had not read."""
        leaving = phases.switch_of(rebuild).leaving

        def moves() -> Iterator[tuple[str, Moves]]:
            for old, _ in pairs(state):
                if old is not None and _are_alike(rebuild, old.public_topic, phases.own_topic(old, leaving)):
                    copy = phases.own_topic(old, leaving)
                    rows = self._copy(client, rebuild, old.public_topic, copy)
                    # Attempts that were killed may have left records before it that were aborted.
                    starts = first_readable(client, copy, _read(rebuild.version_ends, copy))
                    yield old.public_topic, Moves.along(copy, rows, starts)

        stage_moves(state, leaving, moves)

    def _stage_coming(self, client: ClusterClient, state: PipelineState) -> None:
        """From its own topics to the public ones. It has read all, so it goes on at the end."""
        coming = phases.switch_of(_rebuild(state)).coming

        def moves() -> Iterator[tuple[str, Moves]]:
            for _, new in pairs(state):
                yield new.topic, Moves.to_end(new.public_topic, committed_ends(client, new.public_topic))

        stage_moves(state, coming, moves)

    # The registry

    def _state(self) -> PipelineState:
        return phases.check_owned(self._registry.refresh().pipeline(self._name), self._owner)

    def _change(self, change: Callable[[PipelineState], PipelineState]) -> PipelineState:
        changed = self._registry.change(self._name, lambda told: change(phases.check_owned(told, self._owner)))
        assert changed is not None
        return changed


def give_up(registry: Registry, state: PipelineState) -> bool:
    """See to it that the differences are never written, not even by a process that sleeps; False if they were."""
    rebuild = _rebuild(state)
    assert phases.is_switching(rebuild), rebuild.phase
    if rebuild.sink_id:
        with MultiTopicCommit(registry.bootstrap, rebuild.sink_id) as commit:
            given_up = commit.give_up(DIFFERENCES)
            commit.settle()
        if not given_up:
            return False
    drop_moves(state, phases.switch_of(rebuild).leaving)
    return True


def was_given_up(registry: Registry, state: PipelineState) -> bool:
    """Return whether a process has given the switch up, and was killed before the registry said so."""
    sink_id = _rebuild(state).sink_id
    if not sink_id:
        return False
    with MultiTopicCommit(registry.bootstrap, sink_id) as commit:
        return commit.is_given_up(DIFFERENCES)


def pairs(state: PipelineState) -> list[tuple[DatasetState | None, DatasetState]]:
    """The tables of the version that comes, each with that of the one that leaves, if it has it."""
    switch = phases.switch_of(_rebuild(state))
    leaving = {each.public_topic: each for each in phases.tables(state, switch.leaving)}
    return [(leaving.get(each.public_topic), each) for each in phases.tables(state, switch.coming)]


def removals(client: ClusterClient, state: PipelineState) -> list[Removal]:
    """Return what the switch would take from each table that it writes, as far as both versions are now."""
    found = []
    for _, new in pairs(state):
        try:
            is_now = newest_records(client, new.public_topic)
        except TopicMissing:
            continue
        shall_be = newest_records(client, new.topic)
        found.append(Removal(new.public_topic, is_now.num_rows, count_removed(is_now, shall_be)))
    return found


def _are_alike(rebuild: RebuildState, public: str, copy: str) -> bool:
    """Whether a partition of one is that partition of the other, so that positions can follow.

    A copy is made like the public topic. Only on a way back it was there before, with as many partitions as the inputs
    of its version had then; that version is removed, and its positions with it.
    """
    return rebuild.public_ends[public].keys() == rebuild.version_ends[copy].keys()


def _rebuild(state: PipelineState) -> RebuildState:
    assert state.rebuild is not None
    return state.rebuild


def _written(ends: Ends) -> dict[str, int]:
    return {str(partition): offset for partition, offset in sorted(ends.items())}


def _read(ends: Offsets, topic: str) -> dict[int, int]:
    return {int(partition): offset for partition, offset in ends[topic].items()}

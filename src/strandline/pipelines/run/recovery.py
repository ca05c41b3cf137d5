"""Lost checkpoints are rebuilt from the log (`pipeline run --recover`).

The sink keeps with each batch what the batch read, so the log knows where the last batch that is in the output ended.

    without state    the same query goes on: its id, behind its last batch, at the offsets where that batch ended
    with state       a new query reads the input again, into nothing, up to where the last batch began; then that batch
                     itself, with the watermark that it had; then it goes on with a sink of its own

In both cases the sink of the lost checkpoint is sealed before anything is made: a driver that is still alive is locked
out. Everything can be begun again after a crash: a seal has the note, and a checkpoint that is half made is marked.

Where no note is kept, positions come from the consumer group that shows them, which may be a batch behind.

Known gaps: checkpoints on this machine only. State is what the input gives today: rows that retention removed, or that
compaction dropped from the changes of a table, are missing, and tables are read as they are now. What late rows could
touch in sessions, joins of two streams and transformWithState may come out another way; docs/decisions/0024 has the
argument.
"""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from strandline.client.cluster_client import EARLIEST, ClientSettings, ClusterClient
from strandline.ids import TopicPartition
from strandline.pipelines.failures import refused
from strandline.pipelines.language.model import Kind, KnownDataset, Pipeline, SourceTopic
from strandline.pipelines.run import compiling, first_offsets, queries
from strandline.pipelines.run.checkpoint_files import (
    LocalCheckpoint,
    Note,
    Offsets,
    in_words,
    positions,
    settings,
    topic_ids,
)
from strandline.pipelines.run.compiling import CompiledQuery, Wiring
from strandline.pipelines.run.query_groups import committed_positions, remove_groups
from strandline.pipelines.run.sink_notes import LastBatch, SinkNotes
from strandline.pipelines.versions.state import DatasetState
from strandline.spark.error_translation import plainly

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUFFIX: Final = ".recovering"
"""Of the consumer group of a replay, which must not move the query's own."""

_NO_NOTE: Final = "nothing was kept with its last batch"
_NO_DATA_BATCHES: Final = "spark.sql.streaming.noDataMicroBatches.enabled"
_BY_LATE_ROWS: Final = ("join of two streams", "transformWithState", "applyInPandasWithState", "mapGroupsWithState")
_BY_LATE_ROWS_IN_PLANS: Final = {
    "session_window": "session windows",
    "DeduplicateWithinWatermark": "dropDuplicatesWithinWatermark",
}


@dataclass(frozen=True)
class Recovery:
    spark: SparkSession
    pipeline: Pipeline
    wiring: Wiring
    compiled: list[CompiledQuery]
    save_id: Callable[[str, str], None]
    """Dataset and query id: kept in the registry when it returns."""
    tell: Callable[[str], None]

    def recover(self, lost: Mapping[str, DatasetState], checkpoint_of: Callable[[str], str]) -> None:
        """Rebuild these checkpoints, and say of each what was done; PipelineRefused if that cannot be."""
        by_name = {each.name: each for each in self.compiled}
        with SinkNotes(self.wiring.bootstrap) as notes:
            for name, state in lost.items():
                if name not in by_name or state.query_id is None:
                    continue
                checkpoint = LocalCheckpoint.of(checkpoint_of(name))
                if checkpoint is None:
                    raise refused(
                        f"the checkpoint of {name} lies at {checkpoint_of(name)}, and --recover makes them on this "
                        f"machine only: say --checkpoints with a directory, or `strandline pipeline rebuild "
                        f"{self.pipeline.name}`"
                    )
                _Query(self, notes, by_name[name], state.query_id, checkpoint).recover()


class _Query:
    """One query whose checkpoint is lost."""

    def __init__(
        self, of: Recovery, notes: SinkNotes, compiled: CompiledQuery, query_id: str, checkpoint: LocalCheckpoint
    ) -> None:
        self._of = of
        self._notes = notes
        self._compiled = compiled
        self._name = compiled.name
        self._query_id = query_id
        self._checkpoint = checkpoint
        self._stateful = queries.stateful_operators(compiled.frame)

    def recover(self) -> None:
        if not self._notes.are_kept:
            self._from_group("this broker keeps no notes of what a batch read, and the old driver cannot be locked out")
            return
        self._check(self._notes.last(self._query_id))
        found, sealed = self._notes.seal(self._query_id)
        if found.wrote_nothing:
            self._put_aside()
            self._checkpoint.complete()
            self._tell("no batch of it was ever committed, so it begins at the beginning")
        elif found.note is None or found.note.is_empty:
            self._from_group(_NO_NOTE)
        elif not self._stateful:
            at = positions(found.note.offsets)
            self._check_read(at or {})
            self._put_aside()
            self._checkpoint.make(self._query_id, sealed, found.note)
            self._checkpoint.complete()
            where = "where that one ended" if at is None else f"at {in_words(at)}"
            self._tell(f"batch {found.batch_id} is the last one in the log; it goes on behind it, {where}")
        else:
            self._replay(found, found.note)

    def _check(self, last: LastBatch) -> None:
        """Refuse what cannot be rebuilt before the sink is sealed: until then a checkpoint can be put back."""
        if last.wrote_nothing:
            return
        if last.note is None or last.note.is_empty:
            self._group_positions(_NO_NOTE)
        elif not self._stateful:
            self._check_read(positions(last.note.offsets) or {})
        else:
            for text in (last.note.offsets, last.note.before):
                self._own_positions(text or "")
            self._check_began()
            self._check_same_topics(last.note.offsets)

    # With state

    def _replay(self, last: LastBatch, note: Note) -> None:
        end = self._own_positions(note.offsets)
        before = None if note.before is None else self._own_positions(note.before)
        self._tell(f"its state ({', '.join(self._stateful)}) is rebuilt from {in_words_of_topics(end)}")
        amount = self._amount(end)
        began = time.monotonic()
        query_id = self._begin()
        with _with_settings(self._of.spark, {**settings(note.offsets), _NO_DATA_BATCHES: "false"}):
            if before is not None:
                self._read(before)
            # The last batch as it was: these offsets, and the watermark that it had.
            batch_id = self._checkpoint.plan(note.offsets)
            self._read(end)
        self._notes.begin(query_id, batch_id, replace(note, seal=None))
        self._complete(query_id)
        self._tell(
            f"{amount:,} records were read again in {time.monotonic() - began:.1f} s; batch {last.batch_id} is the "
            f"last one in the log, and it goes on behind it, at {in_words(end)}"
        )

    def _own_positions(self, text: str) -> Offsets:
        found = positions(text)
        if found is None:
            raise refused(
                f"{self._name} reads something that is no topic, which cannot be read again: put its checkpoint back, "
                f"or `strandline pipeline rebuild {self._of.pipeline.name}`"
            )
        self._check_read(found)
        return found

    def _check_began(self) -> None:
        """Refuse to rebuild state from another offset than the first that was read."""
        for source in self._sources():
            if first_offsets.is_moving(self._of.wiring.bootstrap, source):
                raise refused(
                    f"{self._name} began with the next record of {source.topic}, and which one that was is not known, "
                    "so its state cannot be rebuilt: put its checkpoint back, or `strandline pipeline rebuild "
                    f"{self._of.pipeline.name} --from-beginning`"
                )

    def _check_same_topics(self, text: str) -> None:
        """Refuse to rebuild state from a topic that has the name, and not the records, of the one that was read."""
        known = topic_ids(text)
        client = ClusterClient(ClientSettings(self._of.wiring.bootstrap))
        try:
            now = client.topics(sorted(known)) if known else {}
        finally:
            client.close()
        for topic, topic_id in known.items():
            if topic not in now or str(now[topic].topic_id) != topic_id:
                raise refused(
                    f"{self._name} has read a topic {topic} that was deleted since, so its state cannot be rebuilt: "
                    f"put its checkpoint back, or `strandline pipeline rebuild {self._of.pipeline.name} "
                    "--from-beginning`"
                )

    def _sources(self) -> list[SourceTopic]:
        declared = first_offsets.sources_of(self._of.pipeline).get(self._name, [])
        return [self._of.wiring.source(self._name, each) for each in declared]

    def _check_read(self, offsets: Offsets) -> None:
        """Positions in another topic, as before a rebuild moved a table, say nothing about where to go on."""
        others = [topic for topic in offsets if topic not in self._compiled.reads]
        if others:
            raise refused(
                f"{self._name} has read {others[0]} and does not read it any more, so the log does not know where it "
                f"goes on: put its checkpoint back, or `strandline pipeline rebuild {self._of.pipeline.name}` runs the "
                "file from the beginning"
            )

    def _read(self, stop_at: Offsets) -> None:
        """Run the query into nothing, from where its checkpoint is up to these offsets."""
        frame = self._compile(stop_at).frame
        writer = frame.writeStream.format("noop").outputMode(self._compiled.output_mode)
        writer = writer.option("checkpointLocation", str(self._checkpoint.directory)).trigger(availableNow=True)
        writer = writer.queryName(f"{self._of.pipeline.name}.{self._name}{SUFFIX}")
        for attempt in range(queries.RESTARTS_MAX + 1):
            with plainly():
                query = writer.start()
                try:
                    query.awaitTermination()
                    return
                except Exception:
                    # One that only started too slowly goes on where its checkpoint is.
                    if attempt == queries.RESTARTS_MAX or not queries.may_restart(query):
                        raise
                finally:
                    query.stop()

    def _compile(self, stop_at: Offsets) -> CompiledQuery:
        """Return this query alone, with an end."""
        pipeline, wiring = self._of.pipeline, self._of.wiring
        known = dict(wiring.known)
        for each in self._of.compiled:
            if each.name in pipeline.datasets and each.name != self._name:
                topic = wiring.read_topic(pipeline.datasets[each.name])
                known[each.name] = KnownDataset(topic, each.schema, each.key, each.kind, each.reader_schema)
        datasets = {
            name: each for name, each in pipeline.datasets.items() if name == self._name or each.kind is Kind.TEMPORARY
        }
        stop = json.dumps(stop_at)
        wiring = replace(wiring, known=known, suffix=wiring.suffix + SUFFIX, options={**wiring.options, "stopAt": stop})
        found = compiling.compile(self._of.spark, replace(pipeline, datasets=datasets), wiring)
        return next(each for each in found if each.name == self._name)

    def _amount(self, end: Offsets) -> int:
        """Return how many records will be read; say where what is rebuilt may differ from what was lost."""
        wanted = {TopicPartition(topic, int(each)): at for topic, parts in end.items() for each, at in parts.items()}
        client = ClusterClient(ClientSettings(self._of.wiring.bootstrap))
        try:
            starts = client.list_offsets(dict.fromkeys(wanted, EARLIEST)) if wanted else {}
        finally:
            client.close()
        bootstrap = self._of.wiring.bootstrap
        began = {
            each: at for source in self._sources() for each, at in first_offsets.first_read(bootstrap, source).items()
        }
        cut = {each: offset for each, offset in starts.items() if offset > began.get(each, 0)}
        if cut:
            partition, offset = next(iter(sorted(cut.items())))
            self._tell(
                f"the log of {partition} begins at {offset:,}: state that came from before is not there any more"
            )
        plan = str(self._compiled.frame._jdf.queryExecution().analyzed().toString())
        touched = [each for each in self._stateful if each in _BY_LATE_ROWS]
        touched += [words for name, words in _BY_LATE_ROWS_IN_PLANS.items() if name in plan]
        if touched:
            self._tell(
                f"rows that came later than the watermark may count now where they did not, in its {touched[0]}: the "
                "batches of the first time are not known"
            )
        return sum(max(0, at - max(starts[each], began.get(each, 0))) for each, at in wanted.items())

    # Without a note

    def _from_group(self, because: str) -> None:
        group, at = self._group_positions(because)
        self._tell(f"{because}: its positions are those of the group {group}, {in_words(at)}")
        amount = self._amount(at)
        query_id = self._begin()
        with _with_settings(self._of.spark, {_NO_DATA_BATCHES: "false"}):
            self._read(at)
        self._complete(query_id)
        self._tell(f"{amount:,} records were read again; up to one batch behind that may be written a second time")

    def _group_positions(self, because: str) -> tuple[str, Offsets]:
        if self._stateful:
            self._check_began()
        group = compiling.group_of(self._of.pipeline, self._name, self._of.wiring.suffix)
        at = committed_positions(self._of.wiring.bootstrap, group)
        at = {topic: each for topic, each in at.items() if topic in self._compiled.reads}
        if not at:
            raise refused(
                f"it is not known how far {self._name} was: {because}, and the group {group} has no positions; put its "
                f"checkpoint back, or `strandline pipeline rebuild {self._of.pipeline.name}`"
            )
        return group, at

    # The checkpoint

    def _begin(self) -> str:
        if not self._checkpoint.is_half_made:
            self._put_aside()
        query_id = str(uuid.uuid4())
        self._checkpoint.begin(query_id)
        return query_id

    def _complete(self, query_id: str) -> None:
        self._of.save_id(self._name, query_id)
        self._checkpoint.complete()
        # It was only ever there to show how far the replay is.
        group = compiling.group_of(self._of.pipeline, self._name, self._of.wiring.suffix + SUFFIX)
        remove_groups(self._of.wiring.bootstrap, [group])

    def _put_aside(self) -> None:
        aside = self._checkpoint.put_aside()
        if aside is not None:
            self._tell(f"what was left of its checkpoint is now {aside}")

    def _tell(self, words: str) -> None:
        self._of.tell(f"{self._name}: {words}")


def in_words_of_topics(offsets: Offsets) -> str:
    return ", ".join(sorted(offsets)) or "nothing"


@contextlib.contextmanager
def _with_settings(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """State has the form that these settings give it, so a replay has those of the first time."""
    before: dict[str, str | None] = {}
    try:
        for name, value in wanted.items():
            if spark.conf.isModifiable(name):
                before[name] = spark.conf.get(name, None)
                spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)

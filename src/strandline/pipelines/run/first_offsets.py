"""Where the queries of a version begin to read their sources: settled once, and noted before the first batch.

A source that starts with the next record (`latest`, -1, a time that no record has yet) starts elsewhere each time that
the cluster is asked. So a run asks once, keeps the answer in the registry and reads from there. What reads the same
records again, a checkpoint that is rebuilt or the next version of a rebuild, begins at the same offsets.

Known gap: of a version that began under a release that kept no such notes the offsets are not known. What would need
them is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from strandline.client.cluster_client import EARLIEST, LATEST
from strandline.client.security import spark_options_of
from strandline.ids import TopicPartition
from strandline.pipelines.failures import refused
from strandline.pipelines.language.model import Dataset, Kind, Pipeline, SourceTopic, dead_letters_name
from strandline.pipelines.versions.state import SourceStart, VersionState
from strandline.spark.source.offset_json import TOPIC_IDS
from strandline.spark.source.options import parse_options
from strandline.spark.source.planning import Planner
from strandline.spark.source.source_spec import Everywhere, Offsets, SourceOptions

Starts = dict[str, dict[str, SourceStart]]
"""By query and source."""


def sources_of(pipeline: Pipeline) -> dict[str, list[SourceTopic]]:
    """Return the sources that each query reads, also through temporary views."""
    found = {dead_letters_name(each.name): [each] for each in pipeline.sources.values() if each.dead_letters}
    return found | {each.name: list(_read_by(pipeline, each).values()) for each in pipeline.written}


def _read_by(pipeline: Pipeline, dataset: Dataset) -> dict[str, SourceTopic]:
    found: dict[str, SourceTopic] = {}
    for name in dataset.inputs:
        inner = pipeline.datasets.get(name)
        if inner is not None and inner.kind is Kind.TEMPORARY:
            found |= _read_by(pipeline, inner)
        elif inner is None and name in pipeline.sources:
            found[name] = pipeline.sources[name]
    return found


def settled(bootstrap: str, pipeline: Pipeline, noted: VersionState, has_begun: Callable[[str], bool]) -> Starts:
    """Return where each query begins: as it is noted, and where the cluster says now for one that has not begun."""

    @cache
    def now(name: str) -> SourceStart:
        # Once for all queries, so that what they make of a source goes together.
        return _asked(bootstrap, pipeline.sources[name])

    found: Starts = {}
    for query, sources in sources_of(pipeline).items():
        found[query] = dict(noted.starts.get(query, {}))
        for source in sources:
            if source.name in found[query]:
                continue
            fixed = _fixed(_options(bootstrap, source))
            if fixed is not None:
                found[query][source.name] = SourceStart(source.topic, offsets=fixed)
            elif not has_begun(query):
                found[query][source.name] = now(source.name)
    return found


def carried_over(
    bootstrap: str, pipeline: Pipeline, before: VersionState, *, from_beginning: bool, tell: Callable[[str], None]
) -> Starts:
    """Return where the next version begins, as far as its file does not say it: where the version before did.

    PipelineRefused if that is not known, or the topic has been deleted and created again since.
    """
    by_query = sources_of(pipeline)
    if from_beginning:
        return {query: {each.name: SourceStart(each.topic) for each in sources} for query, sources in by_query.items()}
    found: Starts = {query: {} for query in by_query}
    for source in pipeline.sources.values():
        if not is_moving(bootstrap, source):
            continue
        readers = [query for query, sources in by_query.items() if source in sources]
        starts = {query: start for query in readers if (start := _began(before, query, source)) is not None}
        for query, start in (_still_there(bootstrap, source, starts, tell) if starts else {}).items():
            found[query][source.name] = start
    return found


def is_moving(bootstrap: str, source: SourceTopic) -> bool:
    """Return whether the source starts where the log ends when it is asked."""
    return _options(bootstrap, source).starts_with_the_next_record


def first_read(bootstrap: str, source: SourceTopic) -> dict[TopicPartition, int]:
    """Return the offsets at which a source of `beginning_there` begins; other partitions begin with their first."""
    options = _options(bootstrap, source)
    fixed = {TopicPartition(source.topic, int(each)): at for each, at in (_fixed(options) or {}).items()}
    return fixed if options.start_at is None else dict(options.start_at)


def beginning_there(
    bootstrap: str, pipeline: Pipeline, starts: Mapping[str, Mapping[str, SourceStart]]
) -> dict[str, dict[str, SourceTopic]]:
    """Return the sources by query and name, with an option that says where they began."""
    return {
        query: {each.name: _beginning_at(bootstrap, each, starts.get(query, {}).get(each.name)) for each in sources}
        for query, sources in sources_of(pipeline).items()
    }


def _beginning_at(bootstrap: str, source: SourceTopic, start: SourceStart | None) -> SourceTopic:
    if start is None or start.offsets == _fixed(_options(bootstrap, source)):
        return source
    began: dict[str, dict[str, Any]] = {source.topic: dict(start.offsets)}
    if start.topic_id:
        began[TOPIC_IDS] = {source.topic: start.topic_id}
    return replace(source, options={**source.options, "startAt": json.dumps(began)})


def _began(before: VersionState, query: str, source: SourceTopic) -> SourceStart | None:
    """Return where the version before began to read what this query reads; None if it never read that topic."""
    own = before.starts.get(query, {}).get(source.name)
    if own is not None and own.topic == source.topic:
        return own
    known = [each for starts in before.starts.values() for each in starts.values() if each.topic == source.topic]
    if known:
        return _first_of(known)
    if any(source.topic in each.reads for each in before.datasets.values()):
        raise refused(
            f"the source {source.name} starts with the next record, and where version {before.number} began with "
            f"{source.topic} is not known: say --from-beginning to read the topic from its first record, or name "
            "offsets in startingOffsets",
            source.at,
        )
    return None


def _first_of(starts: list[SourceStart]) -> SourceStart:
    """Return the first offsets that any of them has, without partitions that one of them read from the beginning."""
    named = set.intersection(*(set(each.offsets) for each in starts))
    topic_id = next((each.topic_id for each in starts if each.topic_id), "")
    return SourceStart(
        starts[0].topic, topic_id, {part: min(each.offsets[part] for each in starts) for part in sorted(named, key=int)}
    )


def _still_there(
    bootstrap: str, source: SourceTopic, starts: Mapping[str, SourceStart], tell: Callable[[str], None]
) -> dict[str, SourceStart]:
    """Return the starts without the partitions whose first records are removed, which begin where their log begins.

    The user is told so. Raises PipelineRefused for a topic that was made again.
    """
    planner = Planner(_options(bootstrap, source))
    try:
        partitions = planner.partitions()
        if any(each.topic_id and each.topic_id not in map(str, partitions.values()) for each in starts.values()):
            raise refused(
                f"the topic {source.topic} was deleted and made again since it was read first, so those records are "
                "gone: say --from-beginning to read the new one from its first record",
                source.at,
            )
        cut = set()
        for partition, first in planner.earliest(partitions).items():
            number = str(partition.partition)
            wanted = min(each.offsets.get(number, first) for each in starts.values())
            if wanted < first:
                tell(f"{partition} was read from offset {wanted:,} on, and its log begins at {first:,} now")
                cut.add(number)
    finally:
        planner.close()
    return {
        query: replace(start, offsets={part: at for part, at in start.offsets.items() if part not in cut})
        for query, start in starts.items()
    }


def _options(bootstrap: str, source: SourceTopic) -> SourceOptions:
    said = {name: value for name, value in source.options.items() if name.lower() != "columns"}
    wanted = {**spark_options_of(bootstrap), "subscribe": source.topic, "startingOffsets": "earliest"}
    return parse_options({**wanted, **said}, streaming=True)


def _fixed(options: SourceOptions) -> dict[str, int] | None:
    """Return the offsets that the options name; None if the cluster has to be asked."""
    match options.starting:
        case Everywhere(offset) if offset == EARLIEST:
            return {}
        case Offsets(by_partition) if LATEST not in by_partition.values():
            return {str(each.partition): offset for each, offset in by_partition.items() if offset != EARLIEST}
    return None


def _asked(bootstrap: str, source: SourceTopic) -> SourceStart:
    planner = Planner(_options(bootstrap, source))
    try:
        partitions = planner.partitions()
        offsets = planner.starting(partitions)
    finally:
        planner.close()
    by_partition = {str(each.partition): offset for each, offset in sorted(offsets.items())}
    return SourceStart(source.topic, str(next(iter(partitions.values()))), by_partition)

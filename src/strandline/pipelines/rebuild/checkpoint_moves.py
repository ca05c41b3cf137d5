"""Positions in checkpoints follow a table that moves to another topic.

A query that reads the changes of a table of its own pipeline has a position in the table's topic. When a switch moves
the table, the position moves along: to the place in the other topic from which on it has what the query has not read.

    <checkpoint>/offsets/<batch>         v1, a line of JSON about the batch, {topic: {partition: offset}} per source
    <checkpoint>/offsets/.<batch>.moved  the same with other positions, to take its place when the switch is decided

A position that has moved names the new topic, and is left alone when this is done again. Known gap: only checkpoints on
a file system of this machine can be changed. Others are refused when a rebuild begins, if a query reads changes of its
own pipeline at all.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from strandline.pipelines.versions.state import PipelineState, checkpoint_of
from strandline.spark.sink.checkpoint import local_path
from strandline.spark.source.offset_json import TOPIC_IDS

Positions = Mapping[str, int]


@dataclass(frozen=True)
class Moves:
    """Where positions in one topic are in another."""

    topic: str
    _moved: Callable[[Positions], dict[str, int]]

    def __call__(self, positions: Positions) -> dict[str, int]:
        return self._moved(positions)

    @classmethod
    def to_end(cls, topic: str, ends: Mapping[int, int]) -> Moves:
        """Move positions to the end of the topic."""
        return cls(topic, lambda _: {str(partition): end for partition, end in sorted(ends.items())})

    @classmethod
    def along(cls, topic: str, rows: pa.Table, starts: Mapping[int, int]) -> Moves:
        """For rows that were copied in their order: `rows` has where each was, `starts` where the copy begins."""
        partitions = rows["partition"].to_numpy()
        offsets = rows["offset"].to_numpy()
        by_partition = {partition: offsets[partitions == partition] for partition in starts}

        def moved(positions: Positions) -> dict[str, int]:
            return {
                str(partition): start + int(np.searchsorted(by_partition[partition], positions.get(str(partition), 0)))
                for partition, start in sorted(starts.items())
            }

        return cls(topic, moved)


def stage_moves(state: PipelineState, version: int, moves: Callable[[], Iterable[tuple[str, Moves]]]) -> None:
    """Write what the queries of a version have read as it is after the switch; `moves` are by the topic as it is now.

    They cost a look at every table, so they are worked out only if there is a position in one of the topics.
    """
    tables = {each.topic for each in state.versions[version].datasets.values() if each.kind.has_keys}
    files = [path for path in _offset_files(state, version) if not tables.isdisjoint(_topics(path))]
    by_topic = dict(moves()) if files else {}
    for path in files:
        _stage(path, by_topic)


def take_moves(state: PipelineState, version: int) -> None:
    """What was staged takes its place."""
    taken = [path for path in _offset_files(state, version) if _staged(path).exists()]
    for path in taken:
        # Spark compares a file with the checksum beside it, if there is one; so that goes first.
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        os.replace(_staged(path), path)
    for directory in {path.parent for path in taken}:
        # On disk before the registry says that the switch is made, because after that they are not moved again.
        _sync_directory(directory)


def _sync_directory(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def drop_moves(state: PipelineState, version: int) -> None:
    for path in _offset_files(state, version):
        _staged(path).unlink(missing_ok=True)


def _offset_files(state: PipelineState, version: int) -> list[Path]:
    told = state.versions[version]
    found = []
    for dataset in told.datasets:
        directory = local_path(checkpoint_of(told.checkpoints, state.name, version, dataset))
        if directory is not None and (directory / "offsets").is_dir():
            found += [path for path in (directory / "offsets").iterdir() if path.name.isdigit()]
    return sorted(found)


def _staged(path: Path) -> Path:
    return path.with_name(f".{path.name}.moved")


def _topics(path: Path) -> list[str]:
    return [topic for source in _sources(path.read_text().split("\n")) for topic in source]


def _sources(lines: list[str]) -> list[dict[str, Any]]:
    sources = []
    for line in lines[2:]:
        with contextlib.suppress(ValueError):
            told = json.loads(line)
            if isinstance(told, dict):
                sources.append(told)
    return sources


def _stage(path: Path, by_topic: Mapping[str, Moves]) -> None:
    lines = path.read_text().split("\n")
    changed = lines[:2] + [_moved_line(line, by_topic) for line in lines[2:]]
    if changed == lines:
        return
    half_done = path.with_name(f".{path.name}.moving")
    with half_done.open("w") as file:
        file.write("\n".join(changed))
        file.flush()
        os.fsync(file.fileno())
    os.replace(half_done, _staged(path))


def _moved_line(line: str, by_topic: Mapping[str, Moves]) -> str:
    try:
        told = json.loads(line)
    except ValueError:
        return line
    if not isinstance(told, dict) or not any(topic in by_topic for topic in told):
        return line
    moved: dict[str, Any] = {}
    for topic, positions in told.items():
        if topic == TOPIC_IDS:
            # Of the topic that it moves to the query learns the id with its next batch.
            moved[topic] = {each: topic_id for each, topic_id in positions.items() if each not in by_topic}
        elif topic in by_topic:
            moved[by_topic[topic].topic] = by_topic[topic](positions)
        else:
            moved[topic] = positions
    return json.dumps(moved, separators=(",", ":"))

"""Pipelines of a cluster, as their processes told it: read from the topic in which a cluster remembers them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from strandline.client.cluster_client import ClusterClient
from strandline.client.failures import DataLost, TopicMissing
from strandline.console.context import PageContext
from strandline.console.failures import PageFailed
from strandline.pipelines.versions.state import FAILED, RUNNING, STARTING, PipelineState, RunState

TOPIC: Final = "__strandline_pipelines"
PIPELINES_S: Final = 3.0
ENTRIES_MAX: Final = 20_000
RECORDS_MAX: Final = 500_000
LOST: Final = "lost"
"""A run whose process says nothing any more, and did not say that it ends."""


@dataclass(frozen=True)
class KnownPipelines:
    """What a cluster knows of its pipelines."""

    pipelines: Mapping[str, PipelineState]
    runs: Mapping[tuple[str, int], RunState]

    def run(self, pipeline: str, version: int) -> RunState | None:
        return self.runs.get((pipeline, version))


async def read_pipelines(context: PageContext) -> KnownPipelines:
    """Return all pipelines; none if the cluster has no topic of them, or the visitor may not see it."""
    if TOPIC not in (await context.reading.metadata()).topics:
        return KnownPipelines({}, {})
    try:
        from strandline.client.followed_topic import FollowedTopic
    except ModuleNotFoundError as error:
        advice = "pip install 'strandline[spark]' where the console runs"
        raise PageFailed(501, f"Pipelines need {error.name} to be read", advice) from None

    def read(client: ClusterClient) -> KnownPipelines:
        entries: dict[str, Any] = {}
        taken = 0

        def take(key: bytes | None, value: bytes | None) -> None:
            nonlocal taken
            taken += 1
            if taken > RECORDS_MAX or len(entries) > ENTRIES_MAX:
                raise PageFailed(507, f"The topic {TOPIC} holds more than the console reads", "let it be compacted")
            name = (key or b"").decode("utf-8", "replace")
            entries.pop(name, None)
            if value is not None:
                entries[name] = value

        try:
            FollowedTopic(client, TOPIC).read_on(entries.clear, take)
        except (TopicMissing, DataLost):
            # It was deleted meanwhile.
            entries.clear()
        return known_of(entries)

    return await context.reading.know("pipelines", lambda: context.reading.shared.ask(read), PIPELINES_S)


def known_of(entries: Mapping[str, bytes]) -> KnownPipelines:
    """Return what the records of the topic mean. What cannot be read is passed over."""
    pipelines: dict[str, PipelineState] = {}
    runs: dict[tuple[str, int], RunState] = {}
    for key, value in entries.items():
        kind, _, name = key.partition("/")
        try:
            if kind == "pipeline":
                pipelines[name] = PipelineState.from_json(json.loads(value))
            elif kind == "run":
                pipeline, _, number = name.rpartition("/")
                runs[pipeline, int(number)] = RunState.from_json(json.loads(value))
        except (AttributeError, TypeError, ValueError, RecursionError):
            continue
    return KnownPipelines(dict(sorted(pipelines.items())), runs)


def state_of(run: RunState | None, now_ms: int) -> str:
    """Return `running`, `starting`, `stopped` or `failed`; `lost` if its process fell silent; else `never run`."""
    if run is None:
        return "never run"
    if run.state in (STARTING, RUNNING) and not run.is_alive(now_ms):
        return LOST
    return run.state if run.state != FAILED else "failed"

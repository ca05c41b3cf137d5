"""What the commands about pipelines read: the registry of the cluster that was named, or of this directory's node."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, Cluster, connect
from strandline.cli.common.conversation import is_spoken
from strandline.cli.common.failures import NotFound, did_you_mean
from strandline.cli.common.options import BOOTSTRAP_DEFAULT
from strandline.cli.pipeline.failures import plain_failures

if TYPE_CHECKING:
    from strandline.pipelines.versions.state import PipelineState, RebuildState, RunState
    from strandline.pipelines.versions.version_store import Registry

PipelineName = Annotated[str, typer.Argument(metavar="NAME", help="The pipeline.")]


@contextmanager
def registry_of(bootstrap: str | None) -> Iterator[Registry]:
    """Yield the registry, read to its end. A node of this directory that does not run is started for the time."""
    from strandline.pipelines.run.local_node import find_ground, has_node, running_node
    from strandline.pipelines.versions.version_store import Registry

    with plain_failures():
        if bootstrap is None and not has_node():
            bootstrap = running_node() or BOOTSTRAP_DEFAULT
        if bootstrap is not None:
            bootstrap = connect(bootstrap, None, TIMEOUT_S_DEFAULT).servers
        with find_ground(bootstrap) as ground, Registry(ground.wait_ready()) as registry:
            yield registry.refresh()


def known_pipeline(registry: Registry, name: str) -> PipelineState:
    state = registry.pipeline(name)
    if state is None:
        meant = did_you_mean(name, registry.pipelines)
        raise NotFound(
            f"there is no pipeline {name!r}", hint=f"{meant}?" if meant else "see them with `strandline pipeline list`"
        )
    return state


@dataclass(frozen=True)
class QueryGroup:
    """The consumer group of a query. Spark reads, so it has positions and never a member."""

    pipeline: str
    version: int
    state: str
    """`running`, or what `state_in_words` says."""

    def __str__(self) -> str:
        return f"pipeline {self.pipeline}, {self.state}"

    def to_json(self) -> dict[str, object]:
        return {"pipeline": self.pipeline, "version": self.version, "state": self.state}


def query_groups(cluster: Cluster, group_ids: Iterable[str]) -> dict[str, QueryGroup]:
    """Return those of the groups that belong to queries of pipelines; the registry is read only if some may."""
    if not is_spoken(cluster) or not any(each.startswith("pipeline.") for each in group_ids):
        return {}
    try:
        from strandline.pipelines.versions.version_store import Registry, RegistryFailed
    except ImportError:
        # Pipelines are an extra, and groups are shown without it, too.
        return {}
    found = {}
    now_ms = time.time_ns() // 1_000_000
    try:
        with Registry(cluster.servers, timeout_s=cluster.timeout_s) as registry:
            for name, state in registry.refresh().pipelines.items():
                runs = registry.runs(name)
                for group_id, version in group_ids_of(state).items():
                    found[group_id] = QueryGroup(name, version, state_in_words(runs.get(version), now_ms))
    except RegistryFailed:
        # Groups are shown all the same, as any other cluster would have them.
        return {}
    return found


def group_ids_of(state: PipelineState) -> dict[str, int]:
    """Return the groups of all queries of a pipeline, with the version of each."""
    from strandline.pipelines.run.outputs import suffix_of

    return {
        f"pipeline.{state.name}.{dataset.replace(' ', '-')}{suffix_of(number)}": number
        for number, version in state.versions.items()
        for dataset in (*version.gone, *version.datasets)
    }


def state_in_words(run: RunState | None, now_ms: int) -> str:
    """Return the state of a run: `running`, `stopped`, `failed`; `lost` if its process is gone and said nothing."""
    if run is None:
        return "never run"
    if run.state in ("starting", "running") and not is_there(run, now_ms):
        return "lost"
    return run.state


def rebuild_in_words(rebuild: RebuildState) -> str:
    """Return the phase of a rebuild; or what it waits for, if no process works on it before a switch."""
    from strandline.pipelines.rebuild.phases import Phase

    # A process that ends lets go of the rebuild, whether it has built everything or was stopped in between.
    if not rebuild.owner and rebuild.phase == Phase.BUILDING.value:
        return f"version {rebuild.new_version} waits for another `pipeline rebuild`, or its --rollback"
    if not rebuild.owner and rebuild.phase == Phase.RETURNING.value:
        return f"version {rebuild.old_version} waits for another --rollback, or --finish"
    return rebuild.phase


def is_there(run: RunState, now_ms: int) -> bool:
    """Return whether a run goes on, as far as this machine can know."""
    from strandline.pipelines.versions import version_lease

    return version_lease.is_there(run, now_ms, here=platform.node())

"""What the commands about pipelines read: the registry of the cluster that was named, or of this directory's node."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, connect
from strandline.cli.common.failures import NotFound, did_you_mean
from strandline.cli.common.options import BOOTSTRAP_DEFAULT
from strandline.cli.pipeline.failures import plain_failures

if TYPE_CHECKING:
    from strandline.pipelines.versions.state import PipelineState, RunState
    from strandline.pipelines.versions.version_store import Registry

PipelineName = Annotated[str, typer.Argument(metavar="NAME", help="The pipeline.")]


@contextmanager
def registry_of(bootstrap: str | None) -> Iterator[Registry]:
    """The registry, read to its end. If this directory has a node that does not run, it is started for the time."""
    from strandline.pipelines.run.local_node import find_ground, has_node, running_node
    from strandline.pipelines.versions.version_store import Registry

    with plain_failures():
        if bootstrap is None and not has_node():
            bootstrap = running_node() or BOOTSTRAP_DEFAULT
        if bootstrap is not None:
            connect(bootstrap, None, TIMEOUT_S_DEFAULT)
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


def state_in_words(run: RunState | None, now_ms: int) -> str:
    """`running`, `stopped`, `failed`; or that it ended without a word."""
    if run is None:
        return "never run"
    if run.state in ("starting", "running") and not is_there(run, now_ms):
        return "lost"
    return run.state


def is_there(run: RunState, now_ms: int) -> bool:
    """Whether a run goes on, as far as can be told from here."""
    from strandline.pipelines.versions import version_lease as claiming

    return claiming.is_there(run, now_ms, here=platform.node())

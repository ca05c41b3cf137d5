"""What is checked before Java starts: all that can be refused without Spark. Nothing is created.

Java's start waits for these checks, so this module imports neither the source nor the sink of Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from strandline.pipelines.failures import PipelineRefused
from strandline.pipelines.language import graph
from strandline.pipelines.language.model import KnownDataset
from strandline.pipelines.run import outputs
from strandline.pipelines.run.checkpoint_files import LocalCheckpoint
from strandline.pipelines.run.source_schemas import SourceSchemas
from strandline.pipelines.versions.state import VersionState, checkpoint_of
from strandline.pipelines.versions.version_lease import Claim, claimed
from strandline.pipelines.versions.version_store import Registry


def check(registry: Registry, claim: Claim, *, makes_sources: bool, recovers: bool, files_are_here: bool = True) -> int:
    """Return the version that would run; PipelineRefused if it cannot.

    `files_are_here` says that Spark takes a path without a scheme for one of this machine.
    """
    pipeline = claim.pipeline
    graph.check_inputs(pipeline, of_others(registry.refresh().known_datasets(), pipeline.name))
    schemas = SourceSchemas(registry.bootstrap)
    for source in pipeline.sources.values():
        schemas.of(source)
    for dataset in pipeline.written:
        schemas.of(dataset)
    run, _ = claimed(claim, registry.entries(""))
    if not makes_sources:
        outputs.check_sources(registry.bootstrap, pipeline)
    state = registry.pipeline(pipeline.name)
    version = None if state is None else state.versions.get(run.version)
    if version is not None and files_are_here and not recovers:
        refuse_lost(_missing_here(claim, version), claim.checkpoints)
    return run.version


def of_others(known: Mapping[str, KnownDataset], pipeline: str) -> dict[str, KnownDataset]:
    """Return the datasets that do not belong to this pipeline."""
    return {name: each for name, each in known.items() if not name.startswith(f"{pipeline}.")}


def refuse_lost(lost: Sequence[str], checkpoints: str) -> None:
    if lost:
        raise PipelineRefused(
            f"the checkpoint of {', '.join(lost)} is gone from {checkpoints}, and without it everything would be "
            "written a second time: put it back, or say --recover to rebuild it from the log"
        )


def _missing_here(claim: Claim, version: VersionState) -> list[str]:
    """Return the datasets of the file that have run, and have no whole checkpoint on this machine."""
    missing = []
    for name in outputs.public_topics_of(claim.pipeline):
        known = version.datasets.get(name)
        local = LocalCheckpoint.of(checkpoint_of(claim.checkpoints, claim.pipeline.name, version.number, name))
        if known is not None and known.query_id is not None and local is not None:
            is_whole = (local.directory / "metadata").exists() and not local.is_half_made
            missing += [] if is_whole else [name]
    return missing

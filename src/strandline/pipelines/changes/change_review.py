"""Looks at a file before it runs: what it means for each dataset of a version that has run (docs/pipelines.md).

A registry of an older program has no forms of state, and forms that another Spark or Python made cannot be compared.
Then the text that the version has kept is planned once more, beside the file as it is now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from strandline.client.failures import ClientFailed
from strandline.pipelines.changes import plan_reading
from strandline.pipelines.changes.file_changes import Change, changes_of
from strandline.pipelines.language.loading import load
from strandline.pipelines.language.model import Pipeline
from strandline.pipelines.run import compiling
from strandline.pipelines.run.compiling import Wiring
from strandline.pipelines.run.local_node import HOME
from strandline.pipelines.versions.state import DatasetState, VersionState
from strandline.pipelines.versions.version_files import digest_of, file_of
from strandline.pipelines.versions.version_handle import datasets_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def is_same_text(version: VersionState, pipeline: Pipeline) -> bool:
    return version.digest in ("", digest_of(Path(pipeline.file).read_bytes()))


def review(
    spark: SparkSession, pipeline: Pipeline, wiring: Wiring, before: VersionState, planned: Mapping[str, DatasetState]
) -> list[Change]:
    """Return what becomes of each dataset of the version `before` when it runs as `planned`."""
    is_same = is_same_text(before, pipeline)
    if not is_same:
        before = _with_forms(spark, pipeline.name, wiring, before)
    return changes_of(before, planned, is_same_text=is_same)


def _with_forms(spark: SparkSession, name: str, wiring: Wiring, version: VersionState) -> VersionState:
    made_with = plan_reading.made_with()
    if all(each.form_made_with == made_with for each in version.datasets.values()):
        return version
    try:
        pipeline = load(file_of(version, name, home=HOME), known=None)
        forms = datasets_of(pipeline, compiling.compile(spark, pipeline, wiring))
    except ClientFailed:
        # It does not run any more, so nothing can be said of its state.
        return version
    datasets = {
        each.name: replace(each, form=now.form, plan=now.plan, form_made_with=now.form_made_with)
        if each.form_made_with != made_with and (now := forms.get(each.name)) is not None
        else each
        for each in version.datasets.values()
    }
    return replace(version, datasets=datasets)

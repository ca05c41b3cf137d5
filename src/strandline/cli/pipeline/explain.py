"""`strandline pipeline explain`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.common.failures import CommandFailed, Unreachable
from strandline.cli.common.key_values import key_values
from strandline.cli.common.options import AsJson, GroundBootstrap
from strandline.cli.common.output import Output
from strandline.cli.pipeline.failures import check_file, plain_failures
from strandline.cli.pipeline.reading import registry_of
from strandline.cli.pipeline.run import File, SparkSettings, Verbose

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strandline.pipelines.language.model import Dataset, KnownDataset, Pipeline, SourceTopic
    from strandline.pipelines.run.compiling import CompiledQuery

NOWHERE = "127.0.0.1:9"
"""Frames are made, and nothing is asked of a cluster for that."""


def explain(
    file: File,
    plan: Annotated[
        bool, typer.Option("--plan", help="Start Spark, too: it checks functions and SQL, and tells columns and state.")
    ] = False,
    diff: Annotated[
        bool, typer.Option("--diff", help="Say instead what a run of the file would change for each dataset.")
    ] = False,
    bootstrap: GroundBootstrap = None,
    settings: SparkSettings = None,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Say what a file declares: what each dataset reads and writes. Nothing is run.

    Functions and SQL queries are checked by Spark alone, so only with --plan. A cluster is needed only for --diff, for
    datasets of other pipelines, and with --plan for schemas of a registry.
    """
    check_file(file)
    spark_settings = key_values(settings, option="--set")
    output = Output(as_json=as_json)
    with plain_failures(verbose=verbose):
        from strandline.pipelines.language import graph
        from strandline.pipelines.language.loading import load

        pipeline = load(file, known=None)
        if diff:
            asked = (lambda known, at: _planned(pipeline, known, at, spark_settings, verbose=verbose)) if plan else None
            _show_changes(output, pipeline, bootstrap, asked)
            return
        known: dict[str, KnownDataset] = {}
        if graph.outside_inputs(pipeline):
            known = _of_other_pipelines(pipeline, bootstrap)
            graph.check_inputs(pipeline, known)
        if not as_json:
            _show(output, pipeline, known)
            output.flush()
        schemas_at = _schemas_at(pipeline, bootstrap) if plan else ""
        queries = _planned(pipeline, known, schemas_at, spark_settings, verbose=verbose)[1] if plan else []
        compiled = {each.name: each for each in queries}
    if as_json:
        for each in _objects(pipeline, compiled):
            output.json_line(each)
    elif compiled:
        _show_state(output, compiled)


def _show_changes(
    output: Output,
    pipeline: Pipeline,
    bootstrap: str | None,
    ask_spark: Callable[[dict[str, KnownDataset], str], tuple[SparkSession, list[CompiledQuery]]] | None,
) -> None:
    from strandline.pipelines.changes.change_review import is_same_text, review
    from strandline.pipelines.changes.file_changes import declared_changes
    from strandline.pipelines.language import graph
    from strandline.pipelines.run.compiling import Wiring
    from strandline.pipelines.run.outputs import planned_datasets
    from strandline.pipelines.run.source_schemas import schemas_by_query
    from strandline.pipelines.versions.state import VersionState, pinned
    from strandline.pipelines.versions.version_handle import datasets_of

    with registry_of(bootstrap) as registry:
        state, known = registry.pipeline(pipeline.name), registry.known_datasets()
        schemas_at = registry.bootstrap
    last = None if state is None else state.current
    before = last or VersionState(1)
    others = {name: each for name, each in pinned(known, before).items() if not name.startswith(f"{pipeline.name}.")}
    graph.check_inputs(pipeline, others)
    if ask_spark is None:
        declared = planned_datasets(pipeline, before.number, schemas_by_query(pipeline, schemas_at))
        found = declared_changes(before, declared, is_same_text=is_same_text(before, pipeline))
    else:
        spark, compiled = ask_spark(others, schemas_at)
        planned = datasets_of(pipeline, compiled)
        found = review(spark, pipeline, Wiring(NOWHERE, known=others, schemas_at=schemas_at), before, planned)
    if output.as_json:
        for each in found:
            told = {"pipeline": pipeline.name, "version": last and last.number, "dataset": each.dataset}
            output.json_line({**told, "change": each.verdict.value, "reason": each.reason})
        return
    if last is None:
        output.line(_first_run_in_words(pipeline, schemas_at))
        output.table(["dataset", "change"], [(each.dataset, each.verdict.value) for each in found])
        return
    output.line(f"{pipeline.file} beside version {last.number} of {pipeline.name}")
    output.table(["dataset", "change", "reason"], [(each.dataset, each.verdict.value, each.reason) for each in found])


def _first_run_in_words(pipeline: Pipeline, cluster: str) -> str:
    options = {name.lower() for each in pipeline.sources.values() for name in each.options}
    starts = ", or from the startingOffsets of a source" if "startingoffsets" in options else ""
    return (
        f"{pipeline.name} has not run on the cluster {cluster} yet: every dataset would be built from the beginning of "
        f"its inputs{starts}"
    )


def _of_other_pipelines(pipeline: Pipeline, bootstrap: str | None) -> dict[str, KnownDataset]:
    from strandline.pipelines.failures import PipelineRefused
    from strandline.pipelines.language import graph

    try:
        with registry_of(bootstrap) as registry:
            return registry.known_datasets()
    except Unreachable as unreachable:
        # More often than not a name is only mistyped, and then a cluster is not what is missing.
        try:
            graph.check_inputs(pipeline, {})
        except PipelineRefused as refused:
            raise CommandFailed(
                str(refused), hint=f"or name the cluster of that pipeline with --bootstrap: {unreachable.message}"
            ) from unreachable
        raise


def _schemas_at(pipeline: Pipeline, bootstrap: str | None) -> str:
    """Return the cluster whose registry has schemas of sources; empty if no source needs it."""
    if not any(each.is_of_registry for each in pipeline.sources.values()):
        return ""
    with registry_of(bootstrap) as registry:
        return registry.bootstrap


def _planned(
    pipeline: Pipeline, known: dict[str, KnownDataset], schemas_at: str, settings: dict[str, str], *, verbose: bool
) -> tuple[SparkSession, list[CompiledQuery]]:
    from strandline.pipelines.run.stages import Stages

    with closing(Stages(sys.stderr)) as stages, stages.stage("asking Spark"):
        import strandline.spark
        from strandline.pipelines.run import compiling, queries

        more: dict[str, Any] = settings
        spark = strandline.spark.session(f"explain {pipeline.name}", verbose=verbose, **more)
        queries.use(spark)
        wiring = compiling.Wiring(NOWHERE, known=known, schemas_at=schemas_at)
        return spark, compiling.compile(spark, pipeline, wiring)


# What the file says


def _show(output: Output, pipeline: Pipeline, known: dict[str, KnownDataset]) -> None:
    output.line(f"pipeline {pipeline.name} ({pipeline.file})")
    for source in pipeline.sources.values():
        output.line("")
        output.line(f"source {source.name}")
        output.hanging("  reads    ", "           ", source_in_words(source))
    for dataset in pipeline.datasets.values():
        output.line("")
        output.line(f"{dataset.kind.value} {dataset.name}{f': {dataset.comment}' if dataset.comment else ''}")
        reads = ", ".join(_input_in_words(pipeline, dataset, each, known) for each in dataset.inputs)
        output.hanging("  reads    ", "           ", reads or "nothing of the pipeline")
        output.hanging("  writes   ", "           ", written_in_words(dataset))


def source_in_words(source: SourceTopic) -> str:
    kind = f"as a table, the newest record of each {', '.join(source.key)}" if source.is_table else "as a stream"
    words = [f"topic {source.topic} {kind}"]
    if source.is_of_registry:
        words.append(f"values by the newest schema of {source.subject} in the registry")
    else:
        words.append(f"values are JSON: {source.schema}" if source.schema else "records as they are, key and value")
    if source.watermark is not None:
        words.append(f"rows later than {source.watermark.delay} behind the newest {source.watermark.column} are late")
    if source.dead_letters is not None:
        words.append(f"what does not parse goes to the topic {source.dead_letters}")
    elif source.schema and not source.is_table:
        words.append("what does not parse ends the query")
    words += [f"{name}={value}" for name, value in source.options.items()]
    return "; ".join(words)


def written_in_words(dataset: Dataset) -> str:
    if not dataset.kind.has_topic:
        return "nothing: it is a part of whatever reads it"
    if dataset.kind.has_keys:
        where = f"topic {dataset.topic}, compacted, a record for each {', '.join(dataset.key)}"
    else:
        where = f"topic {dataset.topic}, appended to" + (f", by {', '.join(dataset.key)}" if dataset.key else "")
    partitions = f"{dataset.partitions} partitions" if dataset.partitions else "as many partitions as its first input"
    every = f"; a batch every {dataset.trigger}" if dataset.trigger else ""
    return f"{where}; mode {dataset.output_mode}; {partitions}{every}"


def _input_in_words(pipeline: Pipeline, dataset: Dataset, name: str, known: dict[str, KnownDataset]) -> str:
    if name in pipeline.sources:
        is_table = pipeline.sources[name].is_table
    elif name in pipeline.datasets:
        if not pipeline.datasets[name].kind.has_topic:
            return f"{name} (as a part)"
        is_table = pipeline.datasets[name].kind.has_keys
    else:
        is_table = known[name].kind.has_keys
    if name in dataset.changes:
        return f"{name} (its changes, a stream)"
    return f"{name} (a table, read again for each batch)" if is_table else f"{name} (a stream)"


# What Spark says


def _show_state(output: Output, compiled: dict[str, CompiledQuery]) -> None:
    from strandline.pipelines.run.queries import stateful_operators

    output.line("")
    output.line("queries")
    rows = [
        (name, ", ".join(each.reads), each.default_topic, ", ".join(stateful_operators(each.frame)) or "none")
        for name, each in compiled.items()
    ]
    output.table(["query", "reads", "writes", "state that Spark keeps"], rows)
    for name, each in compiled.items():
        output.hanging(f"{name}: ", "    ", columns_of(each.schema))


def columns_of(schema: str) -> str:
    from pyspark.sql.types import StructType

    found = StructType.fromJson(_parsed(schema))
    return ", ".join(f"{each.name} {each.dataType.simpleString()}" for each in found.fields)


def _parsed(schema: str) -> dict[str, Any]:
    import json

    told = json.loads(schema)
    assert isinstance(told, dict)
    return told


def _objects(pipeline: Pipeline, compiled: dict[str, CompiledQuery]) -> list[dict[str, object]]:
    from strandline.pipelines.run.queries import stateful_operators

    found: list[dict[str, object]] = []
    for dataset in pipeline.datasets.values():
        query = compiled.get(dataset.name)
        found.append(
            {
                "pipeline": pipeline.name,
                "dataset": dataset.name,
                "kind": dataset.kind.value,
                "inputs": list(dataset.inputs),
                "changes": sorted(dataset.changes),
                "topic": dataset.topic or None,
                "key": list(dataset.key),
                "mode": dataset.output_mode if dataset.kind.has_topic else None,
                "reads": None if query is None else list(query.reads),
                "columns": None if query is None else columns_of(query.schema),
                "state": None if query is None else list(stateful_operators(query.frame)),
            }
        )
    return found

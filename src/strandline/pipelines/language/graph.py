"""What reads what: checks of a whole file, and the order in which its datasets can be run (pure)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from strandline.pipelines.failures import guess, refused
from strandline.pipelines.language.declaring import Declarations
from strandline.pipelines.language.model import Dataset, Pipeline, Place, SourceTopic

_DECORATE: Final = "decorate a function with @pipeline.stream"


def arranged(declared: Declarations, name: str, *, known: Collection[str] | None = ()) -> Pipeline:
    """Return the pipeline, with each dataset after what it reads; PipelineRefused if the file does not hold together.

    `known` are the datasets of other pipelines; None leaves the check of unknown inputs for later.
    """
    if not any(each.kind.has_topic for each in declared.datasets.values()):
        raise refused(
            f"{declared.file} declares no stream, table or view, so there is nothing to run: "
            f"{'say CREATE STREAM name AS SELECT ...' if _is_sql(declared.file) else _DECORATE}"
        )
    _check_changes(declared)
    if known is not None:
        _check_inputs(declared.sources, declared.datasets, known)
    _check_writers(declared)
    return Pipeline(name, declared.file, dict(declared.sources), _ordered(declared.datasets))


def check_inputs(pipeline: Pipeline, known: Collection[str]) -> None:
    """Refuse an input that is neither in the file nor a dataset of another pipeline."""
    _check_inputs(pipeline.sources, pipeline.datasets, known)


def outside_inputs(pipeline: Pipeline) -> list[str]:
    """Inputs that the file does not declare: datasets of other pipelines."""
    named = {each: None for dataset in pipeline.datasets.values() for each in dataset.inputs}
    return [each for each in named if each not in pipeline.sources and each not in pipeline.datasets]


def _check_inputs(sources: Mapping[str, SourceTopic], datasets: Mapping[str, Dataset], known: Collection[str]) -> None:
    names = [*sources, *datasets, *known]
    for dataset in datasets.values():
        for each in dataset.inputs:
            if each not in names:
                source = (
                    f"CREATE SOURCE {each} (...)"
                    if dataset.at and _is_sql(dataset.at.file)
                    else f"pipeline.source({each!r}, ...)"
                )
                raise refused(
                    f"{dataset.name} reads {each}, which is neither declared in this file nor a dataset of another "
                    f"pipeline{guess(each, names)}: correct the name, or declare {source}",
                    dataset.at,
                )


def _is_sql(file: str) -> bool:
    """Return whether the dataset is a query in SQL."""
    return file.endswith(".sql")


def _check_changes(declared: Declarations) -> None:
    for dataset in declared.datasets.values():
        for each in sorted(dataset.changes):
            if each not in dataset.inputs:
                raise refused(
                    f"{dataset.name} has changes={each!r}, which is none of its inputs"
                    f"{guess(each, dataset.inputs)}: make it a parameter of the function",
                    dataset.at,
                )
            source, read = declared.sources.get(each), declared.datasets.get(each)
            if (source is not None and not source.is_table) or (read is not None and not read.kind.has_keys):
                raise refused(
                    f"{dataset.name} reads the changes of {each}, which is no table: leave it out of changes, "
                    "what it reads is a stream already",
                    dataset.at,
                )


def _check_writers(declared: Declarations) -> None:
    writers: dict[str, tuple[str, Place | None]] = {}
    for source in declared.sources.values():
        # Sources may share one: each letter tells where it comes from.
        if source.dead_letters is not None:
            writers[source.dead_letters] = (f"the dead letters of {source.name}", source.at)
    for dataset in declared.datasets.values():
        if not dataset.kind.has_topic:
            continue
        if dataset.topic in writers:
            other, at = writers[dataset.topic]
            raise refused(
                f"{dataset.name} and {other} (at {at}) both write the topic {dataset.topic}: give one of them "
                "another topic, or join them with union in one function",
                dataset.at,
            )
        writers[dataset.topic] = (dataset.name, dataset.at)
    for source in declared.sources.values():
        if source.topic in writers:
            other, at = writers[source.topic]
            raise refused(
                f"the source {source.name} reads the topic {source.topic}, which {other} (at {at}) writes: name "
                f"{other} as the input instead of a source, or write another topic",
                source.at,
            )


def dead_letters_behind(pipeline: Pipeline, dataset: Dataset) -> str | None:
    """Return the topic of dead letters of the first source, in the order of inputs, that a dataset comes of."""
    for name in dataset.inputs:
        if name in pipeline.datasets:
            found = dead_letters_behind(pipeline, pipeline.datasets[name])
        else:
            found = pipeline.sources[name].dead_letters if name in pipeline.sources else None
        if found is not None:
            return found
    return None


def sources_of(pipeline: Pipeline, dataset: Dataset) -> list[SourceTopic]:
    """Return the sources that the query of a dataset reads, through temporary views."""
    found: dict[str, SourceTopic] = {}
    for name in dataset.inputs:
        inner = pipeline.datasets.get(name)
        if inner is not None and not inner.kind.has_topic:
            found |= {each.name: each for each in sources_of(pipeline, inner)}
        elif name in pipeline.sources:
            found[name] = pipeline.sources[name]
    return list(found.values())


def _ordered(datasets: Mapping[str, Dataset]) -> dict[str, Dataset]:
    """Return the datasets in the file's order, but each after what it reads."""
    done: dict[str, Dataset] = {}
    path: list[str] = []

    def visit(name: str) -> None:
        if name in done or name not in datasets:
            return
        if name in path:
            circle = [*path[path.index(name) :], name]
            raise refused(
                f"{' -> '.join(reversed(circle))} is a cycle, each reads the one before it: "
                "take one of these inputs away",
                datasets[name].at,
            )
        path.append(name)
        for each in datasets[name].inputs:
            visit(each)
        path.pop()
        done[name] = datasets[name]

    for name in datasets:
        visit(name)
    return done

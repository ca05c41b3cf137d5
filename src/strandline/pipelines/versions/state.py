"""What a cluster remembers of its pipelines, and how that is written (pure).

    PipelineState       a name, its versions, and which of them the name means
      VersionState      one reading of the file: its datasets, and where its checkpoints lie
        DatasetState    where one dataset writes, and what a reader gets back
      RebuildState      a version that takes the place of another: how far that is
    RunState            a process that runs a version: alive or how it ended, how far each query is
    Command             what a process that runs a pipeline is asked to do

All of it is JSON. What is missing has its default and what is not known is passed over, so an older program reads what
a newer one wrote.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final, Self

from strandline.pipelines.language.model import Kind, KnownDataset

ALIVE_MS_MAX: Final = 10_000
"""A process that said nothing for so long is taken for dead."""

STARTING: Final = "starting"
RUNNING: Final = "running"
STOPPED: Final = "stopped"
"""It was asked to, or did all there was to do (`--once`)."""
FAILED: Final = "failed"

STOP: Final = "stop"
"""The verb of the command that ends a run."""

Offsets = Mapping[str, Mapping[str, int]]
"""{topic: {partition: offset}}, as Spark's checkpoints have it."""


class _Written:
    """To JSON and back: nested values are of the classes that `_NESTED` names."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        return {name: _plain(value) for name, value in asdict(self).items()}  # type: ignore[call-overload]

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Self:
        known = {each.name for each in fields(cls)}  # type: ignore[arg-type]
        return cls(**{name: _typed(cls, name, value) for name, value in told.items() if name in known})


@dataclass(frozen=True, slots=True)
class DatasetState(_Written):
    name: str
    kind: Kind
    topic: str
    """Where it writes now: the public name, or one of the version's own."""
    public_topic: str
    """The name that the file says."""
    schema: str = ""
    key: tuple[str, ...] = ()
    mode: str = "append"
    reads: tuple[str, ...] = ()
    """The topics that its query reads."""
    stateful: tuple[str, ...] = ()
    """The operators for which Spark keeps state; none: what it wrote follows from the input alone, batch by batch."""
    query_id: str | None = None
    """Of the streaming query, which is also the id of its sink; None: it was never started."""
    streams: tuple[str, ...] = ()
    """Those of `reads` that are read as streams, which the checkpoint has positions in."""
    form: tuple[str, ...] = ()
    """What its state means, in words that two runs can compare (`plan_form`)."""
    plan: str = ""
    """A digest of all that it does with its inputs."""
    form_made_with: str = ""
    """The form's format, and the versions that it depends on; empty: none was kept."""
    schemas: tuple[str, ...] = ()
    """By which versions of a registry's subjects it reads its sources, `source: version 3 of subject`."""
    reader_schema: str = ""
    """By what its values are read, if they are written by a schema of a registry; empty: they are JSON."""

    @property
    def is_own(self) -> bool:
        """Whether the topic belongs to the version, and not to the public."""
        return self.topic != self.public_topic


@dataclass(frozen=True, slots=True)
class SourceStart(_Written):
    """Where a query began to read a source, or will."""

    topic: str
    topic_id: str = ""
    """Empty if only the topic's beginning, or offsets that the file names, are meant."""
    offsets: Mapping[str, int] = field(default_factory=dict)
    """By partition; one that is not named here is read from its first record on."""


@dataclass(frozen=True, slots=True)
class VersionState(_Written):
    number: int
    file: str = ""
    digest: str = ""
    """Of the file's text."""
    text: str = ""
    """The file's text, so that the version can run when the file has been edited; empty if that was too much."""
    checkpoints: str = ""
    """The directory under which `checkpoint_of` has a directory for each dataset."""
    created_ms: int = 0
    datasets: Mapping[str, DatasetState] = field(default_factory=dict)
    starts: Mapping[str, Mapping[str, SourceStart]] = field(default_factory=dict)
    """By dataset and source, noted before the first batch: what must be read again begins there, too."""
    gone: Mapping[str, DatasetState] = field(default_factory=dict)
    """Datasets that have run and are not in the file any more. Should one come back, it goes on where it was."""


@dataclass(frozen=True, slots=True)
class RebuildState(_Written):
    """A version that is to take the place of another. The phases are those of `rebuilding`."""

    phase: str
    old_version: int
    new_version: int
    owner: str = ""
    """The process that works on it."""
    heartbeat_ms: int = 0
    started_ms: int = 0
    sink_id: str = ""
    """Of the one batch that is written to the public topics."""
    public_ends: Offsets = field(default_factory=dict)
    """The committed ends of the public topics when the old version had let go."""
    version_ends: Offsets = field(default_factory=dict)
    """Those of the new version's own topics, which hold its state."""
    from_beginning: bool = False
    """Whether the new version reads its sources from their first records, wherever the old one began."""


@dataclass(frozen=True, slots=True)
class PipelineState(_Written):
    name: str
    active: int = 1
    """The version that the name means."""
    versions: Mapping[int, VersionState] = field(default_factory=dict)
    rebuild: RebuildState | None = None
    newest: int = 1
    """The greatest number that a version ever had: none is given twice."""

    @property
    def current(self) -> VersionState | None:
        return self.versions.get(self.active)


@dataclass(frozen=True, slots=True)
class QueryProgress(_Written):
    """How far one query is. Rows are counted since the version began, over all its runs."""

    state: str = STARTING
    batch_id: int = -1
    rows: int = 0
    """Rows that were read."""
    late_rows: int = 0
    """Rows that came after the watermark had passed, and were dropped."""
    rows_per_second: float = 0.0
    lag: int | None = None
    watermark: str | None = None
    batch_ms: int | None = None
    """How long the last batch took."""
    written_rows: int | None = None
    """None: not known, because the sink does not count them or an older release ran the query."""


@dataclass(frozen=True, slots=True)
class RunState(_Written):
    pipeline: str
    version: int
    owner: str
    """An id of the process; one that finds another id here has lost the pipeline to it."""
    state: str = STARTING
    pid: int = 0
    host: str = ""
    started_ms: int = 0
    heartbeat_ms: int = 0
    once: bool = False
    failure: str | None = None
    log: str = ""
    """The file that the run logs to, on its host; empty: none."""
    queries: Mapping[str, QueryProgress] = field(default_factory=dict)

    def is_alive(self, now_ms: int) -> bool:
        return self.state in (STARTING, RUNNING) and now_ms - self.heartbeat_ms < ALIVE_MS_MAX


@dataclass(frozen=True, slots=True)
class Command(_Written):
    """A command to the process that runs the pipeline. One from before the run began is not meant for it."""

    pipeline: str
    verb: str
    id: str
    asked_ms: int = 0
    version: int | None = None
    """None: whichever runs."""


_NESTED: Final[dict[tuple[str, str], Any]] = {
    ("DatasetState", "kind"): Kind,
    ("DatasetState", "key"): tuple,
    ("DatasetState", "reads"): tuple,
    ("DatasetState", "stateful"): tuple,
    ("DatasetState", "streams"): tuple,
    ("DatasetState", "form"): tuple,
    ("DatasetState", "schemas"): tuple,
    ("VersionState", "datasets"): lambda told: {name: DatasetState.from_json(each) for name, each in told.items()},
    ("VersionState", "starts"): lambda told: {
        query: {name: SourceStart.from_json(each) for name, each in sources.items()} for query, sources in told.items()
    },
    ("VersionState", "gone"): lambda told: {name: DatasetState.from_json(each) for name, each in told.items()},
    ("PipelineState", "versions"): lambda told: {int(n): VersionState.from_json(each) for n, each in told.items()},
    ("PipelineState", "rebuild"): lambda told: None if told is None else RebuildState.from_json(told),
    ("RunState", "queries"): lambda told: {name: QueryProgress.from_json(each) for name, each in told.items()},
}


def _typed(cls: type, name: str, value: Any) -> Any:
    made = _NESTED.get((cls.__name__, name))
    return value if made is None else made(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Kind):
        return value.value
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


def text_of(state: _Written) -> str:
    return json.dumps(state.to_json(), separators=(",", ":"), sort_keys=True)


# What the parts of a version are called. A dataset may be named in words (`dead letters of orders`), and neither a
# group nor a checkpoint may have blanks in its name.


def checkpoint_of(checkpoints: str, pipeline: str, version: int, dataset: str) -> str:
    return f"{checkpoints.rstrip('/')}/{pipeline}/v{version}/{plain_name(dataset)}"


def query_name_of(pipeline: str, version: int, dataset: str) -> str:
    return f"{pipeline}.v{version}.{plain_name(dataset)}"


def plain_name(dataset: str) -> str:
    return re.sub(r"[^a-zA-Z0-9._-]+", "-", dataset)


def known_datasets(pipelines: Mapping[str, PipelineState]) -> dict[str, KnownDataset]:
    """What the names of datasets mean now, by `dataset` and by `pipeline.dataset`.

    Where two pipelines have a dataset of one name, it means that of the pipeline whose name comes first.
    """
    found: dict[str, KnownDataset] = {}
    for name, pipeline in sorted(pipelines.items()):
        version = pipeline.current
        for dataset in () if version is None else version.datasets.values():
            # A table is read where Kafka's clients read it: while a rebuild switches it, positions stay in one topic.
            topic = dataset.public_topic if dataset.kind.has_keys else dataset.topic
            known = KnownDataset(topic, dataset.schema, dataset.key, dataset.kind, dataset.reader_schema)
            found.setdefault(dataset.name, known)
            found[f"{name}.{dataset.name}"] = known
    return found


def pinned(known: Mapping[str, KnownDataset], version: VersionState | None) -> dict[str, KnownDataset]:
    """What names mean to a version that has read some of them before.

    A rebuild gives a stream another topic. Who has read the one before has positions there and goes on with it; its own
    next version begins with the other.
    """
    read = set() if version is None else {topic for each in version.datasets.values() for topic in each.reads}
    found = {}
    for name, each in known.items():
        before = sorted(topic for topic in read if unversioned(topic) == unversioned(each.topic))
        is_moved = each.kind is Kind.STREAM and each.topic not in read and before
        found[name] = replace(each, topic=before[-1]) if is_moved else each
    return found


def unversioned(topic: str) -> str:
    """Return the name that the file says, of a topic that may belong to a version."""
    return re.sub(r"\.v\d+$", "", topic)

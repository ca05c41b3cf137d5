"""The decorators: what a pipeline's file says is noted here while it is loaded, and nothing of it is run.

A decorated function stays the plain function it is, so that it can be called with frames in a test. Outside of a load
a declaration is checked and forgotten.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from strandline.pipelines.failures import guess, refused
from strandline.pipelines.language.checks import check_dataset, check_name, check_source, watermark_of
from strandline.pipelines.language.model import Dataset, Kind, Place, SourceTopic, Watermark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ARGUMENTS: Final = (
    "name",
    "topic",
    "key",
    "null_key",
    "changes",
    "partitions",
    "mode",
    "trigger",
    "options",
    "comment",
    "schema",
)

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass
class Declarations:
    """What a file has declared so far."""

    file: str
    name: str | None = None
    sources: dict[str, SourceTopic] = field(default_factory=dict)
    datasets: dict[str, Dataset] = field(default_factory=dict)


_current: ContextVar[Declarations | None] = ContextVar("declarations", default=None)
_session: ContextVar[Any] = ContextVar("session", default=None)


@contextmanager
def collecting(file: str) -> Iterator[Declarations]:
    """Yield what is declared in the block."""
    declarations = Declarations(file)
    token = _current.set(declarations)
    try:
        yield declarations
    finally:
        _current.reset(token)


@contextmanager
def running_on(session: SparkSession) -> Iterator[None]:
    """Make `pipeline.spark()` this session in the block."""
    token = _session.set(session)
    try:
        yield
    finally:
        _session.reset(token)


# What a file says


def name(of: str) -> None:
    """Name the pipeline; without it, it has the name of the file."""
    name_pipeline(of, _here())


def name_pipeline(of: str, at: Place) -> None:
    check_name("the pipeline", of, at)
    if (declarations := _current.get()) is not None:
        if declarations.name not in (None, of):
            raise refused(f"the pipeline is named twice, {declarations.name} and {of}: keep one name", at)
        declarations.name = of


def spark() -> SparkSession:
    """Return the session that the pipeline runs on, for functions that read something other than their inputs."""
    session = _session.get()
    if session is None:
        raise refused(
            "pipeline.spark() is there while a function of the pipeline runs, not while the file is loaded: call it "
            "inside a decorated function",
            _here(),
        )
    return session  # type: ignore[no-any-return]


def source(
    name: str,
    *,
    topic: str | None = None,
    schema: str | None = None,
    key: str | Iterable[str] = (),
    watermark: tuple[str, str] | None = None,
    dead_letters: str | None = None,
    options: Mapping[str, str] | None = None,
) -> SourceTopic:
    """A topic that others write. With `schema` (Spark's DDL, or its StructType) its values are JSON; with `key` it is a
    table: the newest record of each key."""
    at = _here()
    declared = SourceTopic(
        name=name,
        topic=name if topic is None else topic,
        schema=_ddl(schema),
        key=_names(key),
        is_table=bool(_names(key)),
        watermark=None if watermark is None else _watermark(name, watermark, at),
        dead_letters=dead_letters,
        options={each: str(value) for each, value in (options or {}).items()},
        at=at,
    )
    declare_source(declared)
    return declared


class _Decorator:
    """`@pipeline.table`, bare or with arguments."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind

    @overload
    def __call__(self, function: Function) -> Function: ...

    @overload
    def __call__(
        self,
        *,
        name: str | None = None,
        topic: str | None = None,
        key: str | Iterable[str] = (),
        null_key: str | None = None,
        changes: str | Iterable[str] = (),
        partitions: int | None = None,
        mode: str | None = None,
        trigger: str | None = None,
        options: Mapping[str, str] | None = None,
        comment: str | None = None,
        schema: str | None = None,
    ) -> Callable[[Function], Function]: ...

    def __call__(self, function: Any = None, **said: Any) -> Any:
        if function is not None and not callable(function):
            raise refused(
                f"@pipeline.{self._word} takes its arguments by name, as in @pipeline.{self._word}(topic=...)", _here()
            )

        if unknown := [each for each in said if each not in _ARGUMENTS]:
            raise refused(
                f"@pipeline.{self._word} has no argument {unknown[0]}{guess(unknown[0], _ARGUMENTS)}: "
                f"it has {', '.join(_ARGUMENTS)}",
                _here(),
            )

        def decorate(function: Function) -> Function:
            declare_dataset(_dataset(self._kind, function, **said))
            return function

        return decorate if function is None else decorate(function)

    @property
    def _word(self) -> str:
        return "temporary_view" if self._kind is Kind.TEMPORARY else self._kind.value


stream: Final = _Decorator(Kind.STREAM)
table: Final = _Decorator(Kind.TABLE)
view: Final = _Decorator(Kind.VIEW)
temporary_view: Final = _Decorator(Kind.TEMPORARY)


def _dataset(
    kind: Kind,
    function: Callable[..., Any],
    *,
    name: str | None = None,
    topic: str | None = None,
    key: str | Iterable[str] = (),
    null_key: str | None = None,
    changes: str | Iterable[str] = (),
    partitions: int | None = None,
    mode: str | None = None,
    trigger: str | None = None,
    options: Mapping[str, str] | None = None,
    comment: str | None = None,
    schema: str | None = None,
) -> Dataset:
    code = getattr(function, "__code__", None)
    at = Place(_file_of(code.co_filename), code.co_firstlineno) if code is not None else _here()
    named = str(name or getattr(function, "__name__", ""))
    return Dataset(
        name=named,
        kind=kind,
        function=function,
        inputs=_inputs(named, function, at),
        changes=frozenset(_names(changes)),
        topic=topic or ("" if kind is Kind.TEMPORARY else named),
        key=_names(key),
        null_key=null_key,
        mode=mode,
        partitions=partitions,
        trigger=trigger,
        options={each: str(value) for each, value in (options or {}).items()},
        comment=comment if comment is not None else _first_line(function),
        at=at,
        schema=schema,
    )


# What was said, noted; SQL files come in here


def declare_source(declared: SourceTopic) -> None:
    check_source(declared)
    _note(declared)


def declare_dataset(declared: Dataset) -> None:
    check_dataset(declared)
    _note(declared)


def _note(declared: SourceTopic | Dataset) -> None:
    declarations = _current.get()
    if declarations is None:
        return
    before = declarations.sources.get(declared.name) or declarations.datasets.get(declared.name)
    if before is not None:
        raise refused(f"{declared.name} is declared already at {before.at}: give one of them another name", declared.at)
    if isinstance(declared, SourceTopic):
        declarations.sources[declared.name] = declared
    else:
        declarations.datasets[declared.name] = declared


# Arguments


def _watermark(name: str, said: object, at: Place) -> Watermark:
    if not (isinstance(said, tuple | list) and len(said) == 2 and all(isinstance(each, str) for each in said)):
        raise refused(f'the source {name} has watermark={said!r}: say it like watermark=("at", "10 minutes")', at)
    return watermark_of(name, str(said[0]), str(said[1]), at)


def _inputs(name: str, function: Callable[..., Any], at: Place) -> tuple[str, ...]:
    """Return the names of the parameters; those with a default are no inputs."""
    found = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise refused(f"{name} has the parameter {parameter}: each input is a parameter with its name", at)
        if parameter.default is parameter.empty:
            found.append(parameter.name)
    return tuple(found)


def _names(said: str | Iterable[str]) -> tuple[str, ...]:
    return (said,) if isinstance(said, str) else tuple(said)


def _ddl(schema: Any) -> str | None:
    """Return a schema as text. Spark's StructType is known by what it can do: Spark is not imported here."""
    if schema is None or isinstance(schema, str):
        return schema
    return ", ".join(
        f"`{each.name.replace('`', '``')}` {each.dataType.simpleString()}" for each in getattr(schema, "fields", [])
    )


def _first_line(function: Callable[..., Any]) -> str:
    return (inspect.getdoc(function) or "").partition("\n")[0]


# Where in the file


def _here() -> Place:
    """Return the line of the user's file that called this package."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    if frame is None:
        return Place("?", 0)
    return Place(_file_of(frame.f_code.co_filename), frame.f_lineno)


def _file_of(filename: str) -> str:
    declarations = _current.get()
    return declarations.file if declarations is not None and filename.endswith(declarations.file) else filename

"""The engines of all schema types, and the schemas that they parsed lately.

Parsing and comparing take milliseconds, so they run in a thread, one job at a time. A command is a generator: it yields
a `Job` and gets its result, or its exception. Between two jobs it runs on the loop that owns the state. The loop does
a `ParseJob` that is quick, because handing it to a thread takes longer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from strandline.schemas.failures import INVALID_SCHEMA, SCHEMA_TOO_LARGE, RegistryError
from strandline.schemas.types import TEXT_BYTES_MAX, InvalidSchema, ParsedSchema, SchemaType

PARSED_MAX: Final = 2000
"""Parsed schemas that are kept."""
PARSED_CHARACTERS_MAX: Final = 20_000_000
"""Characters of their texts together."""
QUICK_CHARACTERS_MAX: Final = 2_000
"""Characters of an Avro schema that is parsed in a fraction of a millisecond."""
_QUICK_TYPE: Final = "AVRO"

T = TypeVar("T")


@dataclass(frozen=True)
class SchemaSource:
    """What an engine needs to parse a schema."""

    type: str
    text: str
    references: tuple[tuple[str, str], ...] = ()
    """Name and text of each schema that it reaches, each after those that it needs itself."""

    @property
    def characters(self) -> int:
        return len(self.text) + sum(len(text) for _, text in self.references)


class Engines:
    """A table of schema types; not for several threads at once."""

    def __init__(self, types: Iterable[SchemaType]) -> None:
        self.types = {each.name: each for each in types}
        self._parsed: OrderedDict[SchemaSource, ParsedSchema] = OrderedDict()
        self._characters = 0

    def parse(self, source: SchemaSource) -> ParsedSchema:
        """Parse a schema, or raise RegistryError."""
        known = self._parsed.get(source)
        if known is not None:
            self._parsed.move_to_end(source)
            return known
        engine = self.types.get(source.type)
        if engine is None:
            raise RegistryError(INVALID_SCHEMA, f"Invalid schema type {source.type}")
        if len(source.text) > TEXT_BYTES_MAX or len(source.text.encode("utf-8", "surrogatepass")) > TEXT_BYTES_MAX:
            raise RegistryError(SCHEMA_TOO_LARGE, f"The schema is larger than {TEXT_BYTES_MAX:,} bytes")
        try:
            parsed = engine.parse(source.text, dict(source.references))
        except InvalidSchema as error:
            raise RegistryError(INVALID_SCHEMA, f"Invalid schema of type {source.type}: {error}") from None
        self._keep(source, parsed)
        return parsed

    def is_quick(self, source: SchemaSource) -> bool:
        """Say whether a schema can be parsed between two requests: it is known, or short."""
        is_short = source.type == _QUICK_TYPE and source.characters <= QUICK_CHARACTERS_MAX
        return is_short or source in self._parsed

    def _keep(self, source: SchemaSource, parsed: ParsedSchema) -> None:
        self._parsed[source] = parsed
        self._characters += source.characters
        while len(self._parsed) > PARSED_MAX or self._characters > PARSED_CHARACTERS_MAX:
            oldest, _ = self._parsed.popitem(last=False)
            self._characters -= oldest.characters


Job = Callable[[Engines], Any]
"""Work for a thread: it reads no state."""


@dataclass(frozen=True)
class ParseJob(Generic[T]):
    """A job that parses a schema and takes something of it."""

    source: SchemaSource
    take: Callable[[ParsedSchema], T]

    def __call__(self, engines: Engines) -> T:
        return self.take(engines.parse(self.source))


Steps = Generator[Job, Any, T]
"""A command in progress."""


def in_thread(job: Callable[[Engines], T]) -> Steps[T]:
    """Hand a job out, and return its result."""
    result: T = yield job
    return result


def run(steps: Steps[T], engines: Engines) -> T:
    """Run a command to its end, here and now."""
    try:
        job = next(steps)
        while True:
            try:
                result = job(engines)
            except RegistryError as error:
                job = steps.throw(error)
            else:
                job = steps.send(result)
    except StopIteration as stop:
        answer: T = stop.value
        return answer

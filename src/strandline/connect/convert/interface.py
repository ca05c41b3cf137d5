"""What a converter is: bytes of a record to a value with its schema, and back.

The worker has a converter for keys, one for values and one for headers. A converter raises RecordFailed for one record
that it cannot convert, and RetriableFailure if it needs a server that is away.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, Generic, TypeVar

from strandline.connect.config import Config
from strandline.connect.schema import Schema

T = TypeVar("T")

SCHEMAS_KEPT_MAX: Final = 1000
"""Schemas that a converter or transform remembers, as Kafka's `schemas.cache.size`."""


class Converter:
    """Base of converters."""

    Config: ClassVar[type[Config]] = Config
    has_bulk: bool = False
    """Whether `to_values` may be used: all values have `bulk_schema`."""
    bulk_schema: Schema | None = None
    """The schema that each value of `to_values` has."""

    def __init__(self, config: Any, *, is_key: bool) -> None:
        self.config = config
        self.is_key = is_key

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        """Return the bytes of a value."""
        raise NotImplementedError

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        """Return the schema and the value of bytes."""
        raise NotImplementedError

    def from_values(self, topic: str, values: Sequence[Any]) -> list[bytes | None]:
        """Return the bytes of values that have no schema. If one fails, all do; `from_connect` tells which."""
        return [self.from_connect(topic, None, each) for each in values]

    def to_values(self, topic: str, payloads: Sequence[bytes | None]) -> list[Any]:
        """Return the value of each payload. If one fails, all do; `to_connect` tells which."""
        return [self.to_connect(topic, each)[1] for each in payloads]

    def close(self) -> None:
        """Close connections."""


class SchemaCache(Generic[T]):
    """What was made of each schema.

    Schemas are compared by identity, because comparing large ones takes longer than most of what is made of them.
    """

    def __init__(self, make: Callable[[Schema], T], kept_max: int = SCHEMAS_KEPT_MAX) -> None:
        self._make = make
        self._kept_max = kept_max
        self._made: dict[int, tuple[Schema, T]] = {}

    def __call__(self, schema: Schema) -> T:
        found = self._made.get(id(schema))
        if found is not None:
            return found[1]
        made = self._make(schema)
        if len(self._made) >= self._kept_max:
            self._made.clear()
        # The schema is kept too: otherwise another one could get its id.
        self._made[id(schema)] = schema, made
        return made

"""Messages of Kafka's protocol: one class per message for all its versions.

The classes in `codec/messages` are generated from the texts in `codec/schema`; each carries the facts of its fields.
`message_codec` encodes and decodes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

VERSION_LAST = 0x7FFF
"""The `last` version of a field that was never removed."""


class Field(NamedTuple):
    """What the compiler must know of one field. `kafka_type` is Kafka's name or `struct`, `[]` before it for arrays."""

    name: str
    kafka_type: str
    first: int
    last: int = VERSION_LAST
    default: Any = 0
    nullable_first: int = VERSION_LAST + 1
    nullable_last: int = VERSION_LAST
    tag: int | None = None
    ignorable: bool = False
    plain: bool = False
    """True for a field that keeps its old encoding in flexible versions (the client id of the request header)."""
    struct: type[Message] | None = None

    def present(self, version: int) -> bool:
        return self.first <= version <= self.last

    def nullable(self, version: int) -> bool:
        return self.nullable_first <= version <= self.nullable_last


class Message:
    """The base of all generated classes. Equality and repr stand here once: making them per class costs start-up."""

    __slots__ = ()

    API_KEY: ClassVar[int] = -1
    VERSION_MIN: ClassVar[int] = 0
    VERSION_MAX: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = VERSION_LAST + 1
    FIELDS: ClassVar[tuple[Field, ...]] = ()

    _encoders: ClassVar[dict[int, Callable[[bytearray, Any], None]]]
    _decoders: ClassVar[dict[int, Callable[[Any, int, int, int], tuple[Any, int]]]]

    def __init_subclass__(cls) -> None:
        cls._encoders = {}
        cls._decoders = {}

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, field.name) == getattr(other, field.name) for field in self.FIELDS)

    def __repr__(self) -> str:
        fields = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in self.FIELDS)
        return f"{type(self).__name__}({fields})"

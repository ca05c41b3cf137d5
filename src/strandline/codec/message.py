"""Messages of Kafka's protocol: one class per message for all its versions, one compiled codec per class and version.

The classes in `codec/messages` are generated from the texts in `codec/schema`; each carries the facts of its fields.
At the first use of a class in a version, `codec/schema` turns these facts into a straight-line Python function; from
then on nothing is looked up at run time. Structs inside a message are messages too and can be encoded on their own,
so that an answer can be joined from cached parts.

What a peer sent is checked before it is believed: a count must fit in the bytes that are left, and all counts of one
message together in `elements_max`, before anything is allocated. Whatever is wrong, `MalformedMessage` says so.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from strandline.errors import MalformedMessage, UnsupportedVersion

if TYPE_CHECKING:
    from collections.abc import Callable

    Buffer = bytes | bytearray | memoryview

VERSION_LAST = 0x7FFF
"""The `last` version of a field that was never removed."""

ELEMENTS_MAX = 1_000_000
"""How many array elements one message may make us build, unless the caller says otherwise. A list counts as one too."""

COPY_BYTES_MAX = 65_536
"""Up to here a view is copied once as a whole: reading from `bytes` is cheaper than reading from a view."""


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


MessageT = TypeVar("MessageT", bound=Message)


def encode(message: Message, version: int) -> bytes:
    """Return the body of `message` in `version`, without header or length."""
    out = bytearray()
    encode_into(out, message, version)
    return bytes(out)


def encode_into(out: bytearray, message: Message, version: int) -> None:
    """Append the body of `message` in `version` to `out`.

    A value that the version cannot carry is dropped if the schema calls it ignorable, else `UnsupportedVersion` is
    raised; then `out` is as it was. A value of the wrong type or size is our own mistake and raises what Python raises.
    """
    encoder = message._encoders.get(version)
    if encoder is None:
        encoder = _compiled_encoder(type(message), version)
    start = len(out)
    try:
        encoder(out, message)
    except Exception as error:
        del out[start:]
        error.add_note(f"while encoding {type(message).__name__} version {version}")
        raise


def decode(
    cls: type[MessageT], version: int, buffer: Buffer, position: int = 0, *, elements_max: int = ELEMENTS_MAX
) -> tuple[MessageT, int]:
    """Return the message that begins at `position`, and the position behind it. Nothing in it refers to `buffer`."""
    decoder = cls._decoders.get(version)
    if decoder is None:
        decoder = _compiled_decoder(cls, version)
    size = len(buffer)
    if type(buffer) is not bytes and size <= COPY_BYTES_MAX:
        buffer = bytes(buffer)
    try:
        return decoder(buffer, position, size, elements_max)
    except (struct.error, IndexError):
        raise MalformedMessage(f"{cls.__name__} version {version}: the message ends too early") from None
    except UnicodeDecodeError as error:
        raise MalformedMessage(f"{cls.__name__} version {version}: a string is not UTF-8: {error.reason}") from None


def decode_exact(
    cls: type[MessageT], version: int, buffer: Buffer, position: int = 0, *, elements_max: int = ELEMENTS_MAX
) -> MessageT:
    """Return the message that begins at `position` and ends with `buffer`."""
    message, end = decode(cls, version, buffer, position, elements_max=elements_max)
    if end != len(buffer):
        raise MalformedMessage(f"{cls.__name__} version {version}: {len(buffer) - end} bytes too many")
    return message


def _check_version(cls: type[Message], version: int) -> None:
    if not cls.VERSION_MIN <= version <= cls.VERSION_MAX:
        raise UnsupportedVersion(
            f"{cls.__name__} has versions {cls.VERSION_MIN} to {cls.VERSION_MAX}, not version {version}"
        )


def _compiled_encoder(cls: type[Message], version: int) -> Callable[[bytearray, Any], None]:
    # The compiler is imported when it is needed first, so that importing a message stays cheap.
    from strandline.codec.schema.encoder import compile_encoder

    _check_version(cls, version)
    encoder = cls._encoders[version] = compile_encoder(cls, version)
    return encoder


def _compiled_decoder(cls: type[Message], version: int) -> Callable[[Any, int, int, int], tuple[Any, int]]:
    from strandline.codec.schema.decoder import compile_decoder

    _check_version(cls, version)
    decoder = cls._decoders[version] = compile_decoder(cls, version)
    return decoder

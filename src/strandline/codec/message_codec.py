"""Encodes and decodes messages: one compiled codec per class and version.

At the first use of a class in a version, `codec/schema` turns the facts of its fields into a straight-line Python
function; from then on nothing is looked up at run time. Structs inside a message are messages too and can be encoded
on their own, so that an answer can be joined from cached parts.

What a peer sent is checked before it is believed: a count must fit in the bytes that are left, and all counts of one
message together in `elements_max`, before anything is allocated. Whatever is wrong, `MalformedMessage` says so.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, TypeVar

from strandline.codec.message import Message
from strandline.errors import MalformedMessage, UnsupportedVersion

if TYPE_CHECKING:
    from collections.abc import Callable

    Buffer = bytes | bytearray | memoryview

ELEMENTS_MAX = 1_000_000
"""How many array elements one message may make us build, unless the caller says otherwise. A list counts as one too."""

COPY_BYTES_MAX = 65_536
"""Up to here a view is copied once as a whole: reading from `bytes` is cheaper than reading from a view."""

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

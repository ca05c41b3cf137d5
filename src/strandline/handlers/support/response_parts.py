"""Responses put together from parts that were encoded one by one, so that long ones can be made in slices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from strandline.codec.message import Message
from strandline.codec.message_codec import encode
from strandline.codec.primitives import write_uvarint
from strandline.handlers.support.context import EncodedResponse, RequestContext
from strandline.runtime.time_slicing import gradually


def joined(around: Message, version: int, parts: Iterable[bytes], *, tail_size: int = 0) -> bytes:
    """Encode `around`, whose last array is empty, with `parts` as the elements of that array.

    `tail_size` is the number of bytes behind the array, without the end of the tagged fields.
    """
    encoded = encode(around, version)
    flexible = version >= around.FLEXIBLE_FROM
    tail_at = len(encoded) - tail_size - flexible
    count_at = tail_at - (1 if flexible else 4)
    elements = list(parts)
    count = bytearray()
    if flexible:
        write_uvarint(count, len(elements) + 1)
    else:
        count += len(elements).to_bytes(4, "big")
    return b"".join((encoded[:count_at], count, *elements, encoded[tail_at:]))


def reply_in_parts(context: RequestContext, around: Message, parts: Iterator[bytes]) -> None:
    """Reply with `around`, whose last array gets `parts`; encode these in slices of a turn of the loop."""
    version = context.api_version
    gradually(context.node.runtime, parts, lambda encoded: context.reply(joined_response(around, version, encoded)))


def joined_response(around: Message, version: int, parts: Iterable[bytes]) -> EncodedResponse:
    return EncodedResponse(joined(around, version, parts))

"""A request as the bytes of one frame, and the message in the frame that answers it: for clients on plain sockets.

    request   size int32 | api key int16 | version int16 | correlation id int32 | client id string | [tags] | body
    answer    size int32 | correlation id int32 | [tags] | body

Tags are there from the version on that is flexible; only ApiVersions is answered without them, because a client that
asks it does not know yet what the broker speaks.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, TypeVar

from strandline.codec.message import Message
from strandline.codec.message_codec import ELEMENTS_MAX, decode, decode_exact
from strandline.codec.message_codec import encode_into as encode_message_into
from strandline.codec.messages.response_header import ResponseHeader
from strandline.errors import ErrorCode, MalformedMessage

Buffer = bytes | bytearray | memoryview

API_VERSIONS: Final = 18

_SIZE = Struct(">i")
_HEAD = Struct(">ihhih")
_CODE = Struct(">h")

ResponseT = TypeVar("ResponseT", bound=Message)


def request_frame(request: Message, version: int, *, correlation_id: int, client_id: bytes) -> bytearray:
    """The whole frame, its size in front."""
    frame = bytearray(_HEAD.pack(0, request.API_KEY, version, correlation_id, len(client_id)))
    frame += client_id
    if version >= request.FLEXIBLE_FROM:
        frame += b"\0"
    encode_message_into(frame, request, version)
    _SIZE.pack_into(frame, 0, len(frame) - _SIZE.size)
    return frame


def correlation_id_of(answer: Buffer) -> int:
    """Of a frame without its size."""
    if len(answer) < _SIZE.size:
        raise MalformedMessage("an answer without a correlation id")
    return int(_SIZE.unpack_from(answer)[0])


def answer_body_at(answer: Buffer, request: Message, version: int) -> int:
    """Where the body begins in a frame without its size, which answers `request` in `version`."""
    if request.API_KEY == API_VERSIONS or version < request.FLEXIBLE_FROM:
        return _SIZE.size
    return decode(ResponseHeader, 1, answer)[1]


def read_answer(answer: Buffer, request: Message, version: int, response_class: type[ResponseT]) -> ResponseT:
    """The message in a frame without its size, which answers `request` in `version`."""
    body_at = answer_body_at(answer, request, version)
    if request.API_KEY == API_VERSIONS and len(answer) >= body_at + _CODE.size:
        # A version that the broker does not know is answered in version 0, with the code that says so.
        (code,) = _CODE.unpack_from(answer, body_at)
        version = 0 if code == ErrorCode.UNSUPPORTED_VERSION else version
    # No element is shorter than a byte, and lists count, too: an answer about 100,000 partitions has 1,400,000.
    return decode_exact(response_class, version, answer, body_at, elements_max=max(ELEMENTS_MAX, len(answer) // 2))

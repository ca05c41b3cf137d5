"""The answers that come by one outgoing connection: bytes in, each answer handed to its request.

A frame is `length int32, correlation id int32`, tagged fields where the API has them, and the body. An answer that came
as a whole is handed out as a view of the transport's buffer; a longer one is collected first, which copies it once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from struct import Struct
from typing import Final, Protocol

from strandline.broker.network.transport import OutgoingTransport
from strandline.codec.wire import skip_tags
from strandline.errors import MalformedMessage, PeerError

log = logging.getLogger("strandline.broker")

OnBody = Callable[[memoryview | None, BaseException | None], object]

HEAD: Final = Struct(">ii")
HEAD_SIZE: Final = 8
CORRELATION_ID_SIZE: Final = 4


class Asked:
    """A request on its way."""

    __slots__ = ("correlation_id", "deadline", "flexible", "frame", "on_answer")

    def __init__(self, correlation_id: int, frame: bytes, flexible: bool, deadline: float, on_answer: OnBody) -> None:
        self.correlation_id = correlation_id
        self.frame = frame
        self.flexible = flexible
        self.deadline = deadline
        self.on_answer = on_answer


class AnswerOwner(Protocol):
    def on_connected(self, stream: AnswerStream) -> None: ...

    def on_answered(self, stream: AnswerStream) -> None:
        """Note that an answer has come; its request is called back next."""

    def on_over(self, stream: AnswerStream, reason: str) -> None:
        """Not by `end`. What is left in `asked` will not be answered."""


class AnswerStream:
    """The receiver of one connection."""

    def __init__(self, owner: AnswerOwner, frame_bytes_max: int) -> None:
        self._owner = owner
        self._frame_bytes_max = frame_bytes_max
        self.transport: OutgoingTransport | None = None
        self.asked: dict[int, Asked] = {}
        """What was sent and is not answered, by correlation id, in the order of sending."""
        self.is_connected = False
        self.is_over = False
        self._inbox: bytearray | None = None
        self._needed = 0

    def send(self, asked: Asked) -> None:
        assert self.transport is not None
        frame, asked.frame = asked.frame, b""
        self.asked[asked.correlation_id] = asked
        self.transport.send(frame)

    def end(self) -> None:
        """Close from our side; nothing is told any more."""
        self.is_over = True
        self._inbox = None
        self.asked = {}
        if self.transport is not None:
            self.transport.close()

    # What the transport tells

    def on_connected(self) -> None:
        if not self.is_over:
            self.is_connected = True
            self._owner.on_connected(self)

    def on_congested(self) -> None:
        """Timeouts see to a peer that takes nothing."""

    def on_drained(self) -> None:
        """All is sent as soon as it is asked; the transport keeps what has to wait."""

    def on_closed(self) -> None:
        self._over("")

    def receive(self, view: memoryview) -> None:
        inbox = self._inbox
        if inbox is not None:
            inbox += view
            if len(inbox) < self._needed:
                return
            self._inbox = None
            view = memoryview(inbox)
        try:
            done = self._hand_out(view)
        except PeerError as error:
            self._over(f"its answer cannot be read: {error}")
        except Exception:
            # We are wrong, but one connection is what it may cost.
            log.exception("an answer could not be dealt with")
            self._over("its answer could not be dealt with")
        else:
            if done < len(view) and not self.is_over:
                self._inbox = bytearray(view[done:])

    # Frames

    def _hand_out(self, view: memoryview) -> int:
        """Hand out what is complete; how many bytes are dealt with."""
        at, end = 0, len(view)
        while end - at >= HEAD_SIZE and not self.is_over:
            size, correlation_id = HEAD.unpack_from(view, at)
            if not CORRELATION_ID_SIZE <= size <= self._frame_bytes_max:
                raise MalformedMessage(f"a frame of {size} bytes")
            if end - at - 4 < size:
                self._needed = size + 4
                return at
            asked = self.asked.get(correlation_id)
            if asked is None:
                raise MalformedMessage("it answers what was not asked")
            body = view[at + HEAD_SIZE : at + 4 + size]
            if asked.flexible:
                try:
                    body = body[skip_tags(body, 0) :]
                except IndexError:
                    raise MalformedMessage("its header ends too early") from None
            del self.asked[correlation_id]
            self._owner.on_answered(self)
            asked.on_answer(body, None)
            at += 4 + size
        self._needed = HEAD_SIZE
        return at

    def _over(self, reason: str) -> None:
        if not self.is_over:
            self.is_over = True
            self._owner.on_over(self, reason)

"""Server-sent events: what flows to a tab as long as it is open.

    async def source(context, last_id):
        async for offset, text in follow(context, int(last_id or 0)):
            yield StreamEvent(text, event="record", id=str(offset))

A browser that lost its connection comes again with the id of the last event it has seen (`Last-Event-ID`), so an id
must say where to go on. A comment every 15 seconds tells proxies that the stream lives, and shows us a tab
that is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import html
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import StreamingResponse

from strandline.console.failures import EXPECTED, words_of

if TYPE_CHECKING:
    from strandline.console.context import PageContext

HEARTBEAT_S: Final = 15.0
RETRY_MS: Final = 2000
LAST_ID_MAX: Final = 20_000
"""Characters of an id that are read: the marks of a thousand partitions."""
_LINES: Final = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True)
class StreamEvent:
    """One event. `event` is the name that the page swaps it by: `sse-swap="verdict"`."""

    data: str
    event: str = "message"
    id: str = ""

    def encoded(self) -> bytes:
        """Return the event as it is sent. A line break in the data does not end it."""
        head = f"event: {_one_line(self.event)}\n" + (f"id: {_one_line(self.id)}\n" if self.id else "")
        return (head + "".join(f"data: {line}\n" for line in _LINES.split(self.data)) + "\n").encode()


def failure_event(sentence: str) -> StreamEvent:
    """Return the event that says what is wrong; an empty sentence takes it back. Pages show it, so it is escaped."""
    return StreamEvent(html.escape(sentence), "failure")


async def rendered_again(
    context: PageContext,
    answer: Callable[[], Awaitable[Mapping[str, Any]]],
    *,
    template: str,
    event: str,
    every_s: float = 3.0,
) -> AsyncIterator[StreamEvent]:
    """Yield a part of a page whenever it looks different: `answer` is asked again and again.

    A failure is an event of its own. The stream goes on, and takes it back when the cluster answers again.
    """
    shown, failed = "", ""
    while True:
        context.reading.notes.clear()
        try:
            text, failure = context.render(template, await answer()), ""
        except EXPECTED as error:
            text, failure = shown, words_of(error).sentence
        if text != shown:
            yield StreamEvent(text, event)
        if failure != failed:
            yield failure_event(failure)
        shown, failed = text, failure
        await asyncio.sleep(every_s)


def _one_line(text: str) -> str:
    return re.sub(r"[\r\n\0]", " ", text)


def event_stream(
    source: AsyncIterator[StreamEvent],
    *,
    stopping: asyncio.Event,
    may_go_on: Callable[[], bool],
    heartbeat_s: float = HEARTBEAT_S,
) -> StreamingResponse:
    """Answer with the events of `source`, until it ends, the session ends, or the console stops."""
    return StreamingResponse(
        _sent(source, stopping, may_go_on, heartbeat_s),
        media_type="text/event-stream",
        headers={"X-Accel-Buffering": "no", "Cache-Control": "no-store"},
    )


async def _sent(
    source: AsyncIterator[StreamEvent], stopping: asyncio.Event, may_go_on: Callable[[], bool], heartbeat_s: float
) -> AsyncIterator[bytes]:
    yield f"retry: {RETRY_MS}\n: begin\n\n".encode()
    stop: asyncio.Future[Any] = asyncio.ensure_future(stopping.wait())
    coming: asyncio.Future[Any] | None = None
    try:
        while True:
            if coming is None:
                coming = asyncio.ensure_future(anext(source))
            await asyncio.wait([coming, stop], timeout=heartbeat_s, return_when=asyncio.FIRST_COMPLETED)
            # What came after the logout is not shown any more.
            if stop.done() or not may_go_on():
                return
            if not coming.done():
                yield b": heartbeat\n\n"
                continue
            done, coming = coming, None
            try:
                event = done.result()
            except StopAsyncIteration:
                yield StreamEvent("", "end").encoded()
                return
            except EXPECTED as error:
                # The tab shows the sentence and comes again by itself.
                yield failure_event(words_of(error).sentence).encoded()
                return
            yield event.encoded()
    finally:
        stop.cancel()
        if coming is not None:
            coming.cancel()
            with contextlib.suppress(BaseException):
                await coming
        close = getattr(source, "aclose", None)
        if close is not None:
            with contextlib.suppress(Exception):
                await close()

"""Readers that stop reading: they ask for much, take nothing for a while, and then read all of it or go away.

A broker must start no further request of a connection whose answers are not taken, so it holds no more than a few
answers for one. A reader that goes on must get every answer that it asked for, unless the broker's end of the
connection is gone: it closed it, or its machine lost power.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tests.simulator.clients.client import METADATA_VERSION, History, SimClient
from tests.simulator.clients.consumer import FETCH_VERSION
from tests.simulator.world.network import SimNetwork
from tests.simulator.world.runtime import SimHost
from tests.simulator.world.transport import SimTransport

from strandline.codec.message_codec import encode
from strandline.codec.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from strandline.codec.messages.metadata_request import MetadataRequest
from strandline.codec.messages.request_header import RequestHeader

QUESTIONS: Final = 200
FETCHES: Final = 20
HELD_BYTES_MAX: Final = 64 * 1024
"""What a broker may hold in memory for one connection, beside what the network has taken."""


class _Unread:
    """One connection, on which requests are sent and no answer is taken until `read`."""

    def __init__(self, frames: Sequence[bytes]) -> None:
        self._frames = frames
        self.asked = len(frames)
        self.answered = 0
        self.is_closed = False
        self.transport: SimTransport | None = None
        self._inbox = bytearray()

    @property
    def is_waiting(self) -> bool:
        """Whether a broker is there that owes it an answer.

        A machine that lost power sends no FIN, and this end sends nothing more that a reset could answer: it is half
        open for ever, and only a time limit would end it. With one, an answer that never comes would be no failure.
        """
        peer = None if self.transport is None else self.transport.peer
        return not self.is_closed and self.answered < self.asked and not (peer is not None and peer.closed)

    def on_connected(self) -> None:
        assert self.transport is not None
        self.transport.pause()
        for frame in self._frames:
            self.transport.send(frame)

    def read(self) -> None:
        assert self.transport is not None
        self.transport.resume()

    def receive(self, view: memoryview) -> None:
        inbox = self._inbox
        inbox += view
        while len(inbox) >= 4 and len(inbox) >= 4 + int.from_bytes(inbox[:4], "big"):
            del inbox[: 4 + int.from_bytes(inbox[:4], "big")]
            self.answered += 1

    def on_congested(self) -> None:
        pass

    def on_drained(self) -> None:
        pass

    def on_closed(self) -> None:
        self.is_closed = True


class SimStalledReader(SimClient):
    def __init__(
        self,
        network: SimNetwork,
        host: SimHost,
        history: History,
        bootstrap: Sequence[tuple[str, int]],
        topics: Sequence[str],
        *,
        pause_s: float,
    ) -> None:
        super().__init__(network, host, history, bootstrap, topics)
        self.pause_s = pause_s
        self._unread: list[_Unread] = []
        self.runtime.call_soon(self.refresh)
        self.runtime.call_later(pause_s, self._work)

    def _work(self) -> None:
        if self.is_stopped:
            return
        self.refresh()
        if not self.brokers:
            self.runtime.call_later(self.pause_s, self._work)
            return
        broker = self.random.choice(sorted(self.brokers))
        unread = _Unread(self._fetches(broker) if self.random.random() < 0.5 else self._questions())
        self._unread.append(unread)
        unread.transport = self.network.connect(*self.brokers[broker], unread)
        self.runtime.call_later(self.pause_s * (0.5 + self.random.random()), self._look, unread, broker)

    def _questions(self) -> list[bytes]:
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        return [_frame(request, METADATA_VERSION, number) for number in range(QUESTIONS)]

    def _fetches(self, broker: int) -> list[bytes]:
        """Return requests for all that a broker leads, from the start: what it answers stays open while it is sent."""
        topics = [
            FetchTopic(topic_id=known.topic_id, partitions=[FetchPartition(partition=each.partition, fetch_offset=0)])
            for each, known in self.known.items()
            if known.leader == broker
        ]
        for topic in topics:
            topic.partitions[0].partition_max_bytes = 1 << 20
        request = FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=topics)
        return [_frame(request, FETCH_VERSION, number) for number in range(FETCHES)]

    def _look(self, unread: _Unread, broker: int) -> None:
        transport = unread.transport
        assert transport is not None
        held = 0 if transport.peer is None else transport.peer.unsent_bytes
        if held > HELD_BYTES_MAX:
            self.history.surprises.append(f"broker {broker} holds {held} bytes for a reader that takes nothing")
        if transport.connecting is not None or self.random.random() < 0.5:
            # Also where the broker was not there all the time: what begins only now would never be looked at again.
            transport.close()
            self._unread.remove(unread)
        else:
            unread.read()
        self.runtime.call_later(self.pause_s, self._work)

    def unsettled(self) -> str:
        """Return which answers are still to come on connections that are read again."""
        waiting = [each for each in self._unread if each.is_waiting]
        return f"{self.host.name}: {sum(each.asked - each.answered for each in waiting)} answers" if waiting else ""


def _frame(request: FetchRequest | MetadataRequest, version: int, number: int) -> bytes:
    header = RequestHeader(request.API_KEY, version, number, "a reader that stops")
    message = encode(header, 2) + encode(request, version)
    return len(message).to_bytes(4, "big") + message

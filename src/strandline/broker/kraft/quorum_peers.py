"""Requests to the other members of the quorum: a channel for fetches and one for votes to each address.

A fetch waits at the leader until there is news, and would hold up whatever is asked behind it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

from strandline.codec.message import Message
from strandline.codec.messages.fetch_request import FetchRequest
from strandline.codec.messages.fetch_snapshot_request import FetchSnapshotRequest
from strandline.quorum.raft.effects import SendRequest
from strandline.quorum.raft.voters import Peer

log = logging.getLogger("strandline.metadata")

OnAnswer = Callable[[Peer, Message, Message | None], object]


class Asking(Protocol):
    """What is used of a `Channel`."""

    def ask(
        self,
        request: Message,
        version: int,
        on_answer: Callable[[Any, BaseException | None], object],
        *,
        timeout_s: float,
    ) -> None: ...

    def close(self) -> None: ...


Connect = Callable[[str, int], Asking]


class QuorumPeers:
    def __init__(self, connect: Connect | None, on_answer: OnAnswer) -> None:
        self._connect = connect
        self._on_answer = on_answer
        self._channels: dict[tuple[str, int, bool], Asking] = {}
        self._is_closed = False

    def send(self, effect: SendRequest) -> None:
        to, request = effect.to, effect.request
        assert self._connect is not None, "a quorum of one has no peers"
        key = (to.host, to.port, isinstance(request, FetchRequest | FetchSnapshotRequest))
        channel = self._channels.get(key)
        if channel is None:
            channel = self._channels[key] = self._connect(to.host, to.port)

        def on_answer(response: Message | None, error: BaseException | None) -> None:
            if self._is_closed:
                return
            if error is not None:
                log.debug("%s of node %d at %s:%d: %s", type(request).__name__, to.node_id, to.host, to.port, error)
            self._on_answer(to, request, response)

        channel.ask(request, effect.version, on_answer, timeout_s=effect.timeout_s)

    def close(self) -> None:
        self._is_closed = True
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()


class Strangers:
    """Peers that said they belong to another cluster, and whether that means that it is this node which does.

    The members of a sound quorum hear the same from a node that was started with a wrong directory; they go on. So a
    node stops only if it has never found a leader, and most of those whom it can ask say so.
    """

    def __init__(self) -> None:
        self._addresses: set[tuple[str, int]] = set()

    def add(self, peer: Peer, others: int) -> bool:
        """Take note of one more. True if most of the `others` whom this node can ask have said so."""
        self._addresses.add((peer.host, peer.port))
        return len(self._addresses) * 2 > others

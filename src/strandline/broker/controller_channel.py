"""Requests to the active controller, wherever it is: in this process, or behind a connection.

Wired as `ControllerChannel(runtime, network, where=node.metadata.leader_address, local=..., client_id=...)`.
A request is asked again while the controller is unknown, says NOT_CONTROLLER, or the connection to it is lost, until
`timeout_s` is over; then `on_answer(None, TimedOut)`. So every request that goes this way must be safe to repeat.
"""

from __future__ import annotations

from strandline.broker.channel import OnAnswer
from strandline.codec.message import Message


class ControllerChannel:
    def ask(self, request: Message, version: int, on_answer: OnAnswer, *, timeout_s: float) -> None:
        """Call `on_answer(response, None)`, or `on_answer(None, error)`; never before this has returned."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

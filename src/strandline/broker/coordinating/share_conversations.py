"""What the group coordinator asks of share coordinators: states of share partitions to make and to delete.

A share group asks for many partitions at once. The answer goes back to its shard when all of them are answered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol
from uuid import UUID

from strandline.coordinators.groups.events import DeleteShareState, InitializeShareState, ShareStateAnswered
from strandline.coordinators.shares.share_state import ShareSummary
from strandline.errors import ErrorCode


class ShareStates(Protocol):
    """The states of share partitions, wherever they are kept. Each callback is called exactly once."""

    def initialize(
        self,
        group_id: str,
        topic_id: UUID,
        partition: int,
        state_epoch: int,
        start_offset: int,
        on_done: Callable[[ErrorCode], object],
    ) -> None: ...

    def delete(self, group_id: str, topic_id: UUID, partition: int, on_done: Callable[[ErrorCode], object]) -> None: ...

    def summary(
        self,
        group_id: str,
        topic_id: UUID,
        partition: int,
        leader_epoch: int,
        on_done: Callable[[ErrorCode, ShareSummary | None], object],
    ) -> None: ...


class ShareConversation:
    """One effect of a shard, until the states of all its partitions are answered for."""

    def __init__(
        self,
        asked: InitializeShareState | DeleteShareState,
        states: ShareStates,
        on_answered: Callable[[ShareStateAnswered], object],
    ) -> None:
        self._asked = asked
        self._states = states
        self._on_answered = on_answered
        self._left = len(asked.partitions)
        self._codes: dict[tuple[UUID, int], ErrorCode] = {}

    def begin(self) -> None:
        asked, states = self._asked, self._states
        for start in asked.partitions:
            on_done = self._callback(start.topic_id, start.partition)
            if isinstance(asked, InitializeShareState):
                states.initialize(
                    asked.group_id, start.topic_id, start.partition, asked.state_epoch, start.start_offset, on_done
                )
            else:
                states.delete(asked.group_id, start.topic_id, start.partition, on_done)

    def _callback(self, topic_id: UUID, partition: int) -> Callable[[ErrorCode], object]:
        def on_done(code: ErrorCode) -> None:
            if code is not ErrorCode.NONE:
                self._codes[topic_id, partition] = code
            self._left -= 1
            if not self._left:
                self._on_answered(ShareStateAnswered(self._asked, self._codes))

        return on_done

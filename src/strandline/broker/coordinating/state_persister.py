"""The share coordinator as the leader of a share partition sees it, wherever it is, and its errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol
from uuid import UUID

from strandline.coordinators.shares.share_state import ShareState, StateBatch
from strandline.errors import ErrorCode

FENCED: Final = frozenset((ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH))
ABSENT: Final = frozenset((ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID))


class StatePersister(Protocol):
    """The share coordinator, wherever it is. It stores the writes of a share partition in the order of the calls."""

    def read(
        self,
        group_id: str,
        topic_id: UUID,
        partition: int,
        leader_epoch: int,
        on_done: Callable[[ErrorCode, ShareState | None], object],
        /,
    ) -> None: ...

    def write(
        self,
        group_id: str,
        topic_id: UUID,
        partition: int,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
        on_done: Callable[[ErrorCode], object],
        /,
    ) -> None: ...


def client_code(code: ErrorCode) -> ErrorCode:
    """Return what a client is answered for an error of the share coordinator."""
    if code in FENCED:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if code in ABSENT or code == ErrorCode.GROUP_ID_NOT_FOUND:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if code in (
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return ErrorCode.UNKNOWN_SERVER_ERROR

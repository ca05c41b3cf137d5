"""What can happen to a shard of share partitions (events), and what the shard asks its driver to do (effects).

`Append`, `Reply`, the timers, `Loaded`, `TimerFired` and `TopicDeleted` are those of the groups. Like a `Reply`,
`PruneLog` is performed only when every earlier `Append` is below the high watermark.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from strandline.coordinators.groups.events import Append, Loaded, Reply, StartTimer, TimerFired, TopicDeleted
from strandline.coordinators.groups.shard_terms import Token
from strandline.coordinators.shares.share_state import SharePartitionKey, ShareState, ShareSummary, StateBatch
from strandline.errors import ErrorCode


class ShareTimer(StrEnum):
    """The timers of a shard."""

    PRUNE = "prune"
    """Records that no share partition needs are to be removed from the start of the log."""
    COLD = "cold"
    """Share partitions with an old snapshot are to get a new one, so that pruning can go on."""


# ---- events


@dataclass(frozen=True, slots=True)
class InitializeState:
    """Begin the state of a share partition, or begin it again at another offset."""

    token: Token
    key: SharePartitionKey
    state_epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class ReadState:
    """Read the state for the leader of the partition; `ShareState` is the value of the answer.

    A leader epoch above the known one is stored first, so that the leader before cannot write any more.
    """

    token: Token
    key: SharePartitionKey
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class WriteState:
    """Change the state: a new start offset, and batches that are merged with what is known."""

    token: Token
    key: SharePartitionKey
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]


@dataclass(frozen=True, slots=True)
class DeleteState:
    """Delete the state of a share partition, if there is any."""

    token: Token
    key: SharePartitionKey


@dataclass(frozen=True, slots=True)
class SummarizeState:
    """Read the state without its batches; `ShareSummary` is the value of the answer, also where nothing is known."""

    token: Token
    key: SharePartitionKey


StateRequest = InitializeState | ReadState | WriteState | DeleteState | SummarizeState
"""Events that a broker waits for; a `StateAnswer` is the answer to each."""

ShareEvent = StateRequest | TopicDeleted | TimerFired[ShareTimer] | Loaded


# ---- effects


class StateAnswer(NamedTuple):
    """The outcome of a request about one share partition."""

    code: ErrorCode
    message: str | None = None
    value: ShareState | ShareSummary | None = None


class PruneLog(NamedTuple):
    """Remove every record of the log below `offset`."""

    offset: int


ShareEffect = Append | Reply[StateAnswer] | StartTimer[ShareTimer] | PruneLog

"""What the Raft core wants done. The driver performs effects strictly in order, and finishes each before the next.

`Save` has to be on disk before anything behind it happens, and before the answer leaves that the same input returned.
If a driver's own work (a flush that is done at once) brings the next input while it performs effects, the effects of
that input go behind the ones it still has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from strandline.quorum.raft.raft_log import SnapshotId
from strandline.quorum.raft.state_files import QuorumState
from strandline.quorum.raft.voters import Peer

if TYPE_CHECKING:
    from strandline.codec.message import Message


@dataclass(frozen=True, slots=True)
class Save:
    """Write `quorum-state`: temporary file, sync, rename, sync of the directory. A restart must not vote twice."""

    state: QuorumState


@dataclass(frozen=True, slots=True)
class SendRequest:
    """Send `request` and bring its answer to `Raft.on_answer(to, request, response)` with this same object.

    No answer (connection lost or refused, timed out) is `response=None`. A request that was never answered at all is
    given up by the core's own timers; an answer that comes after that is recognised and dropped.
    """

    to: Peer
    request: Message
    version: int
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Flush:
    """Flush the log to its end, in a thread if need be, and call `Raft.on_flushed`; one flush may serve several."""


@dataclass(frozen=True, slots=True)
class HighWatermark:
    """Everything before `offset` is committed; it never goes back while the process lives."""

    offset: int


@dataclass(frozen=True, slots=True)
class LeaderKnown:
    """`leader_id` leads `epoch`, the newest one known; -1, with no peer, while its leader is unknown."""

    epoch: int
    leader_id: int
    leader: Peer | None


@dataclass(frozen=True, slots=True)
class Leading:
    """This node leads `epoch` and the record that began it is committed, so all before it is, too."""

    epoch: int


@dataclass(frozen=True, slots=True)
class NoLongerLeading:
    """This node led `epoch`, with or without a `Leading`, and does not any more: uncommitted writes are unknown."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Truncated:
    """The log was cut to `end_offset`, by word of the leader; never below the high watermark."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class SnapshotChunk:
    """Write `records` at `position` of the unfinished file of `snapshot_id`; position 0 starts it over."""

    snapshot_id: SnapshotId
    position: int
    records: Any


@dataclass(frozen=True, slots=True)
class InstallSnapshot:
    """All chunks of `snapshot_id` are written. Sync and rename the file, cut the log to begin and end at its end
    offset, load the image from it, then call `Raft.on_snapshot_installed`; until then nothing is fetched."""

    snapshot_id: SnapshotId


@dataclass(frozen=True, slots=True)
class Inconsistent:
    """A peer said what no correct leader says; it was refused. To be logged as an error; a simulation stops here."""

    reason: str


@dataclass(frozen=True, slots=True)
class WrongCluster:
    """A peer answered INCONSISTENT_CLUSTER_ID: this directory or that address belongs to another cluster."""

    peer: Peer


Effect: TypeAlias = (
    Save
    | SendRequest
    | Flush
    | HighWatermark
    | LeaderKnown
    | Leading
    | NoLongerLeading
    | Truncated
    | SnapshotChunk
    | InstallSnapshot
    | Inconsistent
    | WrongCluster
)

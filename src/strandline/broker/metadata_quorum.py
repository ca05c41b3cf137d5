"""`__cluster_metadata-0` on this node: drives the Raft core, and folds what is committed into the image.

The interface comes first; what stands here is agreed, what performs it follows.

Wiring (`broker/node.py`):

    metadata = MetadataQuorum(directory, runtime, flusher, settings=QuorumSettings(...), connect=channel_factory)
    metadata.on_leading = ...            the controller is activated with `metadata.image`; it may write from now on
    metadata.on_not_leading = ...        the controller forgets what it decided
    metadata.on_applied = replicas.on_metadata
    metadata.on_image_replaced = ...     a snapshot was loaded: everything made from the image is made anew
    metadata.start()                     a quorum of one leads when this returns; others begin to ask around

`connect(host, port)` gives a `Channel` to a controller listener. A quorum of one needs none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from strandline.ids import TopicPartition
from strandline.quorum.topic_names import CLUSTER_METADATA

if TYPE_CHECKING:
    from strandline.log.partition_log import PartitionLog
    from strandline.quorum.cluster_image import ClusterImage

NAME: Final = TopicPartition(CLUSTER_METADATA, 0)

Done = Callable[[BaseException | None], object]


@dataclasses.dataclass(frozen=True, slots=True)
class QuorumSettings:
    """What a node must be told of the quorum before it can ask anybody."""

    node_id: int
    directory_id: UUID
    cluster_id: str
    is_controller: bool = True
    """Whether `process.roles` has `controller`; without it the node is an observer, whatever the voters are."""
    static_voters: tuple[tuple[int, str, int], ...] = ()
    """`controller.quorum.voters`: (id, host, port)."""
    bootstrap_servers: tuple[tuple[str, int], ...] = ()
    """`controller.quorum.bootstrap.servers`: whom an observer asks first."""
    listener_name: str = "CONTROLLER"
    listener_address: tuple[str, int] | None = None
    """Where this node's own controller listener can be reached; voters tell it to each other."""
    election_timeout_ms: int = 1000
    election_backoff_max_ms: int = 1000
    fetch_timeout_ms: int = 2000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    segment_bytes: int = 1 << 30
    snapshot_after_bytes: int = 20 * 1024 * 1024
    snapshot_interval_ms: int = 3_600_000
    retention_bytes: int = 100 * 1024 * 1024
    retention_ms: int = 7 * 24 * 3_600_000


class MetadataQuorum:
    image: ClusterImage
    """The cluster as of the last committed record that was folded, on every node."""
    log: PartitionLog
    removed_topic_ids: set[UUID]
    """Topics that the log saw go, for the start: a crash may have left their directories."""
    bootstrap_records: list[Any]
    """What `strandline format` wrote into the bootstrap snapshot (feature levels): the first leader of an empty log
    writes them; nobody folds them before that."""

    on_applied: Callable[[list[Any], Callable[[], object]], None] | None
    """Told of records that have just become part of the image; calls back when they have taken effect here."""
    on_failed: Callable[[list[Any]], None] | None
    """Told that a write failed, with the records of earlier ones that are still under way."""
    on_leading: Callable[[int], object] | None
    """Told the epoch once this node leads it and the image holds everything written before: the controller may act."""
    on_not_leading: Callable[[], object] | None
    """Told that another may lead from now on. Writes under way have been answered with NOT_CONTROLLER."""
    on_image_replaced: Callable[[], object] | None
    """Told that `image` is another object, made from a snapshot."""
    on_stop: Callable[[str], object] | None
    """Told, in a sentence, why the node must not go on: it belongs to another cluster."""

    epoch: int
    """The newest epoch this node knows of."""
    is_leader: bool
    """Whether writes are taken: this node leads, its epoch's first record is committed, and `on_leading` was told."""
    leader_id: int | None
    high_watermark: int
    next_offset: int
    """Where the next record goes."""

    def start(self) -> None:
        """Begin to take part; a quorum of one leads when this returns."""

    def leader_address(self) -> tuple[str, int] | None:
        """Where the leader's controller listener is; None while nobody is known to lead."""

    def write(self, records: list[Any], on_done: Done) -> None:
        """Append `records` as one batch; `on_done(None)` when they are committed and in the image.

        `on_done(RequestError(NOT_CONTROLLER))` on a node that does not lead, or that lost the lead meanwhile: then
        the records may or may not have been committed. With no records, `on_done` is called when everything before is
        committed and folded.
        """

    def write_now(self, records: list[Any]) -> None:
        """Write, commit and fold before returning; only in a quorum of one, and only while the node starts."""

    def resign(self) -> None:
        """Hand the lead to another voter, before a stop."""

    def close(self) -> None: ...

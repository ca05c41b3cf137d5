"""What handlers may use of the coordinators, of the upkeep of logs and of client metrics.

Protocols, because imports go inward: the broker knows the handlers, they do not know the broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from uuid import UUID

    from strandline.codec.messages.append_audit_request import AppendAuditRequest
    from strandline.codec.messages.find_anchors_request import FindAnchorsRequest
    from strandline.codec.messages.find_anchors_response import FindAnchorsResponse
    from strandline.coordinators.groups import events as group_events
    from strandline.coordinators.groups.group_shard import GroupShard
    from strandline.coordinators.groups.history.group_history import GroupHistory
    from strandline.coordinators.offsets.plain_commit import PlainCommit
    from strandline.coordinators.shares import events as share_events
    from strandline.coordinators.shares.delivery.acknowledgements import AcknowledgedBatch
    from strandline.coordinators.shares.delivery.acquisition import AcquiredRange
    from strandline.coordinators.shares.delivery.delivery_history import DeliveryHistory
    from strandline.coordinators.shares.delivery.share_partition import SharePartition
    from strandline.coordinators.shares.delivery.share_sessions import PartitionName, ShareSession, ShareSessions
    from strandline.coordinators.shares.delivery.share_settings import ShareSettings
    from strandline.coordinators.transactions import events as transaction_events
    from strandline.coordinators.transactions.transaction_shard import TransactionShard
    from strandline.errors import ErrorCode, StrandlineError
    from strandline.ids import TopicPartition
    from strandline.lag.samples import Window
    from strandline.log.maintenance.cleanable import Cleanable, Cleaned
    from strandline.log.segment.log_slice import LogSlice
    from strandline.log.segment.time_lookup import Part
    from strandline.observability.client_telemetry import ClientTelemetry
    from strandline.observability.metric_ring import MetricRing
    from strandline.partition.counting import Counted
    from strandline.partition.partition import Partition

T = TypeVar("T")
Place = tuple[str, int]
"""Topic and partition."""
OnCommitted = Callable[["Exception | None"], None]


class EncodedWait(Protocol):
    """A request whose answer is encoded already, and waits for a commit."""

    def answer(self, response: bytes) -> None: ...
    def refuse(self, code: ErrorCode) -> None: ...


class TierReport(NamedTuple):
    """What a node knows of its object store."""

    is_open: bool
    is_read_only: bool
    problem: str
    """The kind of failure; empty if nothing is wrong."""
    message: str
    lag_segments: int
    lag_bytes: int
    lag_ms: int
    """How old the newest record is of the oldest segment that the store lacks."""
    task_interval_ms: int
    checkpoint_age_ms: int
    """For how long the newest checkpoint may have been behind; -1 if this node has none to write."""
    checkpoint_interval_ms: int
    checkpoint_message: str
    damages: list[str]
    """Objects that could not be read since the start, in sentences."""


class GroupCoordinator(Protocol):
    """The groups that this broker coordinates."""

    plain_commits: dict[tuple[int, bytes], PlainCommit]

    @property
    def history(self) -> GroupHistory: ...

    def partition_index(self, key: str, /) -> int: ...
    def is_beginning(self, index: int) -> bool: ...
    def submit(self, key: str, event: group_events.Request) -> None: ...
    def submit_to(self, index: int, event: group_events.Request) -> None: ...
    def commit_plain(self, plain: PlainCommit, offset: int, leader_epoch: int, waiting: EncodedWait) -> bool: ...
    def led_indexes(self) -> list[int]: ...
    def when_loaded(self, index: int, then: Callable[[GroupShard | None], object]) -> None: ...

    def append_marker(
        self,
        index: int,
        ended: group_events.TransactionEnded,
        append: Callable[[OnCommitted], object],
        on_committed: OnCommitted,
    ) -> None: ...


class TransactionCoordinator(Protocol):
    """The transactions that this broker coordinates."""

    marker_connections: dict[str, int]

    @property
    def is_loading(self) -> bool: ...

    def partition_index(self, key: str, /) -> int: ...
    def is_beginning(self, index: int) -> bool: ...
    def submit(self, key: str, event: transaction_events.Request) -> None: ...
    def submit_to(self, index: int, event: transaction_events.Request) -> None: ...
    def led_indexes(self) -> list[int]: ...
    def loaded_shards(self) -> list[TransactionShard]: ...
    def shard_of(self, key: str) -> TransactionShard | None: ...
    def ids_of(self, index: int) -> tuple[str, ...]: ...

    def waiting_markers(
        self, transactional_id: str, *, count_max: int
    ) -> list[tuple[TopicPartition, int, ErrorCode]]: ...

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        places: Sequence[Place],
        *,
        adds: bool,
        then: Callable[[dict[Place, ErrorCode]], object],
    ) -> None: ...


class ShareCoordinator(Protocol):
    """The share partitions whose state this broker keeps."""

    def submit(self, key: str, event: share_events.StateRequest) -> None: ...


class NamedSharePartition(NamedTuple):
    """A partition that a share group reads, with both names of its topic."""

    topic: str
    topic_id: UUID
    partition: int


class ShareOffset(NamedTuple):
    """Where a share group is in a partition; what is unknown is -1."""

    code: ErrorCode
    start_offset: int = -1
    leader_epoch: int = 0
    completed: int = -1
    """Records above the start offset whose delivery is complete."""
    lag: int = -1


class ShareOffsetReader(Protocol):
    """Where share groups are in their partitions."""

    def read(
        self,
        group_id: str,
        partitions: Sequence[NamedSharePartition],
        on_done: Callable[[dict[tuple[UUID, int], ShareOffset]], object],
    ) -> None: ...


class ShareReader(Protocol):
    """A ShareFetch that waits for records."""

    def look_again(self) -> None:
        """Look at once: there is something to acquire, or the share partition was loaded or dropped."""

    def on_refused(self, name: PartitionName, code: ErrorCode) -> None:
        """Learn that a share partition cannot be served."""


class ServedSharePartition(Protocol):
    """A share partition on the broker that leads its data."""

    partition: Partition
    readers: dict[ShareReader, None]
    share: SharePartition | None
    """None while it is loaded."""

    @property
    def is_loaded(self) -> bool: ...

    @property
    def next_offset(self) -> int: ...

    def can_serve(self) -> bool: ...
    def read(self, size_bytes_max: int, *, at_least_one: bool, may_block: bool) -> LogSlice | None: ...

    def acquire(
        self,
        member_id: str,
        records: LogSlice,
        *,
        records_max: int,
        batch_size: int,
        is_strict: bool,
        may_block: bool,
    ) -> tuple[LogSlice | None, list[AcquiredRange]]: ...

    def acknowledge(
        self,
        member_id: str,
        batches: Sequence[AcknowledgedBatch],
        on_done: Callable[[ErrorCode, str | None], object],
    ) -> None: ...


class SessionConnection(Protocol):
    """The connection of a share session."""

    def when_closed(self, callback: Callable[[], object]) -> None:
        """Call back once when the connection is closed."""


class ShareDeliverer(Protocol):
    """The share partitions whose data this broker leads."""

    @property
    def sessions(self) -> ShareSessions[SessionConnection]: ...

    def settings_of(self, group_id: str) -> ShareSettings: ...
    def history_of(self, group_id: str, name: PartitionName) -> DeliveryHistory | None: ...
    def find(self, group_id: str, name: PartitionName) -> ServedSharePartition | None: ...
    def open(self, group_id: str, partition: Partition) -> ServedSharePartition: ...
    def open_session(
        self, group_id: str, member_id: str, connection: SessionConnection
    ) -> ShareSession[SessionConnection]: ...
    def end_session(self, session: ShareSession[SessionConnection]) -> None: ...


class RecordCounting(Protocol):
    """Counts of the records that a reader gets."""

    def at_hand(self, partition: Partition, offset: int) -> Counted | None: ...
    def counted(self, partition: Partition, offset: int) -> Part[Counted | None]: ...
    def run(self, search: Part[T], on_done: Callable[[T | None, BaseException | None], object]) -> bool: ...


class LagObserver(Protocol):
    """How far the groups that this broker coordinates are behind."""

    @property
    def counting(self) -> RecordCounting: ...

    def now_ms(self) -> int: ...
    def windows_of(self, group_id: str) -> Sequence[tuple[Place, Window]]: ...


class MetricsRecord(Protocol):
    """What this broker measured in the last day."""

    node: MetricRing
    items: MetricRing

    def read(self, ring: MetricRing, ago_ms: int, prefixes: Sequence[str] | None) -> tuple[int, dict[str, bytes]]:
        """Return the time of the first step by the wall clock, and the values of each series."""


class CleaningOutlook(NamedTuple):
    """What is to become of a compacted log."""

    state: str
    """One of "off", "idle", "cleaning", "set aside"."""
    reason: str | None
    """Why it is set aside."""
    retry_ms: int
    """When it is tried again; -1 if it is not set aside."""
    dirty_ratio: float
    dirty_ratio_min: float
    clean_up_to: int
    first_uncleanable: int
    because: str
    """Why cleaning stops there: "active", "transaction", "high watermark", "recovery point" or "lag"."""
    until_ms: int
    """When a segment may be cleaned that is too young; -1 if that is not it, or not known."""
    due_ms: int
    """When `max.compaction.lag.ms` has it cleaned; -1 if never."""
    is_due: bool
    """Whether the next look cleans it, if no other is dirtier."""
    done_bytes: int
    total_bytes: int
    """Bytes of the cleaning that is under way."""
    last: Cleaned | None
    """What the last cleaning since the start came to."""


class Cleaner(Protocol):
    """Compacts the logs of this broker."""

    @property
    def compact(self) -> Callable[[Partition, Callable[[Cleaned | None, StrandlineError | None], object]], object]: ...

    def judge(self, partition: Partition) -> Cleanable: ...
    def outlook(self, partition: Partition, now_ms: int) -> CleaningOutlook: ...


class ScrubbedLog(Protocol):
    """A log that was read through."""

    partition: Partition
    bytes_read: int
    error: str | None


class DamagedSegment(Protocol):
    """A segment that is not what was written."""

    base_offset: int
    end_offset: int
    position: int
    what: str
    state: str
    found_ms: int


class LogScrubbing(Protocol):
    """Reads logs through, to find damage."""

    def scrub_now(self, partitions: Iterable[Partition], on_done: Callable[[ScrubbedLog], object]) -> None: ...
    def scrubbed_ms(self, partition: Partition) -> int: ...
    def damages_of(self, partition: Partition) -> Sequence[DamagedSegment]: ...


class AuditedEvents(Protocol):
    """Records what clients do."""

    def on_topic_created(self, context: Any, name: str) -> None: ...


class AuditAppends(Protocol):
    """Appends lines to the audit topic, where this broker leads it, and finds anchors there."""

    def append(self, request: AppendAuditRequest, writer: str, then: Callable[[ErrorCode], object]) -> None: ...
    def find_anchors(self, request: FindAnchorsRequest, then: Callable[[FindAnchorsResponse], object]) -> None: ...


class TelemetryReceiver(Protocol):
    """Takes the metrics that clients push."""

    image_version: int
    clients: ClientTelemetry

    def take(
        self,
        instance_id: UUID,
        client_id: str | None,
        codec: int,
        payload: bytes,
        *,
        expires_ms: int,
        size_bytes_max: int,
        on_taken: Callable[[ErrorCode], object],
    ) -> None: ...

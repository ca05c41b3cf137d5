"""A transaction at one moment, what it holds back, and what will end it, in words (pure)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from strandline.cli.group.state import Place, partitions_words
from strandline.lag.verdict import span

STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
ONGOING = "Ongoing"
PREPARED = ("PrepareCommit", "PrepareAbort")
OPEN = (ONGOING, *PREPARED)
"""A transaction in one of these holds back readers of its partitions."""

GRACE_MS = 10_000
"""How long after its timeout a transaction may take to be aborted before something is wrong."""
WAITING_SHOWN = 5


@dataclass(frozen=True)
class WaitingMarker:
    place: Place
    leader: int
    """-1 if there is none."""
    error: str
    """Of the last attempt; empty if none was made, or it is under way."""

    @property
    def words(self) -> str:
        why = "no leader" if self.leader < 0 else f"node {self.leader} says {self.error}" if self.error else ""
        return f"{self.place[0]}-{self.place[1]}" + (f" ({why})" if why else "")


@dataclass(frozen=True)
class SinkState:
    """What the coordinator of a sink tells."""

    sink_id: str
    last_batch_id: int | None
    """None while none was committed."""
    decided_ms: int | None
    now_ms: int
    """What the clock of the coordinator showed."""
    transactional_ids: int
    open_transactions: int
    coordinator: int = -1

    @property
    def age_ms(self) -> int | None:
        return None if self.decided_ms is None else max(0, self.now_ms - self.decided_ms)


@dataclass(frozen=True)
class TransactionState:
    """What the coordinator of a transactional id tells; client and waiting markers are told by Strandline alone."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int = -1
    coordinator: int = -1
    timeout_ms: int = -1
    start_ms: int = -1
    now_ms: int = -1
    """What the clock of the coordinator showed; ours, where it does not tell."""
    partitions: tuple[Place, ...] = ()
    client_id: str = ""
    client_host: str = ""
    waiting: tuple[WaitingMarker, ...] = ()

    @property
    def is_open(self) -> bool:
        return self.state in OPEN

    @property
    def age_ms(self) -> int | None:
        """How long it has been open; None if it is not."""
        return max(0, self.now_ms - self.start_ms) if self.is_open and self.start_ms >= 0 else None

    @property
    def left_ms(self) -> int | None:
        """Until its time is over, negative if it is; None if nothing is open that could time out."""
        age_ms = self.age_ms
        return None if age_ms is None or self.state != ONGOING else self.timeout_ms - age_ms

    @property
    def is_overdue(self) -> bool:
        """Whether it is open for so long that its coordinator should have ended it."""
        return (self.age_ms or 0) > self.timeout_ms + GRACE_MS

    @property
    def is_same_as(self) -> tuple[int, int, int]:
        """What tells one transaction of an id from the next."""
        return self.producer_id, self.producer_epoch, self.start_ms

    @property
    def client(self) -> str:
        host = self.client_host.removeprefix("/")
        return f"{self.client_id or '-'} ({host})" if host else self.client_id

    @property
    def ends(self) -> str:
        """What will end it; empty if nothing is open."""
        if self.state in PREPARED:
            return self._ends_by_markers()
        left_ms = self.left_ms
        if left_ms is None:
            return ""
        if left_ms >= 0:
            return f"times out in {span(left_ms / 1000)}, if its producer does not end it before"
        late = span(-left_ms / 1000)
        if self.is_overdue:
            return f"its time was over {late} ago, and its coordinator, node {self.coordinator}, has not aborted it"
        return f"its time was over {late} ago: it is being aborted"

    def _ends_by_markers(self) -> str:
        done = "committed" if self.state == "PrepareCommit" else "aborted"
        if not self.waiting:
            return f"it is being {done}: its markers are being written"
        shown = ", ".join(each.words for each in self.waiting[:WAITING_SHOWN])
        more = len(self.waiting) - WAITING_SHOWN
        return f"it is being {done}: markers wait for {shown}" + (f" and {more:,} more" if more > 0 else "")


@dataclass(frozen=True)
class OpenProducer:
    """A transaction as the leader of a partition sees it: who, since when, and nothing of its name."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    """Of the last marker that the partition has of the producer; -1 if it has none."""
    start_offset: int
    last_timestamp_ms: int


class HoldVerdict(StrEnum):
    ONGOING = "ongoing"
    ENDING = "ending"
    """It is decided, and its marker is on the way."""
    OVERDUE = "overdue"
    HANGING = "hanging"
    """Its coordinator does not know it, so it will not end by itself."""
    UNKNOWN = "unknown"
    """A broker that may coordinate it could not be asked."""


NEEDS_HELP = (HoldVerdict.OVERDUE, HoldVerdict.HANGING)


@dataclass(frozen=True)
class Holder:
    """A transaction that is open on a partition, and what its coordinator says of it."""

    producer: OpenProducer
    verdict: HoldVerdict
    transaction: TransactionState | None = None
    """Of the transactional id that has the producer id; it may be at another transaction, or at none."""


@dataclass(frozen=True)
class Hold:
    """A partition whose readers of committed records wait, or do not. Offsets are None where there is no leader."""

    topic: str
    partition: int
    leader: int | None
    high_watermark: int | None
    last_stable_offset: int | None
    holders: tuple[Holder, ...] = ()
    """By the offset at which each began. The first is what counts."""
    since_ms: int | None = None
    """When the first record that is held back was written."""

    @property
    def place(self) -> Place:
        return self.topic, self.partition

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def held_back(self) -> int:
        if self.high_watermark is None or self.last_stable_offset is None:
            return 0
        return max(0, self.high_watermark - self.last_stable_offset)


def judged(
    place: Place, producer: OpenProducer, transaction: TransactionState | None, *, unasked: Collection[int] = ()
) -> Holder:
    """What is to be thought of a transaction that is open on a partition.

    `transaction` is that of the transactional id with this producer id, asked for after the partition was; `unasked`
    are brokers that could not be asked.
    """
    if transaction is None:
        return Holder(producer, HoldVerdict.UNKNOWN if unasked else HoldVerdict.HANGING)
    if not transaction.is_open or place not in transaction.partitions:
        return Holder(producer, HoldVerdict.HANGING, transaction)
    if transaction.is_overdue:
        return Holder(producer, HoldVerdict.OVERDUE, transaction)
    return Holder(producer, HoldVerdict.ONGOING if transaction.state == ONGOING else HoldVerdict.ENDING, transaction)


def elsewhere(transaction: TransactionState, place: Place) -> str:
    """The other partitions of it."""
    return partitions_words(each for each in transaction.partitions if each != place)

"""All share partitions whose state is kept in one partition of `__share_group_state`, behind one door."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, assert_never

from strandline.codec.internal_records import UnknownRecord
from strandline.coordinators.groups.events import Append, Loaded, Reply, StartTimer, TimerFired, TopicDeleted
from strandline.coordinators.groups.shard_terms import Token
from strandline.coordinators.groups.topics import Topics
from strandline.coordinators.shares.events import (
    DeleteState,
    InitializeState,
    PruneLog,
    ReadState,
    ShareEffect,
    ShareEvent,
    ShareTimer,
    StateAnswer,
    SummarizeState,
    WriteState,
)
from strandline.coordinators.shares.share_config import ShareConfig
from strandline.coordinators.shares.share_records import (
    ShareSnapshot,
    ShareUpdate,
    decode_share_record,
    share_tombstone,
    snapshot_record,
    update_record,
)
from strandline.coordinators.shares.share_state import (
    NO_START_OFFSET,
    UNKNOWN_COUNT,
    DeliveryState,
    SharePartitionKey,
    ShareSummary,
    StateBatch,
)
from strandline.coordinators.shares.state_batches import StateBatches
from strandline.coordinators.shares.stored_share import StoredShare
from strandline.errors import ErrorCode

STATE_BATCHES_MAX: Final = 20_000
"""Batches of one share partition: its snapshot is one record, which must fit `max.message.bytes`."""
COLD_BATCHES_PER_STEP_MAX: Final = 2_000
"""Batches of cold share partitions that one step writes, each share partition counted as one more."""

NO_EPOCH: Final = -1
FIRST_LEADER_EPOCH: Final = 0

_STORED_STATES = frozenset(DeliveryState) - {DeliveryState.ACQUIRED}

_DONE = StateAnswer(ErrorCode.NONE)
_FENCED_LEADER = StateAnswer(
    ErrorCode.FENCED_LEADER_EPOCH, "The leader epoch in the request is older than the epoch on the broker."
)
_FENCED_STATE = StateAnswer(
    ErrorCode.FENCED_STATE_EPOCH,
    "The share coordinator rejected the request because the share-group state epoch did not match.",
)
_UNKNOWN_TOPIC = StateAnswer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
_NEGATIVE_PARTITION = StateAnswer(ErrorCode.INVALID_REQUEST, "The partition id cannot be a negative number.")
_READ_UNKNOWN = StateAnswer(ErrorCode.INVALID_REQUEST, "Read operation on uninitialized share partition not allowed.")
_WRITE_UNKNOWN = StateAnswer(ErrorCode.INVALID_REQUEST, "Write operation on uninitialized share partition not allowed.")
_BAD_OFFSETS = StateAnswer(ErrorCode.INVALID_REQUEST, "An offset, state or delivery count is out of range.")
_TOO_MANY_BATCHES = StateAnswer(
    ErrorCode.INVALID_REQUEST, f"A share partition has at most {STATE_BATCHES_MAX} batches."
)
_NO_SUMMARY = ShareSummary(0, FIRST_LEADER_EPOCH, NO_START_OFFSET, UNKNOWN_COUNT)


class LoggedRecord(NamedTuple):
    """A record of the log, with its offset."""

    offset: int
    key: bytes
    value: bytes | None


class ShareShard:
    """The state machine. `load` the partition's records, say `Loaded()`, then `step` for every event.

    The state is that of the log plus what was asked to be appended. If an append fails, the shard knows more than the
    log: the driver throws it away and loads another. `next_offset` returns an offset that no record which is asked for
    from now on is below.
    """

    def __init__(self, config: ShareConfig, topics: Topics, *, next_offset: Callable[[], int]) -> None:
        self.config = config
        self._topics = topics
        self._next_offset = next_offset
        self.shares: dict[SharePartitionKey, StoredShare] = {}
        """By name; to look at."""
        self._unknown_offset: int | None = None
        """The first record that this version cannot read. It is kept for the one that can."""
        self._pruned_offset = 0
        self._cold_left: list[SharePartitionKey] = []
        """Share partitions that the present look for cold ones has not come to."""
        self._effects: list[ShareEffect] = []

    # ---- loading

    def load(self, records: Iterable[LoggedRecord]) -> None:
        """Fold records into the state, in the order of the log; may be called again and again with the next ones."""
        for offset, key, value in records:
            try:
                name, change = decode_share_record(key, value)
            except UnknownRecord:
                if self._unknown_offset is None:
                    self._unknown_offset = offset
                continue
            if isinstance(change, ShareSnapshot):
                before = self.shares.get(name)
                share = self.shares[name] = StoredShare(change, offset)
                if before is not None:
                    # Kafka writes leader epoch 0 when a state is initialized again, and goes by the highest.
                    share.leader_epoch = max(share.leader_epoch, before.leader_epoch)
            elif change is None:
                self.shares.pop(name, None)
            elif name in self.shares:
                # Without its snapshot an update is one of a deleted share partition, or the log start is behind it.
                self.shares[name].apply(change)

    # ---- events

    def step(self, event: ShareEvent, now_ms: int) -> list[ShareEffect]:
        effects = self._effects = []
        match event:
            case WriteState():
                self._reply(event.token, self._write(event, now_ms))
            case ReadState():
                self._reply(event.token, self._read(event, now_ms))
            case InitializeState():
                self._reply(event.token, self._initialize(event, now_ms))
            case DeleteState():
                self._reply(event.token, self._delete(event))
            case SummarizeState():
                self._reply(event.token, self._summarize(event))
            case TopicDeleted(topic_id=topic_id):
                self._forget([key for key in self.shares if key.topic_id == topic_id])
            case TimerFired(key=ShareTimer.PRUNE):
                self._prune()
            case TimerFired(key=ShareTimer.COLD):
                self._snapshot_cold(now_ms)
            case Loaded():
                self._on_loaded()
            case TimerFired():
                raise AssertionError(f"a shard of share partitions has no timer {event.key!r}")
            case _:
                assert_never(event)
        return effects

    def _reply(self, token: Token, answer: StateAnswer) -> None:
        self._effects.append(Reply(token, answer))

    def _initialize(self, event: InitializeState, now_ms: int) -> StateAnswer:
        key, share = event.key, self.shares.get(event.key)
        if key.partition < 0:
            return _NEGATIVE_PARTITION
        known_epoch = NO_EPOCH if share is None else share.state_epoch
        if event.state_epoch not in (NO_EPOCH, known_epoch) and event.state_epoch < known_epoch:
            return _FENCED_STATE
        if not self._exists(key):
            return _UNKNOWN_TOPIC
        if event.start_offset < NO_START_OFFSET or event.state_epoch < NO_EPOCH:
            return _BAD_OFFSETS
        if share is not None and event.state_epoch == known_epoch and event.start_offset == NO_START_OFFSET:
            # A retry, whose first attempt was carried out. What consumers acknowledged since then must not be lost.
            return _DONE
        snapshot = ShareSnapshot(
            0 if share is None else share.snapshot_epoch + 1,
            max(event.state_epoch, known_epoch),
            # Kafka writes 0, and pruning makes it forget the highest. A leader that is fenced must stay so.
            FIRST_LEADER_EPOCH if share is None else share.leader_epoch,
            event.start_offset,
            UNKNOWN_COUNT if event.start_offset == NO_START_OFFSET else 0,
            now_ms,
            now_ms,
        )
        self._put_snapshot(key, snapshot)
        return _DONE

    def _write(self, event: WriteState, now_ms: int) -> StateAnswer:
        key, share = event.key, self.shares.get(event.key)
        if key.partition < 0:
            return _NEGATIVE_PARTITION
        if share is None:
            return _WRITE_UNKNOWN
        if event.leader_epoch != NO_EPOCH and event.leader_epoch < share.leader_epoch:
            return _FENCED_LEADER
        if event.state_epoch != NO_EPOCH and event.state_epoch < share.state_epoch:
            return _FENCED_STATE
        if not self._exists(key):
            return _UNKNOWN_TOPIC
        numbers = event.start_offset, event.delivery_complete_count
        if min(numbers) < -1 or not all(map(_is_sound, event.batches)):
            return _BAD_OFFSETS
        if len(share.batches) + len(event.batches) > STATE_BATCHES_MAX:
            return _TOO_MANY_BATCHES
        start_offset = event.start_offset
        if start_offset != NO_START_OFFSET:
            # Only a new state epoch moves it back: a write that comes late must not.
            start_offset = max(start_offset, share.start_offset)
        brought = StateBatches(event.batches)
        brought.cut(max(start_offset, share.start_offset))
        update = ShareUpdate(
            share.snapshot_epoch,
            max(event.leader_epoch, share.leader_epoch),
            start_offset,
            event.delivery_complete_count,
            tuple(brought),
        )
        self._put_update(key, share, update, now_ms)
        return _DONE

    def _read(self, event: ReadState, now_ms: int) -> StateAnswer:
        key, share = event.key, self.shares.get(event.key)
        if key.partition < 0:
            return _NEGATIVE_PARTITION
        if share is None:
            return _READ_UNKNOWN
        if event.leader_epoch != NO_EPOCH and event.leader_epoch < share.leader_epoch:
            return _FENCED_LEADER
        if not self._exists(key):
            return _UNKNOWN_TOPIC
        if event.leader_epoch > share.leader_epoch:
            update = ShareUpdate(
                share.snapshot_epoch, event.leader_epoch, share.start_offset, share.delivery_complete_count
            )
            self._put_update(key, share, update, now_ms)
        return StateAnswer(ErrorCode.NONE, value=share.state())

    def _delete(self, event: DeleteState) -> StateAnswer:
        if event.key.partition < 0:
            return _NEGATIVE_PARTITION
        if not self._exists(event.key):
            return _UNKNOWN_TOPIC
        if event.key in self.shares:
            self._forget([event.key])
        return _DONE

    def _summarize(self, event: SummarizeState) -> StateAnswer:
        if event.key.partition < 0:
            return _NEGATIVE_PARTITION
        if not self._exists(event.key):
            return _UNKNOWN_TOPIC
        share = self.shares.get(event.key)
        return StateAnswer(ErrorCode.NONE, value=_NO_SUMMARY if share is None else share.summary())

    def _exists(self, key: SharePartitionKey) -> bool:
        facts = self._topics.by_id(key.topic_id)
        return facts is not None and key.partition < facts.partitions

    # ---- records

    def _put_update(self, key: SharePartitionKey, share: StoredShare, update: ShareUpdate, now_ms: int) -> None:
        """Store a change: as an update, or as a snapshot if there are many updates already."""
        if share.updates < self.config.updates_per_snapshot:
            share.apply(update)
            self._effects.append(Append((update_record(key, update),)))
        else:
            share.apply(update)
            self._put_snapshot(key, share.next_snapshot(now_ms, created_ms=now_ms))

    def _put_snapshot(self, key: SharePartitionKey, snapshot: ShareSnapshot) -> None:
        self.shares[key] = StoredShare(snapshot, self._next_offset())
        self._effects.append(Append((snapshot_record(key, snapshot),)))

    def _forget(self, keys: list[SharePartitionKey]) -> None:
        if keys:
            for key in keys:
                del self.shares[key]
            self._effects.append(Append(tuple(map(share_tombstone, keys))))

    # ---- upkeep

    def _on_loaded(self) -> None:
        # A topic may have been deleted while no shard was loaded. The image of the broker is not older than its
        # leadership, and the coordinators before it saw every topic that they stored a state for.
        self._forget([key for key in self.shares if self._topics.by_id(key.topic_id) is None])
        self._effects.append(StartTimer(ShareTimer.PRUNE, self.config.prune_interval_ms))
        self._effects.append(StartTimer(ShareTimer.COLD, self.config.cold_interval_ms))

    def _prune(self) -> None:
        self._effects.append(StartTimer(ShareTimer.PRUNE, self.config.prune_interval_ms))
        needed = min((share.snapshot_offset for share in self.shares.values()), default=self._next_offset())
        if self._unknown_offset is not None:
            needed = min(needed, self._unknown_offset)
        if needed > self._pruned_offset:
            self._pruned_offset = needed
            self._effects.append(PruneLog(needed))

    def _snapshot_cold(self, now_ms: int) -> None:
        """Write share partitions again whose snapshot is old, some in each step.

        When nothing but that has been written since the last time, nothing is redundant, and it is left.
        """
        if not self._cold_left and any(share.written_ms == share.created_ms for share in self.shares.values()):
            self._cold_left = list(self.shares)
        left = COLD_BATCHES_PER_STEP_MAX
        while self._cold_left and left > 0:
            key = self._cold_left.pop()
            share = self.shares.get(key)
            left -= 1
            if share is not None and now_ms - share.written_ms >= self.config.cold_interval_ms:
                left -= len(share.batches)
                self._put_snapshot(key, share.next_snapshot(now_ms, created_ms=share.created_ms))
        self._effects.append(StartTimer(ShareTimer.COLD, 0 if self._cold_left else self.config.cold_interval_ms))


def _is_sound(batch: StateBatch) -> bool:
    return 0 <= batch.first_offset <= batch.last_offset and batch.delivery_count >= 0 and batch.state in _STORED_STATES

"""What must hold for share groups, by the committed records of `__share_group_state` and by what workers saw.

The topic of tasks has one partition. A worker tells what it was given, what it acknowledged, and what was answered.

| violation | how it is seen |
|---|---|
| double-acquire | a record came again after its acceptance was acknowledged, or two workers could finish it |
| lost-task | the start offset is above a record that no worker finished, and that was not delivered too often |
| stuck-task | when all is calm, a record is not done after a while |
| early-delay | a record was given before the clock of its leader had reached its time |
| reordered-key | in a group with an order, a record was given while one before it of its key was not done |
| too-often | a record was delivered more often than the limit allows, or with a count that had been stored before |
| unstored-answer | an acknowledgement was answered that is not in the log |
| start-went-back | the start offset of a share partition moved back |

A leader that was replaced and does not know it may give out records: it stores nothing any more. So what depends on
the leader is judged only where the committed metadata names the same leader and epoch before and after the request.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.simulator.truth.invariants import Invariants, Violation

from strandline.codec.columns import decode_batch
from strandline.coordinators.shares.share_records import ShareSnapshot, ShareUpdate, decode_share_record
from strandline.coordinators.shares.share_state import DeliveryState, StateBatch
from strandline.quorum.controller.topic_names import SHARE_GROUP_STATE

TERMINAL = frozenset((DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED))
STUCK_SHOWN = 5
INFINITY = float("inf")


class TaskFacts(NamedTuple):
    """A record of the topic of tasks."""

    due_ms: int
    key: bytes | None


class Delivery(NamedTuple):
    """A record in the hands of a worker."""

    worker: str
    offset: int
    deliveries: int
    epoch: int
    """Leader epoch of the broker that gave it; -1 if it may have been replaced."""


@dataclass
class LoggedShare:
    """A share partition as the committed records say."""

    state_epoch: int = -1
    start: int = -1
    records: dict[int, tuple[int, int]] = field(default_factory=dict)
    """State and delivery count of offsets from the start on."""

    def apply(self, batches: Iterable[StateBatch]) -> None:
        for first, last, state, count in batches:
            for offset in range(max(first, self.start), last + 1):
                known = self.records.get(offset, (0, -1))
                self.records[offset] = max(known, (state, count), key=lambda each: (each[1], each[0]))

    def is_done(self, offset: int) -> bool:
        return offset < self.start or self.records.get(offset, (0, 0))[0] in TERMINAL


class ShareGroupTruth:
    """What is known of one share group."""

    def __init__(self, name: str, *, is_key_ordered: bool, limit: int) -> None:
        self.name = name
        self.is_key_ordered = is_key_ordered
        self.limit = limit
        self.logged = LoggedShare()
        self.last: dict[int, Delivery] = {}
        """The delivery of each record with the highest count, in the newest epoch."""
        self.counts: defaultdict[int, int] = defaultdict(int)
        """The highest delivery count that was seen."""
        self.released: dict[int, tuple[int, float]] = {}
        """The highest count with which a release was acknowledged, and when."""
        self.accepted: dict[int, tuple[str, float]] = {}
        """Offsets whose acceptance was acknowledged, with the worker, and when."""
        self.finished: set[int] = set()
        """Offsets that a worker accepted or rejected, whatever the answer was."""
        self.excused: set[int] = set()
        """Offsets whose stored count was one below the limit: deliveries that no worker saw may have ended them."""


class ShareTruth:
    """All share groups of a run, over one topic with one partition."""

    def __init__(self, invariants: Invariants, topic: str, *, is_delayed: bool) -> None:
        self._invariants = invariants
        self._is_delayed = is_delayed
        """Whether records are due at the time that they carry."""
        self.tasks: dict[int, TaskFacts] = {}
        self._of_key: defaultdict[bytes, list[int]] = defaultdict(list)
        self._undone: dict[tuple[str, bytes], int] = {}
        """How many of the first records of a key are known to be done."""
        self.groups: dict[str, ShareGroupTruth] = {}
        self._topic = topic

    def add(self, name: str, *, is_key_ordered: bool, limit: int) -> ShareGroupTruth:
        group = self.groups[name] = ShareGroupTruth(name, is_key_ordered=is_key_ordered, limit=limit)
        self._invariants.on_committed[self._topic] = self._learn
        self._invariants.on_committed[SHARE_GROUP_STATE] = self._fold
        return group

    @property
    def now(self) -> float:
        return self._invariants.now

    def _learn(self, batch: bytes) -> None:
        columns = decode_batch(batch)
        for record in columns if not columns.is_control else ():
            self.on_task(record.offset, record.timestamp_ms, record.key)

    def on_task(self, offset: int, due_ms: int, key: bytes | None) -> None:
        """Learn of a committed record."""
        self.tasks[offset] = TaskFacts(due_ms, key)
        if key is not None:
            self._of_key[key].append(offset)

    def _fold(self, batch: bytes) -> None:
        for record in decode_batch(batch):
            assert record.key is not None
            name, change = decode_share_record(record.key, record.value)
            group = self.groups.get(name.group_id)
            if group is None or change is None:
                continue
            self._apply(group, change)
            for first, last, _, count in change.batches:
                if count >= group.limit - 1:
                    group.excused.update(range(first, last + 1))

    def _apply(self, group: ShareGroupTruth, change: ShareSnapshot | ShareUpdate) -> None:
        logged, start = group.logged, change.start_offset
        if isinstance(change, ShareSnapshot) and change.state_epoch > logged.state_epoch:
            group.logged = logged = LoggedShare(change.state_epoch, start)
        if start != -1 and start < logged.start:
            self._fail(group, "start-went-back", f"from {logged.start} to {start}")
        self.move_start(group, start)
        known = dict(logged.records)
        if isinstance(change, ShareSnapshot):
            logged.records.clear()
        logged.apply(change.batches)
        for offset, (state, count) in known.items():
            now = logged.records.get(offset, (-1, -1))
            if (now[1], now[0]) < (count, state):
                self._fail(group, "forgotten-state", f"offset {offset} was {state, count}, and a snapshot says {now}")

    def move_start(self, group: ShareGroupTruth, start: int) -> None:
        """Judge a start offset that the log has: everything below must have come to an end."""
        logged = group.logged
        if start <= logged.start:
            return
        for offset in range(max(0, logged.start), start):
            is_ended = offset in group.finished or offset in group.excused or group.counts[offset] >= group.limit
            if offset in self.tasks and not is_ended and logged.start >= 0:
                self._fail(group, "lost-task", f"the start offset is {start}, and {offset} was never finished")
            logged.records.pop(offset, None)
        logged.start = start

    # What workers tell

    def on_given(
        self, name: str, worker: str, records: Iterable[tuple[int, int]], *, epoch: int, asked_at: float, now_ms: int
    ) -> list[Delivery]:
        """Judge records, by offset and delivery count, that a worker was given.

        `now_ms` is the clock of their leader. Answers may overtake each other, so what was acknowledged counts for
        requests that were sent since.
        """
        group, given = self.groups[name], []
        for offset, count in records:
            delivery = Delivery(worker, offset, count, epoch)
            given.append(delivery)
            task = self.tasks.get(offset)
            if task is None:
                self._fail(group, "phantom-task", f"{worker} was given {offset}, which is not committed")
            elif self._is_delayed and task.due_ms > now_ms and count == 1:
                self._fail(group, "early-delay", f"{worker} was given {offset} {task.due_ms - now_ms} ms early")
            if count > group.limit:
                self._fail(group, "too-often", f"{worker} was given {offset} for the {count}th time")
            group.counts[offset] = max(group.counts[offset], count)
            if epoch < 0:
                continue
            other, at = group.accepted.get(offset, ("", INFINITY))
            if at <= asked_at:
                self._fail(group, "double-acquire", f"{worker} was given {offset}, accepted by {other}")
            before, at = group.released.get(offset, (0, INFINITY))
            if at <= asked_at and count <= before:
                self._fail(group, "too-often", f"{offset} was released with count {before}, and is given with {count}")
            if group.is_key_ordered and task is not None and task.key is not None:
                self._check_order(group, worker, offset, task.key)
            last = group.last.get(offset)
            if last is None or (last.epoch, last.deliveries) < (epoch, count):
                group.last[offset] = delivery
        return given

    def _check_order(self, group: ShareGroupTruth, worker: str, offset: int, key: bytes) -> None:
        offsets = self._of_key[key]
        at = self._undone.get((group.name, key), 0)
        while offsets[at] < offset:
            before = offsets[at]
            # One that was delivered too often is archived at once, and that is stored afterwards.
            if not group.logged.is_done(before) and group.counts[before] < group.limit and before not in group.excused:
                self._fail(group, "reordered-key", f"{worker} was given {offset} of {key!r}, and {before} is not done")
            at += 1
        while at < len(offsets) and group.logged.is_done(offsets[at]):
            at += 1
        self._undone[group.name, key] = at

    def on_finishing(self, name: str, delivery: Delivery) -> None:
        """Learn that a worker is about to accept or reject a record."""
        self.groups[name].finished.add(delivery.offset)

    def on_acknowledged(self, name: str, delivery: Delivery, kind: str) -> None:
        """Judge an acknowledgement that was answered without an error: "accept", "release", "reject" or "renew"."""
        group, offset, now = self.groups[name], delivery.offset, self._invariants.now
        if kind == "release" and delivery.epoch >= 0:
            group.released[offset] = max(group.released.get(offset, (0, now)), (delivery.deliveries, now))
        if kind not in ("accept", "reject"):
            return
        last = group.last.get(offset)
        if last is not None and last.epoch == delivery.epoch >= 0 and last.deliveries > delivery.deliveries:
            self._fail(
                group, "double-acquire", f"{delivery.worker} could {kind} {offset}, given to {last.worker} since"
            )
        if not group.logged.is_done(offset):
            self._fail(group, "unstored-answer", f"{kind} of {offset} by {delivery.worker}")
        if kind == "accept":
            other, _ = group.accepted.setdefault(offset, (delivery.worker, now))
            if other != delivery.worker:
                self._fail(group, "double-acquire", f"{other} and {delivery.worker} both accepted {offset}")

    # The end

    def undone(self, name: str) -> str:
        """Return in words which records are not done."""
        group = self.groups[name]
        left = [offset for offset in self.tasks if not group.logged.is_done(offset)]
        if not left:
            return ""
        return f"stuck-task: group {name}: {len(left)} records, the first {sorted(left)[:STUCK_SHOWN]}"

    def _fail(self, group: ShareGroupTruth, kind: str, what: str) -> None:
        raise Violation(f"{kind}: group {group.name}: {what} at {self._invariants.now:.6f}")

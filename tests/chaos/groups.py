"""Groups under chaos: stock consumers of both protocols that commit what they processed, and one who looks on.

The checker judges what they write down: no record skipped, no position moved by a member that was fenced, and no
position going back as somebody who asks sees it. When all is healed, each group must reach the end.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Position

from strandline.ids import TopicPartition
from strandline.testing.client_threads import POLL_RECORDS_MAX, QUICK_RETRIES, ClientThread, polls_of
from strandline.testing.history import Committed, Member, Op, Outcome, Poll
from strandline.testing.recorder import Recorder

MEMBERS = 2
SESSION_MS = 6_000
LOOK_EVERY_S = 0.5
ASK_TIMEOUT_S = 5.0
LIFE_S = 30.0
"""How long a member stays about, before it leaves and another one takes its place."""

GROUP_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.session.timeout.ms": str(SESSION_MS),
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
}
"""What nodes are told, so that a dead member is noticed between two faults."""

PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {
        "partition.assignment.strategy": "range",
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": 500,
    },
    "cooperative": {
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": 500,
    },
    "consumer": {"group.protocol": "consumer"},
}

REFUSALS = frozenset(
    {
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.FENCED_MEMBER_EPOCH,
        KafkaError.STALE_MEMBER_EPOCH,
        # What librdkafka says of a commit that it did not even send.
        KafkaError._ASSIGNMENT_LOST,
        KafkaError._STATE,
        KafkaError._NO_OFFSET,
    }
)
"""Answers after which the position was certainly not moved. After any other error it may have been."""


def group_of(topic: str, kind: str) -> str:
    return f"{kind}-group-of-{topic}"


class GroupMember(ClientThread):
    """A seat in a group: processes what it polls, then commits; now and then it leaves and another one sits down."""

    def __init__(self, recorder: Recorder, bootstrap: str, topic: str, kind: str, rng: random.Random) -> None:
        self.process = recorder.new_process()
        super().__init__(recorder, f"{kind}-member-{self.process}")
        self.topic = topic
        self.group = group_of(topic, kind)
        self._rng = rng
        self._moved: set[str] = set()
        self._taken: set[str] = set()
        self._due: dict[str, int] = {}
        """Positions behind what was processed that are not committed yet."""
        self._settings = {
            "bootstrap.servers": bootstrap,
            "group.id": self.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **PROTOCOLS[kind],
            **QUICK_RETRIES,
        }

    def work(self) -> None:
        while not self.stopping.is_set():
            self._live_once(time.monotonic() + self._rng.uniform(0.3, 2.0) * LIFE_S)
            self.process = self.recorder.new_process()

    def _live_once(self, until: float) -> None:
        self._moved, self._taken, self._due = set(), set(), {}
        consumer = Consumer(dict(self._settings))
        try:
            consumer.subscribe([self.topic], on_assign=self._on_moved, on_revoke=self._on_taken, on_lost=self._on_taken)
            now_ns = self.recorder.now_ns()
            self.recorder.add(Op(self.process, "ok", "subscribe", (Member(self.group),), now_ns, now_ns))
            while not self.stopping.is_set() and time.monotonic() < until:
                self._poll(consumer)
                self._commit(consumer)
        finally:
            consumer.close()

    def _on_moved(self, consumer: Consumer, partitions: Sequence[Position]) -> None:
        self._moved.update(f"{partition.topic}-{partition.partition}" for partition in partitions)

    def _on_taken(self, consumer: Consumer, partitions: Sequence[Position]) -> None:
        self._on_moved(consumer, partitions)
        self._taken.update(f"{partition.topic}-{partition.partition}" for partition in partitions)

    def _poll(self, consumer: Consumer) -> None:
        invoked_ns = self.recorder.now_ns()
        answers = consumer.consume(POLL_RECORDS_MAX, 0.1)
        moved, self._moved = tuple(sorted(self._moved)), set()
        polls = tuple(polls_of([answer for answer in answers if answer.error() is None]))
        now_ns = self.recorder.now_ns()
        if polls:
            self.recorder.add(Op(self.process, "ok", "poll", polls, invoked_ns, now_ns, rebalanced=moved))
        for error in filter(None, (answer.error() for answer in answers)):
            reason = f"{error.name()}: {error.str()}"
            self.recorder.add(Op(self.process, "info", "poll", (), invoked_ns, now_ns, error=reason))
        self._note_processed(polls)

    def _note_processed(self, polls: Sequence[Poll]) -> None:
        self._due |= {poll.partition: poll.records[-1][0] + 1 for poll in polls}
        # What was taken away while the call ran is somebody else's to commit, though it may have come back since.
        taken, self._taken = self._taken, set()
        for name in taken:
            self._due.pop(name, None)

    def _commit(self, consumer: Consumer) -> None:
        if not self._due:
            return
        asked = [Position(*_split(name), offset) for name, offset in self._due.items()]
        invoked_ns = self.recorder.now_ns()
        try:
            answers = consumer.commit(offsets=asked, asynchronous=False)
        except KafkaException as failure:
            self._record(_outcome(failure.args[0]), asked, invoked_ns, failure.args[0])
            return
        done = [answer for answer in answers if answer.error is None]
        self._record("ok", done, invoked_ns)
        for answer in answers:
            if answer.error is not None:
                self._record(_outcome(answer.error), [answer], invoked_ns, answer.error)
        for answer in done:
            self._due.pop(f"{answer.topic}-{answer.partition}", None)

    def _record(
        self, outcome: Outcome, positions: Iterable[Position], invoked_ns: int, error: KafkaError | None = None
    ) -> None:
        mops = tuple(Committed(self.group, f"{each.topic}-{each.partition}", each.offset) for each in positions)
        reason = "" if error is None else f"{error.name()}: {error.str()}"
        if mops:
            now_ns = self.recorder.now_ns()
            self.recorder.add(Op(self.process, outcome, "commit", mops, invoked_ns, now_ns, error=reason))


class PositionWatcher(ClientThread):
    """Asks for the positions of a group again and again, and is no member of it."""

    def __init__(self, recorder: Recorder, bootstrap: str, partitions: Sequence[TopicPartition], kind: str) -> None:
        self.process = recorder.new_process()
        super().__init__(recorder, f"{kind}-watcher-{self.process}")
        self.group = group_of(partitions[0].topic, kind)
        self.partitions = tuple(partitions)
        self.settings = {"bootstrap.servers": bootstrap, "group.id": self.group, **QUICK_RETRIES}

    def work(self) -> None:
        consumer = Consumer(dict(self.settings))
        try:
            while not self.stopping.wait(LOOK_EVERY_S):
                self.look(consumer)
        finally:
            consumer.close()

    def look(self, consumer: Consumer) -> dict[str, int]:
        """What the coordinator says now; nothing if there is none that answers."""
        invoked_ns = self.recorder.now_ns()
        try:
            answers = consumer.committed([Position(*each) for each in self.partitions], timeout=ASK_TIMEOUT_S)
        except KafkaException:
            return {}
        found = {
            f"{answer.topic}-{answer.partition}": answer.offset
            for answer in answers
            if answer.error is None and answer.offset >= 0
        }
        mops = tuple(Committed(self.group, name, offset) for name, offset in found.items())
        if mops:
            now_ns = self.recorder.now_ns()
            self.recorder.add(Op(self.process, "ok", "read_committed_offset", mops, invoked_ns, now_ns))
        return found

    def wait_position(self, ends: Mapping[str, int], *, timeout_s: float) -> str:
        """Waits until the group has committed everything below `ends`; else says what it still has to do."""
        consumer = Consumer(dict(self.settings))
        deadline = time.monotonic() + timeout_s
        try:
            while True:
                found = self.look(consumer)
                behind = {name: (found.get(name, 0), end) for name, end in ends.items() if found.get(name, 0) < end}
                if not behind:
                    return ""
                if time.monotonic() > deadline:
                    return f"{self.group} did not reach the end within {timeout_s:g} s: {behind}"
                self.stopping.wait(LOOK_EVERY_S / 5)
        finally:
            consumer.close()


def groups_over(
    recorder: Recorder, bootstrap: str, partitions: Sequence[TopicPartition], *, seed: int
) -> tuple[list[GroupMember], list[PositionWatcher]]:
    """A group of each kind over all partitions, and a watcher for each."""
    topic = partitions[0].topic
    members = [
        GroupMember(recorder, bootstrap, topic, kind, random.Random(f"{seed} {kind} {seat}"))
        for kind in PROTOCOLS
        for seat in range(MEMBERS)
    ]
    return members, [PositionWatcher(recorder, bootstrap, partitions, kind) for kind in PROTOCOLS]


def _split(name: str) -> tuple[str, int]:
    topic, _, number = name.rpartition("-")
    return topic, int(number)


def _outcome(error: KafkaError) -> Outcome:
    return "fail" if error.code() in REFUSALS else "info"

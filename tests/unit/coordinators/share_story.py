"""A shard of share partitions on a table: brokers ask, timers run on a clock of the story, the log is a list."""

from __future__ import annotations

import uuid
from typing import Any

from strandline.coordinators.groups.events import Append, Loaded, Reply, StartTimer, TimerFired
from strandline.coordinators.groups.shard_terms import CoordinatorRecord
from strandline.coordinators.groups.topics import FixedTopics, TopicFacts
from strandline.coordinators.shares.events import (
    DeleteState,
    InitializeState,
    PruneLog,
    ReadState,
    ShareEvent,
    ShareTimer,
    StateAnswer,
    SummarizeState,
    WriteState,
)
from strandline.coordinators.shares.share_config import ShareConfig
from strandline.coordinators.shares.share_shard import LoggedRecord, ShareShard
from strandline.coordinators.shares.share_state import SharePartitionKey, ShareState, ShareSummary, StateBatch
from strandline.errors import ErrorCode

ORDERS = TopicFacts("orders", uuid.UUID(int=1 << 64), 3)
PAYMENTS = TopicFacts("payments", uuid.UUID(int=2 << 64), 1)
KEYS = tuple(
    SharePartitionKey(group, topic.id, index)
    for group in ("workers", "audit:a")
    for topic in (ORDERS, PAYMENTS)
    for index in range(topic.partitions)
)
KEY = KEYS[0]


class StoryToken:
    """One request; `answer` is None until it is answered."""

    def __init__(self) -> None:
        self.answer: Any = None


class ShareStory:
    """The driver of one shard. Offsets of the log begin at `log_start`; everything is committed at once."""

    def __init__(self, **settings: int) -> None:
        self.config = ShareConfig(**settings)
        self.topics: list[TopicFacts] = [ORDERS, PAYMENTS]
        self.now_ms = 1_000_000
        self.log: list[LoggedRecord] = []
        self.next_offset = 0
        self.timers: dict[ShareTimer, int] = {}
        self.restart()

    def restart(self) -> None:
        """Another coordinator takes over: it knows the log, and nothing else."""
        self.timers = {}
        self.shard = self.loaded_shard(self.log)
        self.step(Loaded())

    def loaded_shard(self, log: list[LoggedRecord]) -> ShareShard:
        shard = ShareShard(self.config, FixedTopics(self.topics), next_offset=lambda: self.next_offset)
        shard.load(log)
        return shard

    # ---- the driver

    def step(self, event: ShareEvent) -> None:
        for effect in self.shard.step(event, self.now_ms):
            match effect:
                case Append(records=records):
                    assert records
                    for record in records:
                        self.append(record)
                case Reply(token=token, response=response):
                    assert isinstance(token, StoryToken)
                    assert token.answer is None, "answered twice"
                    token.answer = response
                case StartTimer(key=key, delay_ms=delay_ms):
                    assert delay_ms >= 0
                    self.timers[key] = self.now_ms + delay_ms
                case PruneLog(offset=offset):
                    assert offset <= self.next_offset
                    self.log = [record for record in self.log if record.offset >= offset]

    def append(self, record: CoordinatorRecord) -> None:
        self.log.append(LoggedRecord(self.next_offset, *record))
        self.next_offset += 1

    def pass_ms(self, duration_ms: int) -> None:
        until = self.now_ms + duration_ms
        while True:
            due = min(self.timers, key=self.timers.__getitem__, default=None)
            if due is None or self.timers[due] > until:
                break
            self.now_ms = max(self.now_ms, self.timers.pop(due))
            self.step(TimerFired(due))
        self.now_ms = until

    # ---- brokers

    def ask(self, event_class: Any, *args: Any) -> StateAnswer:
        token = StoryToken()
        self.step(event_class(token, *args))
        assert isinstance(token.answer, StateAnswer)
        return token.answer

    def initialize(self, key: SharePartitionKey = KEY, *, epoch: int = 1, start: int = -1) -> ErrorCode:
        return self.ask(InitializeState, key, epoch, start).code

    def write(
        self, *batches: StateBatch, key: SharePartitionKey = KEY, epoch: int = 1, leader: int = 0, start: int = -1
    ) -> ErrorCode:
        return self.ask(WriteState, key, epoch, leader, start, len(batches), batches).code

    def read(self, key: SharePartitionKey = KEY, *, leader: int = -1) -> ShareState | ErrorCode:
        answer = self.ask(ReadState, key, leader)
        return answer.code if answer.code else answer.value  # type: ignore[return-value]

    def summary(self, key: SharePartitionKey = KEY) -> ShareSummary | ErrorCode:
        answer = self.ask(SummarizeState, key)
        return answer.code if answer.code else answer.value  # type: ignore[return-value]

    def delete(self, key: SharePartitionKey = KEY) -> ErrorCode:
        return self.ask(DeleteState, key).code


def memory_of(shard: ShareShard) -> dict[SharePartitionKey, tuple[Any, ...]]:
    """Return everything that a shard knows and a log must say."""
    return {
        key: (
            share.snapshot_epoch,
            share.state(),
            share.summary(),
            share.created_ms,
            share.written_ms,
            share.updates,
        )
        for key, share in shard.shares.items()
    }

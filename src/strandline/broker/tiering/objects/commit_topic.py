"""The commit log of object topics on this node: what it says, and what this node adds to it.

It has one partition, so that it has one order. A node reads all of it, and so can lead any partition at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from strandline.broker.environment import Environment
from strandline.broker.tiering.objects.commit_checkpoints import CommitCheckpoints
from strandline.broker.tiering.topic_client import RETRY_S, TopicClient, TopicShape
from strandline.codec.columns import Record
from strandline.errors import ErrorCode, RequestError
from strandline.handlers.support.context import BrokerServices
from strandline.tiers.store.waiting import pause
from strandline.tiers.wal.checkpoint import apply_event
from strandline.tiers.wal.commit_fold import CommitFold
from strandline.tiers.wal.events import (
    COMMIT_TOPIC,
    CommitEvent,
    LeadersClaimed,
    ObjectCommitted,
    ObjectId,
    commit_topic_settings,
    decode_event,
    encode_event,
)

log = logging.getLogger("strandline.tiering")

PLACE: Final = 0
"""The only partition."""
_REPLICATION: Final = "strandline.object.commits.replication.factor"
Accepted = tuple[bool, ...]


class CommitTopic(TopicClient):
    def __init__(self, environment: Environment, services: BrokerServices, checkpoints: CommitCheckpoints) -> None:
        super().__init__(environment, services, COMMIT_TOPIC)
        self._checkpoints = checkpoints
        self.fold = CommitFold()
        self._loaded: CommitFold | None = None
        """What a checkpoint says, from which records are read on."""
        self._sound_term = (-1, -1)
        """The leader and the leader epoch in which the log was seen to have all that was read of it."""
        self._is_warned = False
        self._outcomes: dict[ObjectId, Accepted | None] = {}
        """By object whose commit this node waits for: what the first record of it did."""
        self.on_event: Callable[[CommitEvent], object] = lambda _: None

    def shape(self) -> TopicShape:
        config, brokers = self._environment.config(), len(self._environment.image().brokers)
        factor = config.strandline_object_commits_replication_factor
        if _REPLICATION not in config.given:
            factor = max(1, min(factor, brokers))
        return TopicShape(1, factor, commit_topic_settings(factor))

    @property
    def is_led_here(self) -> bool:
        return self.leader_of(PLACE) == self._environment.node_id

    @property
    def is_known(self) -> bool:
        """Whether anything of the topic was read."""
        return PLACE in self.positions

    @property
    def is_empty(self) -> bool:
        """Whether no record of the topic is known."""
        return not self.positions.get(PLACE, 0)

    async def is_lost(self) -> bool | None:
        """Return whether the log is empty although the store has objects; None if that cannot be told now.

        Then the disks that had it were lost. A leader that began again at 0 would give offsets twice, and the objects
        would be deleted as orphans.
        """
        if self.is_empty and self.topic() is not None and not await self.read_to_end(PLACE):
            return None
        return self.is_empty and await self._checkpoints.has_objects()

    async def _may_append(self) -> bool:
        """Return whether the log has what was read of it, and is not a new one in the place of one that was lost.

        The first record in such a log would make it look whole. A log is lost with the process that leads it, so one
        look for each leader epoch is enough.
        """
        known = self._environment.image().partition(COMMIT_TOPIC, PLACE)
        if known is None:
            # There is none yet, or it was deleted, which is possible only without object topics.
            if not self.is_empty:
                self.positions[PLACE], self.fold = 0, CommitFold()
            return await self._checkpoints.has_objects() is False
        term = known.leader, known.leader_epoch
        if term == self._sound_term:
            return True
        end_offset = await self._end_of(PLACE)
        if end_offset is None:
            return False
        if end_offset < self.positions.get(PLACE, 0) or (
            not end_offset and await self._checkpoints.has_objects() is not False
        ):
            if not self._is_warned:
                self._is_warned = True
                log.error(
                    "%s ends at %d, and had more: its disks were lost. Nothing is written to object topics; bring the "
                    "disks back, or build a new cluster with `strandline storage restore`",
                    COMMIT_TOPIC,
                    end_offset,
                )
            return False
        self._sound_term = term
        return True

    async def begin_at(self, place: int, offset: int) -> bool:
        self._loaded = CommitFold() if offset == 0 else await self._checkpoints.load(offset)
        return self._loaded is not None

    def on_began(self, place: int) -> None:
        assert self._loaded is not None
        self.fold, self._loaded = self._loaded, None

    def take(self, place: int, record: Record) -> None:
        event = None if record.value is None else decode_event(record.value)
        if event is None:
            return
        accepted = apply_event(self.fold, event)
        if isinstance(event, ObjectCommitted) and self._outcomes.get(event.object_id, accepted) is None:
            self._outcomes[event.object_id] = accepted
        self.on_event(event)

    async def append(self, *events: CommitEvent) -> None:
        """Write records, and wait until they are read here, for as long as it takes. Return early when closed."""
        await self._append([encode_event(each) for each in events])

    async def append_within(self, limit_s: float, event: CommitEvent) -> None:
        """Write a record, and wait until it is read here. Raises RequestError if that takes too long."""
        if not await self._may_append():
            raise RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{COMMIT_TOPIC} takes no records now")
        code = await self.append_record(PLACE, encode_event(event), limit_s=limit_s)
        if code:
            raise RequestError(code, f"{COMMIT_TOPIC} takes no records now: {code.name}")

    async def _append(self, values: Sequence[bytes]) -> bool:
        complaint = ErrorCode.NONE
        while not self._is_closed:
            if not await self._may_append():
                await pause(self._runtime, RETRY_S)
                continue
            try:
                code = await self.append_record(PLACE, *values)
            except RequestError as error:
                code = error.code
            if not code:
                return True
            if code != complaint:
                complaint = code
                log.warning("%s takes no records now, and they are written again: %s", COMMIT_TOPIC, code.name)
            await pause(self._runtime, RETRY_S)
        return False

    async def commit(self, events: Sequence[ObjectCommitted]) -> list[Accepted]:
        """Write commits. Return what the log accepted of each, which is decided for good; nothing when closed.

        It goes on until that is known: whether a record was written whose answer was lost, only the log can say.
        """
        ids = [each.object_id for each in events]
        self._outcomes.update(dict.fromkeys(ids))
        try:
            await self.append(*events)
            return [
                self._outcomes[each] or (False,) * len(event.ranges) for each, event in zip(ids, events, strict=True)
            ]
        finally:
            for each in ids:
                del self._outcomes[each]

    async def claim(self, claim: LeadersClaimed) -> Accepted:
        """Write that this node leads partitions. Return for which of them no newer leader has."""
        await self.append(claim)
        wanted = (((topic_id, index), (epoch, claim.broker_epoch)) for topic_id, index, epoch in claim.partitions)
        return tuple(
            [(found := self.fold.partitions.get(key)) is not None and found.claim == own for key, own in wanted]
        )

"""All groups that live in one partition of `__consumer_offsets`, behind one door."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, assert_never

from strandline.codec.internal_records import UnknownRecord, decode_coordinator_record
from strandline.codec.messages.group_metadata_key import GroupMetadataKey
from strandline.codec.messages.group_metadata_value import GroupMetadataValue
from strandline.codec.messages.offset_commit_key import OffsetCommitKey
from strandline.codec.messages.offset_commit_request import OffsetCommitRequest
from strandline.codec.messages.offset_commit_value import OffsetCommitValue
from strandline.coordinators.groups import admin
from strandline.coordinators.groups.any_group import Group
from strandline.coordinators.groups.classic import join, membership, rebalance
from strandline.coordinators.groups.classic.classic_group import ClassicGroup, GroupState
from strandline.coordinators.groups.consumer import classic_join as consumer_classic_join
from strandline.coordinators.groups.consumer import classic_members as consumer_classic_members
from strandline.coordinators.groups.consumer import describe as consumer_describe
from strandline.coordinators.groups.consumer import fencing as consumer_fencing
from strandline.coordinators.groups.consumer import heartbeat as consumer_heartbeat
from strandline.coordinators.groups.consumer import offset_access as consumer_offsets
from strandline.coordinators.groups.consumer import records as consumer_records
from strandline.coordinators.groups.consumer import replay as consumer_replay
from strandline.coordinators.groups.consumer import target_assignment as consumer_target
from strandline.coordinators.groups.consumer.consumer_group import ConsumerGroup
from strandline.coordinators.groups.events import (
    AlterShareOffsets,
    CommitOffsets,
    CommitTransactionalOffsets,
    ConsumerHeartbeat,
    DeleteGroup,
    DeleteOffsets,
    DeleteShareOffsets,
    DescribeConsumerGroup,
    DescribeGroup,
    DescribeShareGroup,
    Effect,
    Event,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    ListSharePartitions,
    Loaded,
    ShareHeartbeat,
    ShareStateAnswered,
    SyncGroup,
    TimerFired,
    TopicDeleted,
    TopicsChanged,
    TransactionEnded,
)
from strandline.coordinators.groups.group_config import GroupConfig
from strandline.coordinators.groups.group_records import group_from_metadata
from strandline.coordinators.groups.history.group_history import GroupHistory, Happening, is_at_rest
from strandline.coordinators.groups.replay import PendingRecord, Replayed
from strandline.coordinators.groups.shard_terms import CoordinatorRecord, TimerKey, TimerKind
from strandline.coordinators.groups.share import fencing as share_fencing
from strandline.coordinators.groups.share import offsets_admin as share_offsets
from strandline.coordinators.groups.share import replay as share_replay
from strandline.coordinators.groups.share import target_assignment as share_target
from strandline.coordinators.groups.share.share_events import forget_topic as forget_topic_of_shares
from strandline.coordinators.groups.share.share_events import step_share
from strandline.coordinators.groups.share.share_group import ShareGroup
from strandline.coordinators.groups.step_context import StepContext
from strandline.coordinators.groups.topics import FixedTopics, Topics
from strandline.coordinators.offsets import offsets, transactional_offsets
from strandline.coordinators.offsets.expiry import OffsetExpiry
from strandline.coordinators.offsets.offsets import CommittedOffsets
from strandline.coordinators.offsets.plain_commit import PlainCommit
from strandline.errors import ErrorCode

if TYPE_CHECKING:
    from random import Random


TAKEN_OVER = "another coordinator took over before all had their assignment"


class GroupShard:
    """The state machine. `load` the partition's records, say `Loaded()`, then `step` for every event.

    The state is that of the log plus what was asked to be appended. If an append fails, the shard knows more than the
    log: the driver throws it away and loads another.
    """

    def __init__(
        self,
        config: GroupConfig,
        random: Random,
        topics: Topics | None = None,
        history: GroupHistory | None = None,
    ) -> None:
        self.config = config
        self.history = GroupHistory() if history is None else history
        self.topics = FixedTopics() if topics is None else topics
        self.groups: dict[str, Group] = {}
        self.offsets = CommittedOffsets()
        self._expiry = OffsetExpiry()
        self._random = random
        self._pending = 0
        """Member ids handed out and not joined with yet, over all groups."""

    def load(self, records: Iterable[tuple[bytes, bytes | None] | Replayed]) -> None:
        """Fold what the log says into the state, in its order; may be called again and again with what comes next."""
        for record in records:
            if isinstance(record, TransactionEnded):
                self.offsets.end_transaction(record.producer_id, is_commit=record.is_commit)
                continue
            try:
                key, value = decode_coordinator_record(record[0], record[1])
            except UnknownRecord:
                # Written by a newer broker. It stays in the log for the one that knows it.
                continue
            if isinstance(key, OffsetCommitKey):
                self._load_offset(key, value, record)
            elif isinstance(key, GroupMetadataKey):
                if value is None:
                    if self._classic(key.group) is not None:
                        del self.groups[key.group]
                else:
                    assert isinstance(value, GroupMetadataValue)
                    self.groups[key.group] = group_from_metadata(key.group, value)
            elif isinstance(key, share_replay.KEYS):
                share_replay.load(self.groups, key, value)
            else:
                # Groups of other kinds are not served; an Apache Kafka broker may have left some.
                consumer_replay.load(self.groups, key, value)

    def _load_offset(
        self, key: OffsetCommitKey, value: object, record: tuple[bytes, bytes | None] | PendingRecord
    ) -> None:
        if value is None:
            self.offsets.discard(key.group, key.topic, key.partition)
            return
        assert isinstance(value, OffsetCommitValue)
        if isinstance(record, PendingRecord):
            self.offsets.pending.put(record.producer_id, key.group, key.topic, key.partition, value)
        else:
            self.offsets.put(key.group, key.topic, key.partition, value)

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        step = StepContext(now_ms, self.config, self.topics, self.history)
        match event:
            case CommitOffsets():
                self._commit(event, step)
            case CommitTransactionalOffsets():
                self._commit_transactional(event, step)
            case TransactionEnded():
                self._end_transaction(event)
            case FetchOffsets():
                self._fetch(event, step)
            case ConsumerHeartbeat():
                step.may_describe = event.may_describe
                self._consumer_heartbeat(event, step)
            case DescribeConsumerGroup(group_id=group_id):
                consumer_describe.describe(self.groups.get(group_id), event, step)
            case Heartbeat(request=request):
                group = self.groups.get(request.group_id)
                if isinstance(group, ConsumerGroup):
                    consumer_classic_members.heartbeat(group, event, step)
                else:
                    membership.heartbeat(self._classic(request.group_id), event, step)
            case JoinGroup():
                self._join(event, step)
            case SyncGroup(request=request):
                group = self.groups.get(request.group_id)
                if isinstance(group, ConsumerGroup):
                    consumer_classic_members.sync(group, event, step)
                else:
                    membership.sync(self._classic(request.group_id), event, step)
            case LeaveGroup():
                self._leave(event, step)
            case TimerFired(key=key):
                self._on_timer(key, step)
            case DescribeGroup(group_id=group_id):
                admin.describe(self.groups.get(group_id), event, step)
            case ListGroups():
                admin.list_groups(self.groups, event, step)
            case DeleteGroup():
                self._delete(event, step)
            case (
                ShareHeartbeat()
                | ShareStateAnswered()
                | DescribeShareGroup()
                | ListSharePartitions()
                | AlterShareOffsets()
                | DeleteShareOffsets()
            ):
                step_share(self.groups, event, step)
            case DeleteOffsets(request=request):
                admin.delete_offsets(self.groups.get(request.group_id), self.offsets, event, step)
            case TopicDeleted(topic=topic, topic_id=topic_id):
                offsets.forget_topic(self.offsets, topic, topic_id, step)
                self._forget_unused()
                forget_topic_of_shares(self.groups, topic_id, step)
            case TopicsChanged(names=names):
                # The classic protocol leaves it to its members to look at topics.
                for group in self.groups.values():
                    if isinstance(group, ConsumerGroup):
                        consumer_target.on_topics_changed(group, names)
                    elif isinstance(group, ShareGroup):
                        share_target.on_topics_changed(group, names)
            case Loaded():
                self._on_loaded(step)
            case _:
                assert_never(event)
        return step.effects

    def _classic(self, group_id: str) -> ClassicGroup | None:
        group = self.groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def _consumer_heartbeat(self, event: ConsumerHeartbeat, step: StepContext) -> None:
        group_id = event.request.group_id
        before = self._classic(group_id)
        consumer_heartbeat.heartbeat(self.groups, event, step, self._random)
        if before is not None and self.groups.get(group_id) is not before:
            self._pending -= len(before.pending_join)

    def _join(self, event: JoinGroup, step: StepContext) -> None:
        request = event.request
        code = join.request_error(request, step)
        group = self.groups.get(request.group_id)
        if code is ErrorCode.NONE and isinstance(group, ShareGroup):
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        elif code is ErrorCode.NONE and isinstance(group, ConsumerGroup) and group.members:
            consumer_classic_join.join(self.groups, group, event, step, self._random)
            return
        if code is ErrorCode.NONE and not isinstance(group, ClassicGroup):
            if request.member_id == join.UNKNOWN_MEMBER_ID:
                made = ClassicGroup(request.group_id, now_ms=step.now_ms)
                if isinstance(group, ConsumerGroup):
                    # Its members are gone for good, so it makes way. Generations go on where its epochs end: what was
                    # said in one of them must not pass for something of today.
                    made.generation_id = group.group_epoch
                    step.append(*consumer_records.consumer_group_tombstones(group))
                group = self.groups[request.group_id] = made
            else:
                code = ErrorCode.UNKNOWN_MEMBER_ID
        if not isinstance(group, ClassicGroup) or code is not ErrorCode.NONE:
            join.refuse(event, code, step)
            return
        pending_before = len(group.pending_join)
        join.join(group, event, step, self._random, may_hand_out_id=self._pending < self.config.pending_members_max)
        self._settle(group, pending_before)

    def _leave(self, event: LeaveGroup, step: StepContext) -> None:
        group = self.groups.get(event.request.group_id)
        if isinstance(group, ConsumerGroup):
            consumer_classic_members.leave(self.groups, group, event, step)
            return
        group = self._classic(event.request.group_id)
        pending_before = 0 if group is None else len(group.pending_join)
        membership.leave(group, event, step)
        if group is not None:
            self._settle(group, pending_before)

    def commit_plain(
        self, plain: PlainCommit, offset: int, leader_epoch: int, now_ms: int
    ) -> tuple[CoordinatorRecord, int | None] | None:
        """Move a position as `step(CommitOffsets)` would; return its record and the session timeout to restart.

        Return None, with nothing changed, if `step` has to answer: the group is unknown or the commit is rejected.
        """
        group = self.groups.get(plain.group_id)
        if group is None or _commit_error(group, plain.request, plain.api_version) is not ErrorCode.NONE:
            return None
        value, record = plain.at(offset, leader_epoch, now_ms)
        self.offsets.put(plain.group_id, plain.topic, plain.partition, value)
        if isinstance(group, ClassicGroup) and (member := group.members.get(plain.member_id)) is not None:
            return record, member.session_timeout_ms
        return record, None

    def _commit(self, event: CommitOffsets, step: StepContext) -> None:
        request = event.request
        group = self.groups.get(request.group_id)
        code = _commit_error(group, request, event.api_version)
        if code is not ErrorCode.NONE:
            step.reply(event.token, offsets.refuse_commit(request, code))
            return
        if group is None:
            # A consumer that manages its partitions itself and only keeps its positions here: a "simple" group.
            group = self.groups[request.group_id] = ClassicGroup(request.group_id, now_ms=step.now_ms)
        offsets.commit(self.offsets, group, event, step)
        if isinstance(group, ClassicGroup):
            self._maybe_forget(group)

    def _commit_transactional(self, event: CommitTransactionalOffsets, step: StepContext) -> None:
        group_id = event.request.group_id
        group = self.groups.get(group_id)
        code = transactional_offsets.commit_error(group, event.request)
        if code is not ErrorCode.NONE:
            step.reply(event.token, offsets.refuse_commit(event.request, code))
            return
        if group is None:
            group = self.groups[group_id] = ClassicGroup(group_id, now_ms=step.now_ms)
        transactional_offsets.commit(self.offsets, event, step)
        if isinstance(group, ClassicGroup):
            self._maybe_forget(group)

    def _end_transaction(self, event: TransactionEnded) -> None:
        for group_id in self.offsets.end_transaction(event.producer_id, is_commit=event.is_commit):
            group = self._classic(group_id)
            if group is not None:
                self._maybe_forget(group)

    def _fetch(self, event: FetchOffsets, step: StepContext) -> None:
        group = self.groups.get(event.request.group_id)
        code = (
            consumer_offsets.fetch_error(group, event.request) if isinstance(group, ConsumerGroup) else ErrorCode.NONE
        )
        if code is ErrorCode.NONE:
            offsets.fetch(self.offsets, event, step)
        else:
            step.reply(event.token, consumer_offsets.refuse_fetch(event.request, code))

    def _delete(self, event: DeleteGroup, step: StepContext) -> None:
        group = self.groups.get(event.group_id)
        if isinstance(group, ShareGroup):
            share_offsets.delete_group(self.groups, group, event, step)
            return
        code = admin.deletion_error(group)
        if group is None or code is not ErrorCode.NONE:
            admin.refuse_deletion(event, code, step)
            return
        if isinstance(group, ClassicGroup):
            self._pending -= len(group.pending_join)
        admin.delete(group, self.offsets, event, step)
        del self.groups[event.group_id]

    def _on_timer(self, key: TimerKey, step: StepContext) -> None:
        if key.kind is TimerKind.EXPIRY:
            self._expiry.on_timer(self.groups, self.offsets, step)
            return
        group = self.groups.get(key.group_id)
        if group is None:
            return
        if isinstance(group, ConsumerGroup):
            consumer_fencing.on_timer(self.groups, group, key, step)
            return
        if isinstance(group, ShareGroup):
            share_fencing.on_timer(group, key, step)
            return
        pending_before = len(group.pending_join)
        match key.kind:
            case TimerKind.SESSION:
                rebalance.on_session_timeout(group, key.member_id, step)
            case TimerKind.JOIN:
                rebalance.on_join_timeout(group, step)
            case TimerKind.SYNC:
                rebalance.on_sync_timeout(group, step)
        self._settle(group, pending_before)

    def _on_loaded(self, step: StepContext) -> None:
        self._expiry.start(step)
        for group_id in (*self.offsets.group_ids(), *self.offsets.pending.group_ids()):
            if group_id not in self.groups:
                self.groups[group_id] = ClassicGroup(group_id)
        self._forget_unused()
        for group in self.groups.values():
            self.history.start_over(group.group_id)
            if isinstance(group, ConsumerGroup):
                if not is_at_rest(group):
                    step.note(group, Happening.ASSIGNED, reason=TAKEN_OVER)
                consumer_fencing.on_loaded(group, step)
                continue
            if isinstance(group, ShareGroup):
                share_fencing.on_loaded(group, step)
                continue
            # How long a member was silent before we took over is unknown, so each gets a whole session.
            for member in group.members.values():
                rebalance.restart_session(group, member, step)
            if len(group.members) > self.config.group_size_max or not group.is_agreed:
                step.note(group, Happening.ASSIGNED, reason=TAKEN_OVER)
                rebalance.prepare_rebalance(group, step)

    def _settle(self, group: ClassicGroup, pending_before: int) -> None:
        self._pending += len(group.pending_join) - pending_before
        self._maybe_forget(group)

    def _maybe_forget(self, group: ClassicGroup) -> None:
        """Drop a group that never had a generation and holds nothing: the log does not know it either."""
        if (
            group.state is GroupState.EMPTY
            and group.generation_id == 0
            and not group.pending_join
            and not self.offsets.has_any_or_pending(group.group_id)
        ):
            group.transition_to(GroupState.DEAD, now_ms=group.state_timestamp_ms)
            del self.groups[group.group_id]

    def _forget_unused(self) -> None:
        for group in list(self.groups.values()):
            if isinstance(group, ClassicGroup):
                self._maybe_forget(group)


def _commit_error(group: Group | None, request: OffsetCommitRequest, api_version: int) -> ErrorCode:
    if group is None or isinstance(group, ClassicGroup):
        return offsets.commit_error(group, request, api_version)
    if isinstance(group, ConsumerGroup):
        return consumer_offsets.commit_error(group, request, api_version)
    return ErrorCode.GROUP_ID_NOT_FOUND

"""One step of a shard: the time it happens at, the settings, the topics, and the effects gathered so far."""

from __future__ import annotations

from collections.abc import Callable

from strandline.coordinators.groups.classic.classic_group import ClassicGroupMember
from strandline.coordinators.groups.consumer.consumer_group import ConsumerMember
from strandline.coordinators.groups.events import (
    Append,
    AppendTransactional,
    CancelTimer,
    Effect,
    Reply,
    Response,
    StartTimer,
)
from strandline.coordinators.groups.group_config import GroupConfig
from strandline.coordinators.groups.history.assignment_diff import Group, MemberRef, ref_of
from strandline.coordinators.groups.history.group_history import GroupHistory, Happening
from strandline.coordinators.groups.history.sentences import note_line, rebalance_line
from strandline.coordinators.groups.shard_terms import CoordinatorRecord, TimerKey, Token
from strandline.coordinators.groups.topics import Topics


class StepContext:
    """Time, settings and topics of one step of a `GroupShard`, and the effects gathered so far."""

    __slots__ = ("config", "effects", "history", "may_describe", "now_ms", "topics")

    def __init__(self, now_ms: int, config: GroupConfig, topics: Topics, history: GroupHistory) -> None:
        self.now_ms = now_ms
        self.config = config
        self.topics = topics
        self.history = history
        self.may_describe: Callable[[str], bool] | None = None
        """Which topics the client of this step may see, where access rules decide; None if no client takes it."""
        self.effects: list[Effect] = []

    def append(self, *records: CoordinatorRecord) -> None:
        self.effects.append(Append(records))

    def append_transactional(
        self, producer_id: int, producer_epoch: int, records: list[CoordinatorRecord], *, verified: object
    ) -> None:
        self.effects.append(AppendTransactional(tuple(records), producer_id, producer_epoch, verified))

    def reply(self, token: Token, response: Response) -> None:
        self.effects.append(Reply(token, response))

    def start_timer(self, key: TimerKey, delay_ms: int) -> None:
        self.effects.append(StartTimer(key, delay_ms))

    def cancel_timer(self, key: TimerKey) -> None:
        self.effects.append(CancelTimer(key))

    # ---- why it rebalances

    def note(
        self,
        group: Group,
        what: Happening,
        member: ClassicGroupMember | ConsumerMember | MemberRef | None = None,
        *,
        reason: str = "",
        opens: bool = True,
    ) -> None:
        """Remember what happens to the group, before it is changed. Unless a rebalance is open, this `opens` one."""
        who = member if member is None or isinstance(member, MemberRef) else ref_of(member)
        note = self.history.note(group, what, who, self.now_ms, reason=reason, opens=opens)
        line = note_line(group.group_id, note)
        if line is not None:
            self.effects.append(line)

    def note_fenced(self, group: Group, who: MemberRef) -> None:
        """Note a process that is fenced, because another one has taken its instance id."""
        self.note(group, Happening.FENCED, who, reason="another process has its instance id", opens=False)

    def settle(self, group: Group) -> None:
        """End the open rebalance if the group is at rest now."""
        rebalance = self.history.settle(group, self.now_ms)
        if rebalance is not None:
            self.effects.append(rebalance_line(rebalance))

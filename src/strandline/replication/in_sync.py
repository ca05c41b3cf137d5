"""The leader's view of the replicas of one partition: which are in sync, and what each holds.

A follower acknowledges by fetching: one that fetches offset n holds everything below n. Four sets matter.

    isr             what the controller last decided (the metadata log, or its answer to a proposal)
    proposed        what was proposed and is not answered yet; at most one proposal is out
    maximal set     both together: a member of either may be elected, so the high watermark waits for all of them
    eligible        replicas that may be elected when none in sync is left: nothing is committed that these do not hold.
                    If the ISR is large enough, proposing it unchanged has the controller drop them (`maybe_confirm`).
                    Only the metadata log says which are eligible. An answer does not, and the controller may have
                    used a `min.insync.replicas` that this leader does not know yet. So until the log is read, every
                    replica that the ISR left out counts as eligible

Proposals are compare-and-set on the partition epoch. If an answer is lost, the proposal is made again, unless the
metadata log brings the decision first. A replica is proposed with the broker epoch of the process that fetched. So a
broker that was restarted with an empty disk does not come in by what its predecessor held (KIP-903).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from strandline.errors import ErrorCode

UNKNOWN_OFFSET: Final = -1
NO_BROKER_EPOCH: Final = -1

_STAYS_AS_IT_WAS: Final = frozenset((ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA))
"""Errors by which the controller says that nothing changed: the proposal is dropped."""
_NEWS_WILL_TELL: Final = frozenset(
    (
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
)
"""Errors by which the controller says that it knows something newer. Until the metadata log brings it, the proposal
counts as pending: it may be what was decided."""

IsEligible = Callable[[int, int], bool]
"""Whether the broker of this id may be in sync: registered in this broker epoch, unfenced, not shutting down."""


class Proposal(NamedTuple):
    """What an AlterPartition says of one partition."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    broker_epochs: tuple[int, ...]
    """Of each member, in the same order; -1 for one that has not fetched from this leader yet."""


class FollowerState:
    """One follower, as its fetches show it."""

    __slots__ = (
        "behind_since",
        "broker_epoch",
        "caught_up_at",
        "end_offset",
        "fetched_at",
        "id",
        "is_silent",
        "leader_end_then",
        "log_start_offset",
        "whole_below",
    )

    def __init__(self, replica_id: int, now: float) -> None:
        self.id = replica_id
        self.end_offset = UNKNOWN_OFFSET
        """Everything below is there. Unknown until it fetches from this leader in this epoch."""
        self.log_start_offset = UNKNOWN_OFFSET
        self.broker_epoch = NO_BROKER_EPOCH
        self.caught_up_at = now
        """When it last held all that the leader had; at first when the leader began, so that it has time to fetch."""
        self.fetched_at = now
        self.leader_end_then = 1 << 62
        """The leader's end when it fetched last: if it fetches that offset next, it was caught up then."""
        self.behind_since: float | None = None
        self.is_silent = False
        """Whether it was to be left out because it did not keep up, and has not fetched since."""
        self.whole_below = 0
        """Its copy was begun when the leader had removed all that tombstones below this offset delete. So it does not
        need those tombstones."""


class InSyncReplicas:
    __slots__ = (
        "_counted",
        "_is_awaiting_news",
        "_is_eligible",
        "_outsiders",
        "_told_epoch",
        "eligible",
        "epoch_start_offset",
        "followers",
        "isr",
        "lag_max_s",
        "leader_epoch",
        "node_id",
        "now",
        "partition_epoch",
        "proposed",
        "replicas",
    )

    def __init__(
        self,
        node_id: int,
        *,
        replicas: Iterable[int],
        isr: Iterable[int],
        leader_epoch: int,
        partition_epoch: int,
        epoch_start_offset: int,
        lag_max_s: float,
        is_eligible: IsEligible,
        now: float,
        eligible: Iterable[int] = (),
    ) -> None:
        self.node_id = node_id
        self.replicas = tuple(replicas)
        self.isr = tuple(isr)
        self.eligible = tuple(eligible)
        """Replicas out of sync that the controller may elect: they hold all that is committed."""
        self._told_epoch = partition_epoch
        """The newest partition epoch of the metadata log; an answer may be ahead of it."""
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.epoch_start_offset = epoch_start_offset
        """The log end at which this leader began; below it are records of others."""
        self.lag_max_s = lag_max_s
        self._is_eligible = is_eligible
        self.now = now
        self.proposed: Proposal | None = None
        self._is_awaiting_news = False
        self.followers = {each: FollowerState(each, now) for each in self.replicas if each != node_id}
        self._arrange()

    def _arrange(self) -> None:
        """Decide which followers the high watermark waits for, because every follower fetch asks for it."""
        maximal = set(self.isr)
        if self.proposed is not None:
            maximal.update(self.proposed.isr)
        self._counted = [each for each in self.followers.values() if each.id in maximal]
        self._outsiders = [each for each in self.followers.values() if each.id not in maximal]

    # What the metadata log says

    def on_metadata(
        self,
        *,
        replicas: Iterable[int],
        isr: Iterable[int],
        partition_epoch: int,
        now: float,
        eligible: Iterable[int] = (),
    ) -> bool:
        """Take over the controller's decision from the metadata log, unless it is older. Return whether it was new."""
        if partition_epoch < self.partition_epoch:
            return False
        is_news = partition_epoch > self.partition_epoch
        self.replicas = tuple(replicas)
        for each in self.replicas:
            if each != self.node_id and each not in self.followers:
                self.followers[each] = FollowerState(each, now)
        for gone in [each for each in self.followers if each not in self.replicas]:
            del self.followers[gone]
        if is_news:
            self._commit(isr, partition_epoch, eligible)
        else:
            # Known from the answer to a proposal, save who the replicas are. A later proposal may be out already.
            self.eligible = tuple(eligible)
            self._arrange()
        self._told_epoch = partition_epoch
        return is_news

    def _commit(self, isr: Iterable[int], partition_epoch: int, eligible: Iterable[int]) -> None:
        self.isr = tuple(isr)
        self.partition_epoch = partition_epoch
        self.eligible = tuple(eligible)
        # Whatever was proposed was for an older partition epoch: it was decided by this, or never will be.
        self.proposed = None
        self._is_awaiting_news = False
        self._arrange()

    # What followers show

    def on_fetch(
        self, follower: FollowerState, offset: int, *, log_start_offset: int, broker_epoch: int, end_offset: int
    ) -> None:
        """Count a fetch at `offset` of a follower in `broker_epoch`. The leader's log ends at `end_offset`; see `now`.

        The caller has checked the offset against the leader's log by epoch: only then it is an acknowledgement.
        """
        if offset >= end_offset:
            follower.caught_up_at = self.now
            follower.behind_since = None
        elif offset >= follower.leader_end_then and follower.fetched_at > follower.caught_up_at:
            follower.caught_up_at = follower.fetched_at
        follower.end_offset = offset
        follower.log_start_offset = log_start_offset
        follower.broker_epoch = broker_epoch
        follower.fetched_at = self.now
        follower.is_silent = False
        follower.leader_end_then = end_offset

    def has_missed_tombstones(
        self,
        follower: FollowerState,
        offset: int,
        *,
        log_start_offset: int,
        broker_epoch: int,
        horizon: int,
        cleaned_up_to: int,
    ) -> bool:
        """Return whether a follower that fetches `offset` may hold a value whose tombstone the leader has removed.

        Markers of transactions are removed likewise. `horizon` is the offset behind the last one. A follower without
        records holds no such value. Nor does the leader send it one that a tombstone below `cleaned_up_to` deletes: it
        may copy the log for as long as it takes, while more of those tombstones are removed.
        """
        if offset == log_start_offset:
            follower.whole_below = max(horizon, cleaned_up_to)
        elif follower.broker_epoch != broker_epoch:
            # Another process, perhaps with a disk from long ago.
            follower.whole_below = 0
        return offset < horizon > follower.whole_below

    def may_lead(self, replica_id: int) -> bool:
        """Return whether the controller may elect this replica as one that holds all that is committed."""
        members = self.isr if self.proposed is None else (*self.isr, *self.proposed.isr)
        return replica_id in members or replica_id in self.eligible

    def high_watermark(self, own_end_offset: int) -> int:
        """Return up to where every replica that may be elected holds the records; -1 while one has not fetched.

        A follower that is about to join is waited for, too: else a leader with much to do would run away from it, and
        it could never come in.
        """
        for follower in self._counted:
            if follower.end_offset < own_end_offset:
                own_end_offset = follower.end_offset
        for follower in self._outsiders:
            if follower.end_offset < own_end_offset and self._is_about_to_join(follower):
                own_end_offset = follower.end_offset
        return own_end_offset

    def _is_about_to_join(self, follower: FollowerState) -> bool:
        return (
            follower.end_offset >= 0
            and self.now - follower.caught_up_at <= self.lag_max_s
            and self._is_eligible(follower.id, follower.broker_epoch)
        )

    @property
    def is_alone(self) -> bool:
        """Return whether no other replica is in sync, nor proposed: only the leader's copy counts."""
        return not self._counted

    @property
    def is_short(self) -> bool:
        """Return whether a replica is not in sync."""
        return len(self.isr) < len(self.replicas)

    def low_watermark(self, own_start_offset: int) -> int:
        """Return the offset below which no live replica has records; -1 while one in sync has not fetched."""
        for follower in (*self._counted, *self._outsiders):
            if follower.log_start_offset < own_start_offset and (
                follower in self._counted or self._is_eligible(follower.id, follower.broker_epoch)
            ):
                own_start_offset = follower.log_start_offset
        return own_start_offset

    def is_behind(self, end_offset: int) -> bool:
        """Return whether a replica in sync does not hold everything below `end_offset`."""
        return any(each.end_offset < end_offset for each in self._counted)

    # Proposals

    def maybe_expand(self, high_watermark: int) -> Proposal | None:
        """Propose to add replicas that hold all that is committed, and the beginning of this epoch.

        Where the high watermark stands still for want of replicas in sync, even a dead follower holds all below it. One
        that was left out comes in again when it fetches.
        """
        if self.proposed is not None or not self._outsiders:
            return None
        joining = [
            each.id
            for each in self._outsiders
            if not each.is_silent
            and each.end_offset >= high_watermark
            and each.end_offset >= self.epoch_start_offset
            and self._is_eligible(each.id, each.broker_epoch)
        ]
        return self._propose([*self.isr, *joining]) if joining else None

    def maybe_shrink(
        self, end_offset: int, now: float, *, may_be_alone: Callable[[], bool] = lambda: True
    ) -> Proposal | None:
        """Propose to remove replicas that did not keep up for `lag_max_s`. Called from time to time.

        `may_be_alone` is asked before all others are removed; if it says no, a later call may do so.
        """
        self.now = now
        if self.proposed is not None:
            return None
        lagging = []
        for follower in self._counted:
            if follower.end_offset >= end_offset:
                follower.behind_since = None
            elif follower.behind_since is None:
                # If nothing was written for an hour, no replica has fallen behind in that hour.
                follower.behind_since = now
            elif now - max(follower.behind_since, follower.caught_up_at) > self.lag_max_s:
                lagging.append(follower.id)
        staying = [each for each in self.isr if each not in lagging]
        if not lagging or (len(staying) == 1 and not may_be_alone()):
            return None
        for each in lagging:
            self.followers[each].is_silent = True
        return self._propose(staying)

    def maybe_confirm(self) -> Proposal | None:
        """Propose the ISR unchanged: the controller made it so small by itself, and waits for our confirmation."""
        if self.proposed is not None or not self.eligible or self._told_epoch < self.partition_epoch:
            return None
        return self._propose(list(self.isr))

    def _propose(self, isr: list[int]) -> Proposal:
        epochs = {each.id: each.broker_epoch for each in self.followers.values()}
        self.proposed = Proposal(
            self.leader_epoch,
            self.partition_epoch,
            tuple(isr),
            tuple(epochs.get(each, NO_BROKER_EPOCH) for each in isr),
        )
        self._arrange()
        return self.proposed

    def on_proposal_answered(
        self,
        proposal: Proposal,
        error_code: int,
        *,
        leader_epoch: int = -1,
        partition_epoch: int = -1,
        isr: Iterable[int] = (),
    ) -> bool:
        """Apply the controller's answer to `proposal`. Return whether to propose again.

        An answer to another proposal than the pending one is outdated and ignored.
        """
        if proposal is not self.proposed or self._is_awaiting_news:
            return False
        if error_code == ErrorCode.NONE:
            if leader_epoch == self.leader_epoch and partition_epoch > self.partition_epoch:
                isr = tuple(isr)
                left_out = [each for each in dict.fromkeys((*self.eligible, *self.isr)) if each not in isr]
                self._commit(isr, partition_epoch, left_out)
            elif leader_epoch == self.leader_epoch and partition_epoch == self.partition_epoch:
                # The controller had nothing to change, so the log names the eligible replicas, or is about to.
                self.proposed = None
                self._arrange()
            else:
                self._is_awaiting_news = True
            return False
        if error_code in _STAYS_AS_IT_WAS:
            self.proposed = None
            self._arrange()
            return False
        if error_code in _NEWS_WILL_TELL:
            self._is_awaiting_news = True
            return False
        return True

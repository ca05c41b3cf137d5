"""The membership of a share consumer: a thread sends heartbeats, and looks up the leaders of what it was assigned.

A thread of its own, because a coordinator that is lost must not stop the consumer from acknowledging records.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from strandline.client.cluster_client import ClientSettings, ClusterClient
from strandline.client.coordinators import GROUP, ask_coordinator
from strandline.client.failures import ClientFailed, ClusterFailed, DeadlinePassed
from strandline.codec.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from strandline.codec.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse
from strandline.errors import Disconnected, ErrorCode, named

log = logging.getLogger("strandline.client.shares")

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
_SOON_S: Final = 0.1
"""The first wait of a member that was assigned nothing. The share partitions of a new group are initialized first."""
_AGAIN_S: Final = 0.25
_INTERVAL_S: Final = 5.0
_REJOINS: Final = frozenset((ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND))
"""Codes after which a member joins again. A member that joins gets the last one only from a group of another type."""

PartitionKey = tuple[UUID, int]


class AssignedPartition(NamedTuple):
    """A partition that the member was assigned, and the broker that leads it."""

    topic: str
    topic_id: UUID
    partition: int
    leader_id: int
    address: tuple[str, int]


class ShareMembership:
    """One member of a share group."""

    def __init__(self, settings: ClientSettings, group_id: str, topics: Sequence[str], member_id: str) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.topics = tuple(topics)
        self._client = ClusterClient(settings)
        self._epoch = JOIN_EPOCH
        self._interval_s = _INTERVAL_S
        self._assigned: dict[UUID, list[int]] = {}
        self._partitions: Mapping[PartitionKey, AssignedPartition] = {}
        self._is_stale = False
        """Whether the leaders of the partitions are to be looked up."""
        self._failure: ClientFailed | None = None
        self._is_leaving = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    @property
    def partitions(self) -> Mapping[PartitionKey, AssignedPartition]:
        """Return what is assigned, without partitions that have no leader. Raise what ended the membership."""
        if self._failure is not None:
            raise self._failure
        return self._partitions

    def start(self) -> None:
        """Join the group, if that has not begun."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"heartbeat {self.group_id}", daemon=True)
            self._thread.start()

    def wait_partitions(self, timeout_s: float) -> None:
        """Wait until something is assigned."""
        with self._changed:
            self._changed.wait_for(lambda: self._partitions or self._failure or self._is_leaving, timeout_s)

    def look_up(self) -> None:
        """Have the leaders looked up again, because one of them is no longer the leader."""
        with self._changed:
            self._is_stale = True
            self._changed.notify_all()

    def leave(self) -> None:
        """Begin to leave the group. What the member holds stays its own as long as its sessions last."""
        with self._changed:
            self._is_leaving = True
            self._changed.notify_all()

    def join(self) -> None:
        """Wait until the member has left, but not longer than a request may take."""
        if self._thread is not None:
            self._thread.join(2 * self._client.settings.api_timeout_s)

    # The thread

    def _run(self) -> None:
        wait_s = 0.0
        due_s = time.monotonic()
        while not self._is_leaving:
            try:
                if time.monotonic() >= due_s:
                    self._beat()
                    wait_s = self._interval_s if self._assigned else min(max(_SOON_S, 2 * wait_s), self._interval_s)
                    due_s = time.monotonic() + wait_s
                if self._is_stale:
                    self._find_leaders()
            except DeadlinePassed as error:
                log.warning("member %s of share group %s: %s", self.member_id, self.group_id, error)
            except ClientFailed as error:
                self._end(error)
                break
            self._pause(due_s - time.monotonic())
        self._leave()

    def _pause(self, wait_s: float) -> None:
        with self._changed:
            if self._is_stale:
                # The look-up failed, or found no leader: it is repeated soon.
                self._changed.wait_for(lambda: self._is_leaving, _AGAIN_S)
            else:
                self._changed.wait_for(lambda: self._is_leaving or self._is_stale, max(0.0, wait_s))

    def _end(self, error: ClientFailed) -> None:
        with self._changed:
            self._failure = error
            self._changed.notify_all()

    def _beat(self) -> None:
        joins = self._epoch == JOIN_EPOCH
        answer = self._ask(self._epoch, list(self.topics) if joins else None)
        code = named(answer.error_code)
        if code in _REJOINS and not (joins and code == ErrorCode.GROUP_ID_NOT_FOUND):
            # The coordinator has forgotten the member: what it holds is still its own until the locks end.
            self._epoch = JOIN_EPOCH
            answer = self._ask(JOIN_EPOCH, list(self.topics))
            code = named(answer.error_code)
        if code:
            raise ClusterFailed(_refusal(self.group_id, code, answer.error_message))
        self._epoch = answer.member_epoch
        self._interval_s = max(_SOON_S, answer.heartbeat_interval_ms / 1000)
        if answer.assignment is not None:
            assigned = {each.topic_id: list(each.partitions) for each in answer.assignment.topic_partitions}
            if assigned != self._assigned:
                self._assigned, self._is_stale = assigned, True

    def _ask(self, epoch: int, topics: list[str] | None) -> ShareGroupHeartbeatResponse:
        request = ShareGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=epoch, subscribed_topic_names=topics
        )
        return ask_coordinator(
            self._client,
            f"stay in share group {self.group_id}",
            self.group_id,
            request,
            ShareGroupHeartbeatResponse,
            lambda answer: answer.error_code,
            key_type=GROUP,
        )

    def _find_leaders(self) -> None:
        self._is_stale = False
        topics = {topic.topic_id: topic for topic in self._client.topics(self.topics).values()}
        found: dict[PartitionKey, AssignedPartition] = {}
        for topic_id, indexes in self._assigned.items():
            topic = topics.get(topic_id)
            for index in indexes:
                leader_id = -1 if topic is None else topic.leaders.get(index, -1)
                try:
                    address = self._client.address_of(leader_id)
                except Disconnected:
                    # It has no leader for now, or the topic was created or deleted just now.
                    self._is_stale = True
                    continue
                assert topic is not None
                found[topic_id, index] = AssignedPartition(topic.name, topic_id, index, leader_id, address)
        with self._changed:
            self._partitions = found
            self._changed.notify_all()

    def _leave(self) -> None:
        try:
            if self._epoch > JOIN_EPOCH and self._failure is None:
                self._ask(LEAVE_EPOCH, None)
        except ClientFailed as error:
            log.info("member %s left share group %s without an answer: %s", self.member_id, self.group_id, error)
        finally:
            self._client.close()


def _refusal(group_id: str, code: ErrorCode, message: str | None) -> str:
    reason = message or code.name
    if code == ErrorCode.UNSUPPORTED_VERSION:
        reason = "the cluster has no share groups; enable them by share.version=1"
    elif code == ErrorCode.GROUP_ID_NOT_FOUND:
        reason = "a group of this name has another type; choose another name"
    return f"cannot join share group {group_id}: {reason}"

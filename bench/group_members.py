"""Members of groups without a client library: they join, are assigned, and can be as many as one process can hold."""

from __future__ import annotations

import time
from collections.abc import Sequence

from bench.asking import Question
from bench.wire import ServerRefused
from strandline.codec.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from strandline.codec.messages.consumer_protocol_assignment import TopicPartition as AssignedTopic
from strandline.codec.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from strandline.codec.messages.find_coordinator_request import FindCoordinatorRequest
from strandline.codec.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from strandline.codec.messages.offset_fetch_request import OffsetFetchRequest
from strandline.codec.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from strandline.coordinators.groups.classic.consumer_protocol import encode_assignment, encode_subscription

FIND_COORDINATOR_VERSION = 3
JOIN_VERSION = 3
"""The last in which a member needs no id of the broker's first."""
SYNC_VERSION = 3
OFFSET_FETCH_VERSION = 5
SESSION_TIMEOUT_MS = 1_800_000
"""Nobody says a word while something is measured: the longest that both servers allow."""
CONSUMER_PROTOCOL_VERSION = 1
WAIT_S = 60.0


def find_coordinator(peer: Question, group: str) -> tuple[int, str, int]:
    """Node id, host and port of the coordinator, once there is one."""
    deadline = time.perf_counter() + WAIT_S
    while True:
        answer = peer.ask(FindCoordinatorRequest(key=group, key_type=0), FIND_COORDINATOR_VERSION)
        if answer.error_code == 0:
            return answer.node_id, answer.host, answer.port
        if time.perf_counter() > deadline:
            raise ServerRefused(f"FindCoordinator {group}: error code {answer.error_code}")
        time.sleep(0.05)


def join_request(
    group: str, topic: str, member_id: str = "", *, session_timeout_ms: int = SESSION_TIMEOUT_MS
) -> JoinGroupRequest:
    subscription = encode_subscription(ConsumerProtocolSubscription(topics=[topic]), CONSUMER_PROTOCOL_VERSION)
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=min(session_timeout_ms, 60_000),
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", subscription)],
    )


def assignment_of(topic: str, partitions: Sequence[int]) -> bytes:
    assigned = [AssignedTopic(topic=topic, partitions=list(partitions))] if partitions else []
    return encode_assignment(ConsumerProtocolAssignment(assigned_partitions=assigned), CONSUMER_PROTOCOL_VERSION)


def join_together(peers: Sequence[Question], groups: Sequence[str], topic: str) -> list[tuple[str, int]]:
    """One member for each group; id and generation of each. All ask at once, since the first join has to wait."""
    for peer, group in zip(peers, groups, strict=True):
        _ask_until_loaded(peer, group)
        peer.say(join_request(group, topic), JOIN_VERSION)
    joined = []
    for peer, group in zip(peers, groups, strict=True):
        answer = peer.hear(JoinGroupRequest, JOIN_VERSION)
        if answer.error_code:
            raise ServerRefused(f"JoinGroup {group}: error code {answer.error_code}")
        joined.append((answer.member_id, answer.generation_id))
    for peer, group, (member_id, generation) in zip(peers, groups, joined, strict=True):
        sync(peer, group, member_id, generation, topic)
    return joined


def sync(peer: Question, group: str, member_id: str, generation: int, topic: str) -> None:
    request = SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        assignments=[SyncGroupRequestAssignment(member_id, assignment_of(topic, [0]))],
    )
    answer = peer.ask(request, SYNC_VERSION)
    if answer.error_code:
        raise ServerRefused(f"SyncGroup {group}: error code {answer.error_code}")


def _ask_until_loaded(peer: Question, group: str) -> None:
    """A coordinator that has just been found may still load what it coordinates."""
    deadline = time.perf_counter() + WAIT_S
    while peer.ask(OffsetFetchRequest(group_id=group, topics=None), OFFSET_FETCH_VERSION).error_code:
        if time.perf_counter() > deadline:
            raise ServerRefused(f"the coordinator of {group} does not serve it")
        time.sleep(0.05)

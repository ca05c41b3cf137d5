"""What the nodes of a Strandline cluster saw of groups in the last minutes, so that verdicts need no waiting.

Other clusters remember nothing of the kind; there a command looks for itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from strandline.cli.common.client import Cluster
from strandline.cli.common.conversation import Conversation, is_spoken
from strandline.cli.common.partition_places import brokers_of
from strandline.cli.group.state import GroupDescription, Place
from strandline.codec.messages.group_lag_request import GroupLagRequest
from strandline.codec.messages.group_lag_response import GroupLagResponse, WatchedPosition
from strandline.lag.samples import Sample, Window

GROUPS_PER_REQUEST = 50


@dataclass(frozen=True)
class Remembered:
    group_id: str
    place: Place
    window: Window


def remembered(cluster: Cluster, groups: Iterable[GroupDescription], *, at_ms: int) -> list[Remembered]:
    """The windows of the groups' positions as their coordinators have them, in the time of `at_ms`, which is now."""
    if not is_spoken(cluster):
        return []
    led_by: dict[int, list[str]] = {}
    for group in groups:
        if group.coordinator is not None:
            led_by.setdefault(group.coordinator, []).append(group.group_id)
    found: list[Remembered] = []
    for broker in brokers_of(cluster):
        group_ids = led_by.get(broker.id, [])
        if group_ids:
            with Conversation(broker.host, broker.port, cluster.timeout_s, cluster.security) as conversation:
                found += _ask(conversation, group_ids, at_ms)
    return found


def _ask(conversation: Conversation, group_ids: list[str], at_ms: int) -> list[Remembered]:
    found = []
    for begin in range(0, len(group_ids), GROUPS_PER_REQUEST):
        request = GroupLagRequest(group_ids=group_ids[begin : begin + GROUPS_PER_REQUEST])
        answer = conversation.ask(request, GroupLagResponse)
        if answer is None:
            return []
        for group in answer.groups:
            for position in group.positions:
                place = position.topic, position.partition
                found.append(Remembered(group.group_id, place, _window(position, at_ms)))
    return found


def _window(position: WatchedPosition, at_ms: int) -> Window:
    window = Window()
    for look in position.looks:
        window.add(
            Sample(
                at_ms - look.ago_ms,
                look.committed_offset,
                look.log_start_offset,
                look.high_watermark,
                look.age_ms,
                look.size_bytes,
                look.records,
                look.undecided,
            )
        )
    if position.waiting_ms >= 0:
        # It may have begun before the window did.
        window.waiting_since_ms = at_ms - position.waiting_ms
    return window

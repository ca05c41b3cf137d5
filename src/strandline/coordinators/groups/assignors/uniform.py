"""`uniform`: every member gets as many partitions as any other, give or take one, and keeps as many as it can.

Balance goes before stickiness. Where all subscribe to the same topics both are exact: sizes differ by one at most,
and no assignment with such sizes moves fewer partitions. Kafka moves some more: it gives the odd partitions to the
first members, we to those that hold them already.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from heapq import heapify, heappop, heappush, heapreplace

from strandline.coordinators.groups.assignors.spec import Assignment, GroupSpec, MemberSpec

UNOWNED = -1

ROUNDS_MAX = 16
"""Passes over the topics to even out members of unlike subscriptions; each about halves what is left."""

Owners = dict[uuid.UUID, list[int]]
"""For each partition of each topic the index of its owner among the members, or UNOWNED."""


def assign_uniform(spec: GroupSpec) -> dict[str, Assignment]:
    members = list(spec.members.values())
    owners: Owners = {topic_id: [UNOWNED] * spec.partitions.get(topic_id, 0) for topic_id in spec.topic_ids}
    sizes = _keep(members, owners)
    if spec.is_homogeneous:
        _even_out(owners, sizes)
    else:
        _even_out_unlike(members, owners, sizes)
    return _by_member(spec, owners)


def _keep(members: list[MemberSpec], owners: Owners) -> list[int]:
    """Leave to each member what it holds and still subscribes to; how many partitions that are."""
    sizes = [0] * len(members)
    for place, member in enumerate(members):
        for topic_id, partitions in member.assigned.items():
            if topic_id not in member.topic_ids:
                continue
            topic_owners = owners[topic_id]
            for partition in partitions:
                if partition < len(topic_owners) and topic_owners[partition] == UNOWNED:
                    topic_owners[partition] = place
                    sizes[place] += 1
    return sizes


# All members subscribe to the same topics.


def _even_out(owners: Owners, sizes: list[int]) -> None:
    if not sizes:
        return
    quota, larger = divmod(sum(map(len, owners.values())), len(sizes))
    quotas = [quota] * len(sizes)
    # Those who hold more than their share may keep one more; only then come the others.
    for place in sorted(range(len(sizes)), key=lambda place: sizes[place] <= quota)[:larger]:
        quotas[place] += 1
    for topic_owners in reversed(owners.values()):
        for partition in range(len(topic_owners) - 1, -1, -1):
            owner = topic_owners[partition]
            if owner != UNOWNED and sizes[owner] > quotas[owner]:
                topic_owners[partition] = UNOWNED
                sizes[owner] -= 1
    takers = (place for place, size in enumerate(sizes) for _ in range(quotas[place] - size))
    for topic_owners in owners.values():
        for partition, owner in enumerate(topic_owners):
            if owner == UNOWNED:
                topic_owners[partition] = next(takers)


# Members subscribe to unlike topics.


def _even_out_unlike(members: list[MemberSpec], owners: Owners, sizes: list[int]) -> None:
    subscribers: dict[uuid.UUID, list[int]] = {topic_id: [] for topic_id in owners}
    for place, member in enumerate(members):
        for topic_id in member.topic_ids:
            subscribers[topic_id].append(place)
    # Topics with the least choice first: many partitions for each of few subscribers.
    ordered = sorted(
        owners,
        key=lambda topic_id: (-len(owners[topic_id]) / len(subscribers[topic_id]), len(subscribers[topic_id])),
    )
    for topic_id in ordered:
        _fill(owners[topic_id], subscribers[topic_id], sizes)
    shared = [topic_id for topic_id in ordered if len(subscribers[topic_id]) > 1 and owners[topic_id]]
    quiet = 0
    for topic_id in shared * ROUNDS_MAX:
        quiet = 0 if _move(owners[topic_id], subscribers[topic_id], sizes) else quiet + 1
        if quiet == len(shared):
            return


def _fill(topic_owners: list[int], subscribers: list[int], sizes: list[int]) -> None:
    """Give each partition without an owner to the subscriber with the fewest."""
    if UNOWNED not in topic_owners:
        return
    fewest = [(sizes[place], place) for place in subscribers]
    heapify(fewest)
    for partition, owner in enumerate(topic_owners):
        if owner == UNOWNED:
            size, place = fewest[0]
            topic_owners[partition] = place
            sizes[place] = size + 1
            heapreplace(fewest, (size + 1, place))


def _move(topic_owners: list[int], subscribers: list[int], sizes: list[int]) -> bool:
    """Move partitions of one topic from who has most to who has fewest, as long as that evens out; whether any moved.

    Each move brings two sizes nearer to each other, so it ends.
    """
    fewest = [(sizes[place], place) for place in subscribers]
    if max(fewest)[0] - min(fewest)[0] <= 1:
        return False
    heapify(fewest)
    held = _held(topic_owners)
    most = [(-sizes[place], place) for place in held]
    heapify(most)
    has_moved = False
    while most:
        negative_size, giver = most[0]
        size, taker = fewest[0]
        # A size that has changed since it was put on a heap stands there a second time, as it is now.
        if -negative_size != sizes[giver] or not held[giver]:
            heappop(most)
        elif size != sizes[taker]:
            heappop(fewest)
        elif -negative_size - size <= 1:
            break
        else:
            partition = held[giver].pop()
            held.setdefault(taker, []).append(partition)
            topic_owners[partition] = taker
            for place, change in ((giver, -1), (taker, +1)):
                sizes[place] += change
                heappush(most, (-sizes[place], place))
                heappush(fewest, (sizes[place], place))
            has_moved = True
    return has_moved


def _held(topic_owners: Iterable[int]) -> dict[int, list[int]]:
    held: dict[int, list[int]] = {}
    for partition, owner in enumerate(topic_owners):
        held.setdefault(owner, []).append(partition)
    return held


def _by_member(spec: GroupSpec, owners: Owners) -> dict[str, Assignment]:
    assigned: dict[str, Assignment] = {member_id: {} for member_id in spec.members}
    assignments = list(assigned.values())
    for topic_id, topic_owners in owners.items():
        for place, partitions in _held(topic_owners).items():
            assignments[place][topic_id] = partitions
    return assigned

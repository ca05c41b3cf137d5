"""`range`: of every topic each subscriber gets one run of neighbouring partitions, in the order of the members.

Members that subscribe to the same topics of the same size get the same partition numbers of each, which is what joins
of streams need. Static members come first and by their instance ids, so a restart does not change anybody's range.
Nothing else is sticky here: a member more or less moves the ranges of all.
"""

from __future__ import annotations

import uuid

from strandline.coordinators.groups.assignors.spec import Assignment, GroupSpec


def assign_range(spec: GroupSpec) -> dict[str, Assignment]:
    assigned: dict[str, Assignment] = {member_id: {} for member_id in spec.members}
    for topic_id, members in _subscribers(spec).items():
        quota, longer = divmod(spec.partitions.get(topic_id, 0), len(members))
        start = 0
        # Where there are more members than partitions, the last get none of this topic.
        for place, member_id in enumerate(members if quota else members[:longer]):
            end = start + quota + (place < longer)
            assigned[member_id][topic_id] = list(range(start, end))
            start = end
    return assigned


def _subscribers(spec: GroupSpec) -> dict[uuid.UUID, list[str]]:
    members = _in_order(spec)
    if spec.is_homogeneous:
        return dict.fromkeys(spec.topic_ids, members)
    subscribers: dict[uuid.UUID, list[str]] = {topic_id: [] for topic_id in spec.topic_ids}
    for member_id in members:
        for topic_id in spec.members[member_id].topic_ids:
            subscribers[topic_id].append(member_id)
    return subscribers


def _in_order(spec: GroupSpec) -> list[str]:
    def place(member_id: str) -> tuple[bool, str]:
        instance_id = spec.members[member_id].instance_id
        return (False, instance_id) if instance_id is not None else (True, member_id)

    return sorted(spec.members, key=place)

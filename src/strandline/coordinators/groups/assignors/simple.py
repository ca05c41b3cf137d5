"""`simple`, the assignor of share groups: members may share a partition, and each keeps as much as it can.

With `m` members and `p` partitions every partition goes to `ceil(m / p)` members, so that every member has one. The
sizes of any two members with the same subscription differ by one at most. With no more members than partitions it is a
plain split. Topics that the same members subscribe to are spread together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from uuid import UUID

from strandline.coordinators.groups.assignors.spec import Assignment, MemberSpec

Place = tuple[UUID, int]
"""Topic id and partition."""


def assign_simple(
    members: Mapping[str, MemberSpec], partitions: Mapping[UUID, Collection[int]]
) -> dict[str, Assignment]:
    """Return for each member, in the order of `members`, its partitions by topic id; sorted lists, none empty.

    `partitions` has the partitions of each topic that may be assigned.
    """
    topics_of: dict[tuple[str, ...], list[UUID]] = {}
    for topic_id in sorted(partitions, key=int):
        subscribers = tuple(member_id for member_id, member in members.items() if topic_id in member.topic_ids)
        if subscribers and partitions[topic_id]:
            topics_of.setdefault(subscribers, []).append(topic_id)
    sizes = dict.fromkeys(members, 0)
    assigned: dict[str, Assignment] = {member_id: {} for member_id in members}
    # Topics with the least choice first, so that later ones can make up for them.
    for subscribers, topic_ids in sorted(topics_of.items(), key=lambda item: len(item[0])):
        places = [(topic_id, index) for topic_id in topic_ids for index in sorted(partitions[topic_id])]
        spread = _Spread(places, {member_id: members[member_id] for member_id in subscribers}, sizes)
        spread.balance()
        for member_id in subscribers:
            sizes[member_id] += len(spread.held[member_id])
            for topic_id, index in sorted(spread.held[member_id]):
                assigned[member_id].setdefault(topic_id, []).append(index)
    return assigned


class _Spread:
    """The partitions of some topics over the members that subscribe to all of them."""

    def __init__(self, places: list[Place], members: Mapping[str, MemberSpec], sizes: Mapping[str, int]) -> None:
        """`sizes` says what members have of other topics: a member with less gets the odd partitions."""
        self._sharing = -(-len(members) // len(places))
        self._holders: dict[Place, dict[str, None]] = {place: {} for place in places}
        self.held: dict[str, dict[Place, None]] = {}
        for member_id, member in members.items():
            before = ((topic_id, index) for topic_id, indexes in member.assigned.items() for index in indexes)
            self.held[member_id] = {place: None for place in before if place in self._holders}
            for place in self.held[member_id]:
                self._holders[place][member_id] = None
        quota, larger = divmod(self._sharing * len(places), len(members))
        # Members that hold more than the quota may keep one more. Only then come the others.
        order = sorted(members, key=lambda member_id: (len(self.held[member_id]) <= quota, sizes[member_id]))
        self._quotas = dict.fromkeys(members, quota)
        for member_id in order[:larger]:
            self._quotas[member_id] += 1

    def balance(self) -> None:
        self._take_from_crowded_partitions()
        self._take_from_large_members()
        needing = [place for place, holders in self._holders.items() for _ in range(self._sharing - len(holders))]
        takers = [
            member_id for member_id in self.held for _ in range(self._quotas[member_id] - len(self.held[member_id]))
        ]
        # As many are needed as members may take, because quotas add up to all that partitions are to have.
        for place in needing:
            self._give(place, takers)

    def _take_from_crowded_partitions(self) -> None:
        for place, holders in self._holders.items():
            surplus = len(holders) - self._sharing
            if surplus > 0:
                by_excess = sorted(holders, key=lambda member_id: self._quotas[member_id] - len(self.held[member_id]))
                self._drop((place, member_id) for member_id in by_excess[:surplus])

    def _take_from_large_members(self) -> None:
        for member_id, held in self.held.items():
            surplus = len(held) - self._quotas[member_id]
            if surplus > 0:
                self._drop([(place, member_id) for place in list(held)[-surplus:]])

    def _drop(self, pairs: Iterable[tuple[Place, str]]) -> None:
        for place, member_id in pairs:
            del self._holders[place][member_id]
            del self.held[member_id][place]

    def _give(self, place: Place, takers: list[str]) -> None:
        """Give the partition to the first taker without it; if all have it, one of them takes another instead."""
        holders = self._holders[place]
        at = next((at for at, member_id in enumerate(takers) if member_id not in holders), None)
        taker = takers.pop(at or 0)
        if at is None:
            # A member without this one holds at least as many as the taker: so it has one that the taker lacks.
            giver = next(member_id for member_id in self.held if member_id not in holders)
            other = next(other for other in self.held[giver] if other not in self.held[taker])
            self._drop([(other, giver)])
            self._put(other, taker)
            taker = giver
        self._put(place, taker)

    def _put(self, place: Place, member_id: str) -> None:
        self._holders[place][member_id] = None
        self.held[member_id][place] = None

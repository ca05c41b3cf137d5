"""What open transactions are about to commit, for all groups of a shard; `transactional_offsets` tells why."""

from __future__ import annotations

from collections.abc import Iterator

from strandline.codec.messages.offset_commit_value import OffsetCommitValue

Place = tuple[str, int]
"""Topic and partition."""


class PendingOffsets:
    __slots__ = ("_by_group", "_by_producer")

    def __init__(self) -> None:
        self._by_group: dict[str, dict[Place, dict[int, OffsetCommitValue | None]]] = {}
        """By group, place and producer id, producers in the order of their records in the log. None: a later record of
        the place is committed already, so this one will never be."""
        self._by_producer: dict[int, dict[tuple[str, Place], None]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_group)

    def has_any(self, group_id: str) -> bool:
        return group_id in self._by_group

    def has(self, group_id: str, topic: str, partition: int) -> bool:
        return (topic, partition) in self._by_group.get(group_id, {})

    def group_ids(self) -> Iterator[str]:
        yield from self._by_group

    def of_group(self, group_id: str) -> Iterator[Place]:
        yield from self._by_group.get(group_id, {})

    def values_at(self, group_id: str, topic: str, partition: int) -> Iterator[OffsetCommitValue]:
        """Yield the values of a place that a marker may commit."""
        for value in self._by_group.get(group_id, {}).get((topic, partition), {}).values():
            if value is not None:
                yield value

    def put(self, producer_id: int, group_id: str, topic: str, partition: int, value: OffsetCommitValue) -> None:
        place = (topic, partition)
        holders = self._by_group.setdefault(group_id, {}).setdefault(place, {})
        holders.pop(producer_id, None)
        holders[producer_id] = value
        self._by_producer.setdefault(producer_id, {})[group_id, place] = None

    def supersede(self, group_id: str, topic: str, partition: int) -> None:
        """Void the pending offsets of the place, because a plain commit follows in the log."""
        holders = self._by_group.get(group_id, {}).get((topic, partition))
        if holders is not None:
            for producer_id in holders:
                holders[producer_id] = None

    def discard(self, group_id: str, topic: str, partition: int) -> bool:
        """Forget what is pending at a place; False if nothing is."""
        place = (topic, partition)
        holders = self._by_group.get(group_id, {}).get(place)
        if holders is None:
            return False
        for producer_id in list(holders):
            self._release(producer_id, group_id, place)
            places = self._by_producer[producer_id]
            del places[group_id, place]
            if not places:
                del self._by_producer[producer_id]
        return True

    def end(self, producer_id: int, *, is_commit: bool) -> list[tuple[str, Place, OffsetCommitValue | None]]:
        """End the producer's transaction: each group and place of it, with the value that is committed there."""
        ended: list[tuple[str, Place, OffsetCommitValue | None]] = []
        for group_id, place in self._by_producer.pop(producer_id, ()):
            holders = self._by_group[group_id][place]
            value = holders[producer_id] if is_commit else None
            if value is not None:
                for earlier in holders:
                    if earlier == producer_id:
                        break
                    holders[earlier] = None
            self._release(producer_id, group_id, place)
            ended.append((group_id, place, value))
        return ended

    def _release(self, producer_id: int, group_id: str, place: Place) -> None:
        places = self._by_group[group_id]
        holders = places[place]
        del holders[producer_id]
        if not holders:
            # Empty shells would add up, and a group is protected as long as it is listed.
            del places[place]
            if not places:
                del self._by_group[group_id]

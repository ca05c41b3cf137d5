"""Where share groups are in their partitions, and how much is left: the share coordinator knows, and the leader.

lag = end of the log - start offset - records above the start offset whose delivery is complete
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID

from strandline.broker.coordinating.coordinator_runtime import FindPartition
from strandline.broker.coordinating.lag_leaders import PLACES_PER_REQUEST_MAX, LagLeaders, Place, Told
from strandline.broker.environment import Environment
from strandline.coordinators.shares.share_state import NO_START_OFFSET, UNKNOWN_COUNT, ShareSummary
from strandline.errors import ErrorCode
from strandline.handlers.support.services import NamedSharePartition, ShareOffset

if TYPE_CHECKING:
    from strandline.broker.coordinating.share_conversations import ShareStates

NO_LEADER_EPOCH: Final = -1
"""Stands for a reader that is not the leader of the partition."""

OnOffsets = Callable[[dict[tuple[UUID, int], ShareOffset]], object]


class ShareOffsets:
    """The offsets of share groups, read when they are asked for."""

    def __init__(
        self, environment: Environment, find_partition: FindPartition, states: Callable[[], ShareStates]
    ) -> None:
        self._environment = environment
        self._find_partition = find_partition
        self._states = states
        self._leaders = LagLeaders(environment)

    def read(self, group_id: str, partitions: Sequence[NamedSharePartition], on_done: OnOffsets) -> None:
        """Call back with the offsets of all the partitions."""
        found: dict[tuple[UUID, int], ShareOffset] = {}
        if not partitions:
            on_done(found)
            return
        left = len(partitions)

        def put(asked: NamedSharePartition, code: ErrorCode, summary: ShareSummary | None) -> None:
            nonlocal left
            offset = ShareOffset(code)
            if summary is not None:
                offset = ShareOffset(code, summary.start_offset, summary.leader_epoch, summary.delivery_complete_count)
            found[asked.topic_id, asked.partition] = offset
            left -= 1
            if not left:
                self._add_lags(partitions, found, on_done)

        for each in partitions:
            self._states().summary(
                group_id,
                each.topic_id,
                each.partition,
                NO_LEADER_EPOCH,
                lambda code, summary, each=each: put(each, code, summary),  # type: ignore[misc]
            )

    def _add_lags(
        self,
        partitions: Sequence[NamedSharePartition],
        found: dict[tuple[UUID, int], ShareOffset],
        on_done: OnOffsets,
    ) -> None:
        places: dict[Place, tuple[UUID, int]] = {}
        for each in partitions:
            offset = found[each.topic_id, each.partition]
            if (
                offset.code is ErrorCode.NONE
                and offset.start_offset != NO_START_OFFSET
                and offset.completed != UNKNOWN_COUNT
            ):
                places[each.topic, each.partition] = each.topic_id, each.partition

        def on_ends(ends: dict[Place, int]) -> None:
            for place, key in places.items():
                offset, end = found[key], ends.get(place)
                found[key] = (
                    ShareOffset(ErrorCode.LEADER_NOT_AVAILABLE)
                    if end is None
                    else offset._replace(lag=max(0, end - offset.start_offset - offset.completed))
                )
            on_done(found)

        _EndOffsets(self._environment, self._find_partition, self._leaders, on_ends).look(list(places))

    def close(self) -> None:
        self._leaders.close()


class _EndOffsets:
    """The high watermarks of some partitions, asked of their leaders; those that cannot be had are left out."""

    def __init__(
        self,
        environment: Environment,
        find_partition: FindPartition,
        leaders: LagLeaders,
        on_ends: Callable[[dict[Place, int]], object],
    ) -> None:
        self._environment = environment
        self._find_partition = find_partition
        self._leaders = leaders
        self._on_ends = on_ends
        self._ends: dict[Place, int] = {}
        self._open = 1

    def look(self, places: list[Place]) -> None:
        image = self._environment.image()
        elsewhere: dict[int, list[Place]] = {}
        for name, index in places:
            partition = self._find_partition(name, index)
            if partition is not None and partition.is_leader:
                self._ends[name, index] = partition.high_watermark
            elif (known := image.partition(name, index)) is not None and known.leader >= 0:
                elsewhere.setdefault(known.leader, []).append((name, index))
        for broker_id, asked in elsewhere.items():
            if self._environment.address_of(broker_id) is None:
                continue
            for first in range(0, len(asked), PLACES_PER_REQUEST_MAX):
                self._open += 1
                part = asked[first : first + PLACES_PER_REQUEST_MAX]
                self._leaders.ask(broker_id, {place: [] for place in part}, self._on_told)
        self._close_one()

    def _on_told(self, told: Told) -> None:
        for place, ((_, end), _) in told.items():
            self._ends[place] = end
        self._close_one()

    def _close_one(self) -> None:
        self._open -= 1
        if not self._open:
            self._on_ends(self._ends)

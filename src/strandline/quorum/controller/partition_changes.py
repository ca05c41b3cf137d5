"""One change of one partition: replicas, in-sync set, leader; the record that makes it so, or None if nothing changes.

A caller states what shall hold (`PartitionChange`), and `record()` works out what follows from it, in this order: a
reassignment that is complete ends, the eligible leader replicas (ELR, KIP-966) are brought up to date, a leader is
elected.

- A clean leader comes from the in-sync set, or from the ELR while that set is empty: both hold everything that was
  acknowledged. With the ELR, the in-sync set may become empty; without, its last member stays listed.
- Whom the controller puts out of the in-sync set, so that one member is left, stays in the ELR until the leader has
  asked for that set itself. The one that is left may have been dead for most of its session, and have lost by a power
  cut what the others hold, who only hung or had a full disk. Kafka forgets these at once where `min.insync.replicas`
  is 1, and elects what the power left.
- An unclean leader may lack acknowledged records. There are two kinds: any live replica where the topic allows it, and
  the first of the last known ELR where no member of the in-sync set or of the ELR is left, because all of them had an
  unclean shutdown. The partition is marked as recovering.
- The last known ELR are the last known leader and, behind it, those that left the ELR by an unclean shutdown while
  there was no leader. All of them held everything that was acknowledged. Kafka remembers only the leader; if that one
  came back with a new disk, no replica could lead.
- Every record that is applied raises the partition epoch; only one that names a leader raises the leader epoch. The
  leader is named when it changes or when a replica is removed, so that the removed one is fenced off. An in-sync set
  that shrinks or grows under the same leader keeps its leader epoch.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from strandline.codec.messages.partition_change_record import PartitionChangeRecord
from strandline.quorum.image.cluster_image import (
    MIGRATING_DIRECTORY,
    NO_LEADER,
    NO_LEADER_CHANGE,
    UNASSIGNED_DIRECTORY,
    PartitionImage,
)

RECOVERED: Final = 0
RECOVERING: Final = 1

AGREED_MIN: Final = 2
"""Below so many members, an in-sync set counts only once its leader has asked for it."""


class Election(Enum):
    ONLINE = auto()
    """Keep the leader if it may lead, else the first replica that is in sync."""
    PREFERRED = auto()
    """The first replica, if it is in sync; else as above."""
    ANOTHER = auto()
    """The next replica behind the leader that is in sync; nothing changes if there is none."""
    UNCLEAN = auto()
    """As ONLINE, and any live replica if there is no such leader."""


@dataclasses.dataclass(slots=True)
class PartitionChange:
    """What shall hold of a partition; None leaves as it is."""

    topic_id: uuid.UUID
    index: int
    partition: PartitionImage
    may_lead: Callable[[PartitionImage, int], bool]
    """Whether a broker is active and the directory with its replica of this partition online."""
    directory_of: Callable[[int], uuid.UUID]
    """Where a broker puts a new replica."""
    in_sync_min: int
    """`min.insync.replicas`; a partition with fewer replicas wants all of them."""
    has_elr: bool
    election: Election = Election.ONLINE
    isr: list[int] | None = None
    is_asked_by_leader: bool = False
    """Whether the leader wants this in-sync set. If not, it acknowledges nothing until it has said that it knows of it:
    see `Partition.recount`."""
    replicas: list[int] | None = None
    removing: list[int] | None = None
    adding: list[int] | None = None
    leader_recovery_state: int | None = None
    unclean_shutdown: int | None = None
    """A broker that may have lost what it had acknowledged: it leaves in-sync set and ELR."""
    directory: tuple[int, uuid.UUID] | None = None
    """A broker, and the directory in which it has its replica."""

    def record(self) -> PartitionChangeRecord | None:
        partition = self.partition
        record = PartitionChangeRecord(partition_id=self.index, topic_id=self.topic_id)
        isr = partition.isr if self.isr is None else self.isr
        replicas = partition.replicas if self.replicas is None else self.replicas
        removing = partition.removing_replicas if self.removing is None else self.removing
        adding = partition.adding_replicas if self.adding is None else self.adding
        if removing or adding:
            completed = _completed(isr, replicas, removing)
            if completed is not None:
                isr, replicas = completed
                removing = adding = []
        elr = self._eligible(isr, replicas)
        last_known = self._last_known(isr, replicas)
        leader, is_unclean = self._elected(isr, replicas, elr, last_known)
        if leader != partition.leader:
            record.leader = leader
            if is_unclean:
                # No other replica is known to agree with it.
                isr, elr = [leader], []
                record.leader_recovery_state = RECOVERING
            elif leader in elr:
                isr, elr = [leader], [each for each in elr if each != leader]
        elif not set(partition.replicas) <= set(replicas):
            record.leader = partition.leader
        if isr != partition.isr and (isr or self.has_elr):
            record.isr = isr
        if elr != (partition.eligible_leader_replicas or []):
            record.eligible_leader_replicas = elr
        if leader >= 0 and self.has_elr:
            # From here on, records may be committed that none of them holds.
            last_known = []
        if last_known != (partition.last_known_elr or []):
            record.last_known_elr = last_known
        self._assign(record, replicas, removing, adding)
        if record.leader_recovery_state < 0 and self.leader_recovery_state not in (
            None,
            partition.leader_recovery_state,
        ):
            record.leader_recovery_state = self.leader_recovery_state or RECOVERED
        if record.leader_recovery_state == partition.leader_recovery_state:
            record.leader_recovery_state = -1
        return None if _is_empty(record) else record

    def _eligible(self, isr: list[int], replicas: list[int]) -> list[int]:
        """Return the replicas that left the in-sync set while it was below the minimum: they hold what it holds."""
        in_sync_min = self.in_sync_min if self.is_asked_by_leader else max(self.in_sync_min, AGREED_MIN)
        if not self.has_elr or len(isr) >= min(in_sync_min, len(replicas)):
            return []
        candidates = dict.fromkeys([*(self.partition.eligible_leader_replicas or ()), *self.partition.isr])
        return [each for each in candidates if each not in isr and each in replicas and each != self.unclean_shutdown]

    def _last_known(self, isr: list[int], replicas: list[int]) -> list[int]:
        """Return the last known ELR, beginning with the last known leader, for the case that no leader is elected.

        A replica that is in another directory now is a new, empty one, and is forgotten.
        """
        partition = self.partition
        known = partition.last_known_elr or []
        if not self.has_elr:
            return known
        last = [partition.leader] if partition.leader >= 0 and not isr else []
        held = [*partition.isr, *(partition.eligible_leader_replicas or ())]
        lost = [each for each in held if each == self.unclean_shutdown]
        candidates = dict.fromkeys([*last, *known, *lost])
        return [each for each in candidates if each in replicas and not self._is_emptied(each)]

    def _is_emptied(self, broker_id: int) -> bool:
        """Return whether this change says that the broker's replica is in another directory."""
        if self.directory is None or self.directory[0] != broker_id:
            return False
        held = dict(zip(self.partition.replicas, self.partition.directories, strict=False)).get(broker_id)
        return held not in (None, UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY, self.directory[1])

    # Elections.

    def _elected(self, isr: list[int], replicas: list[int], elr: list[int], last_known: list[int]) -> tuple[int, bool]:
        """Return the leader, or none, and whether it may lack records."""
        partition = self.partition
        eligible = isr or elr
        acceptable = [each for each in replicas if each in eligible and self._may_lead(each)]
        if self.election is Election.PREFERRED and replicas[0] in acceptable:
            return replicas[0], False
        if self.election is Election.ANOTHER and partition.leader in replicas:
            # In a ring: a leader that was asked before, and had to resign as well, is not asked again at once.
            at = replicas.index(partition.leader) + 1
            acceptable = [each for each in (*replicas[at:], *replicas[:at]) if each in acceptable]
            return acceptable[0] if acceptable else partition.leader, False
        if partition.leader in acceptable:
            return partition.leader, False
        if acceptable:
            return acceptable[0], False
        if not eligible and self.has_elr and last_known and self._may_lead(last_known[0]):
            return last_known[0], True
        if self.election is Election.UNCLEAN:
            for each in replicas:
                if self._may_lead(each):
                    return each, True
        return NO_LEADER, False

    def _may_lead(self, broker_id: int) -> bool:
        partition = self.partition
        if self.directory is not None:
            partition = dataclasses.replace(partition, directories=self._directories(partition.replicas))
        return broker_id != self.unclean_shutdown and self.may_lead(partition, broker_id)

    def _assign(
        self, record: PartitionChangeRecord, replicas: list[int], removing: list[int], adding: list[int]
    ) -> None:
        partition = self.partition
        if replicas != partition.replicas:
            record.replicas = replicas
        if replicas != partition.replicas or self.directory is not None:
            directories = self._directories(replicas)
            if directories != partition.directories:
                record.directories = directories
        if removing != partition.removing_replicas:
            record.removing_replicas = removing
        if adding != partition.adding_replicas:
            record.adding_replicas = adding

    def _directories(self, replicas: list[int]) -> list[uuid.UUID]:
        held = dict(zip(self.partition.replicas, self.partition.directories, strict=False))
        if self.directory is not None:
            held[self.directory[0]] = self.directory[1]
        return [held[each] if each in held else self.directory_of(each) for each in replicas]


def _completed(isr: list[int], replicas: list[int], removing: list[int]) -> tuple[list[int], list[int]] | None:
    """In-sync set and replicas after a reassignment, if every replica that is to stay is in sync."""
    staying = [each for each in replicas if each not in removing]
    in_sync = [each for each in isr if each not in removing]
    return (in_sync, staying) if staying and all(each in in_sync for each in staying) else None


def _is_empty(record: PartitionChangeRecord) -> bool:
    return (
        record.leader == NO_LEADER_CHANGE
        and record.isr is None
        and record.replicas is None
        and record.removing_replicas is None
        and record.adding_replicas is None
        and record.leader_recovery_state < 0
        and record.directories is None
        and record.eligible_leader_replicas is None
        and record.last_known_elr is None
    )

"""Keeps one fetcher, and one connection, for each leader of the partitions that this broker follows.

The metadata log alone says who leads a partition, and in which epoch.
"""

from __future__ import annotations

from collections.abc import Callable

from strandline.broker.replicas.leader_fetcher import AddressOf, Connect, Done, LeaderFetcher
from strandline.config.node_config import BrokerConfig
from strandline.errors import DiskFailed
from strandline.partition.partition import Partition
from strandline.partition.tier import OnBeginning
from strandline.runtime.runtime import Runtime


class ReplicaFetchers:
    """The fetchers of a broker, by leader."""

    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        *,
        node_id: int,
        broker_epoch: Callable[[], int],
        address_of: AddressOf,
        connect: Connect,
        write_recovery_points: Callable[[Done], object],
        write_start_offsets: Callable[[Done], object],
        may_leave: Callable[[Partition], bool],
    ) -> None:
        self.runtime = runtime
        self.config = config
        self.node_id = node_id
        self.broker_epoch = broker_epoch
        self.address_of = address_of
        """Where a broker is reached by other brokers; None if it is not there."""
        self.connect = connect
        self.write_recovery_points = write_recovery_points
        self.write_start_offsets = write_start_offsets
        self.may_leave = may_leave
        """Whether a partition can do without this replica for a while."""
        self.begin_in_tier: Callable[[Partition, OnBeginning], object] = _no_tier
        """Finds out where a follower begins whose next records are in the object store alone."""
        self._fetchers: dict[int, LeaderFetcher] = {}
        self._leader_of: dict[Partition, int] = {}
        self.giving_up: set[Partition] = set()
        """Replicas that are to copy their leader's log again, when that permits it."""
        self.bytes_in = 0

    def follow(self, partition: Partition) -> None:
        """Fetch from the leader that `partition` has now, if it has one."""
        before, leader_id = self._leader_of.get(partition), partition.leader_id
        if before is not None and before != leader_id:
            self.unfollow(partition)
        if partition.log.failure is not None:
            # To ask for more would say that what is here is kept.
            return
        if leader_id < 0:
            return
        fetcher = self._fetchers.get(leader_id)
        if fetcher is None:
            fetcher = self._fetchers[leader_id] = LeaderFetcher(self, leader_id)
        self._leader_of[partition] = leader_id
        fetcher.follow(partition)

    def copy_again(self, partition: Partition) -> bool:
        """Discard the log of a partition that is followed, and copy its leader's, as soon as the leader permits it.

        The leader does when the replica is out of sync. Until then it is told that nothing here counts. Whether that
        may be: not while too few others are in sync.
        """
        leader_id = self._leader_of.get(partition)
        if leader_id is None or not self.may_leave(partition):
            return False
        if partition not in self.giving_up:
            self.giving_up.add(partition)
            self._fetchers[leader_id].follow(partition)
        return True

    def unfollow(self, partition: Partition) -> None:
        self.giving_up.discard(partition)
        leader_id = self._leader_of.pop(partition, None)
        if leader_id is not None:
            fetcher = self._fetchers[leader_id]
            fetcher.unfollow(partition)
            if not fetcher.partitions:
                fetcher.close()
                del self._fetchers[leader_id]

    def lags(self) -> dict[Partition, int]:
        """How many records each followed partition lacks, as far as is known; what its leader has not told is not."""
        return {
            partition: fetcher.lag_of(partition)
            for fetcher in self._fetchers.values()
            for partition in fetcher.partitions.values()
        }

    def __len__(self) -> int:
        return len(self._leader_of)

    def close(self) -> None:
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers.clear()
        self._leader_of.clear()
        self.giving_up.clear()


def _no_tier(partition: Partition, then: OnBeginning) -> None:
    then(None, DiskFailed("remote.log.storage.system.enable is false on this node"))

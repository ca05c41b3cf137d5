"""What happens to the disks of a run: they are slow, hang, fill up, fail a write, and are replaced by empty ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulator.world.disk import CAPACITY_BYTES

if TYPE_CHECKING:
    from tests.simulator.world.cluster import SimNode
    from tests.simulator.world.nemesis import Nemesis


class DiskFaults:
    def __init__(self, nemesis: Nemesis) -> None:
        self._nemesis = nemesis
        self._random = nemesis.random
        self.kinds: dict[str, Callable[[SimNode], bool]] = {
            "slow disk": self._slow,
            "stalled disk": self._stall,
            "full disk": self._fill,
            "brimming disk": self._brim,
            "failing write": self._fail_write,
            "replaced disk": self._replace,
        }

    def _slow(self, target: SimNode) -> bool:
        target.host.thread_factor = self._random.choice([10.0, 100.0, 1000.0])
        self._nemesis.later(self._nemesis.some_time(0.5, 15.0), self._speed_up, target)
        return True

    def _speed_up(self, target: SimNode) -> None:
        target.host.thread_factor = 1.0

    def _stall(self, target: SimNode) -> bool:
        target.host.stalled_until = self._nemesis.loop.now + self._nemesis.some_time(0.2, 15.0)
        return True

    def _fill(self, target: SimNode) -> bool:
        target.disk.used_bytes = 0
        target.disk.capacity_bytes = self._random.randint(0, 20_000)
        self._nemesis.later(self._nemesis.some_time(0.5, 15.0), self._free, target)
        return True

    def _brim(self, target: SimNode) -> bool:
        """Let other files take and leave the last blocks: any write finds the disk full, and the next may not."""
        target.disk.full_share = self._random.choice([0.02, 0.2, 0.5])
        self._nemesis.later(self._nemesis.some_time(0.5, 10.0), self._free, target)
        return True

    def _free(self, target: SimNode) -> None:
        target.disk.capacity_bytes = CAPACITY_BYTES
        target.disk.full_share = 0.0

    def _fail_write(self, target: SimNode) -> bool:
        if not target.is_up:
            return False
        target.disk.fail_writes = 1
        return True

    def _replace(self, target: SimNode) -> bool:
        """Replace a disk as docs/cluster.md says: everything else is whole, and the other voters are in step."""
        if not target.is_up or not self._nemesis.is_whole() or not self._is_spare(target):
            return False
        target.power_cut()
        target.replace_disk()
        self._nemesis.on_disk_replaced(target)
        self._nemesis.restart_later(target, 0.5, 15.0)
        return True

    def _is_spare(self, target: SimNode) -> bool:
        """Return whether the other nodes hold everything that this disk holds."""
        nodes = {each.node_id: each.node for each in self._nemesis.cluster.up()}
        node = nodes[target.node_id]
        assert node is not None
        for topic in node.image.topics.values():
            for partition in topic.partitions:
                if target.node_id in partition.replicas and set(partition.isr) <= {target.node_id}:
                    return False
        ends = [each.metadata.log.log_end_offset for each in nodes.values() if each is not None]
        return len(ends) == len(self._nemesis.cluster.nodes) and len(set(ends)) == 1

"""A partition of an object topic: its records count when they are in the object store, and the commit log says so.

Its log is a partition's log, with one difference: "flushed" means committed there. `flushed_offset` moves with the
commits and by nothing else, and acknowledgements and the high watermark follow it, as with `flush.mode=ack`. The files
on the disk are never synced. They are what is not uploaded yet, and a cache for readers at the tail.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from strandline.config.topic_config import TopicConfig
from strandline.errors import RequestError
from strandline.log.cache_files import CacheDisk, NeverSynced
from strandline.partition.partition import Partition
from strandline.partition.verification import VerificationGuard

if TYPE_CHECKING:
    from strandline.log.disk import Disk


class ObjectPartition(Partition):
    """A partition whose `flusher` is the writer of objects."""

    __slots__ = ("why_full",)

    def __init__(self, *args: Any, **more: Any) -> None:
        self.why_full: Callable[[], RequestError | None] = lambda: None
        """Return why no batch is taken now: too much waits for the store."""
        super().__init__(*args, **more)
        # Not before the commit log says so, too.
        self.is_leader = False
        self.log.unsynced = NeverSynced()
        self.log.disk = self.log.snapshots.disk = cast("Disk", CacheDisk(self.log.disk))

    def configure(self, config: TopicConfig, *, is_only_copy: bool) -> None:
        super().configure(config, is_only_copy=is_only_copy)
        self.flush_before_ack = True

    def append(
        self,
        batch: memoryview | bytearray,
        now_ms: int,
        *,
        is_opened: bool = False,
        guard: VerificationGuard | None = None,
    ) -> tuple[int, int, int]:
        refusal = self.why_full()
        if refusal is not None:
            raise refusal
        return super().append(batch, now_ms, is_opened=is_opened, guard=guard)

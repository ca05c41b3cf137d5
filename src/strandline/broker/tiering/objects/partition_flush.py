"""What has to be written of one partition of an object topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from strandline.partition.object_partition import ObjectPartition
from strandline.runtime.runtime import Runtime

if TYPE_CHECKING:
    from strandline.log.partition_log import PartitionLog


class FlushListener(Protocol):
    """What writes the batches of all partitions."""

    runtime: Runtime

    def note(self, flush: PartitionFlush) -> None: ...
    def forget(self, flush: PartitionFlush) -> None: ...


class PartitionFlush:
    """What has to be written of one partition. In the place of its `flusher`."""

    __slots__ = ("buffered_bytes", "is_led", "partition", "runtime", "seen_bytes", "taken_offset", "term", "writer")

    def __init__(self, writer: FlushListener, partition: ObjectPartition) -> None:
        self.writer = writer
        self.runtime = writer.runtime
        self.partition = partition
        self.term = 0
        """Grows whenever what was taken does not count any more."""
        self.is_led = False
        self.taken_offset = 0
        """The first offset that is in no object yet."""
        self.seen_bytes = self.buffered_bytes = 0

    def flush_soon(self, log: PartitionLog) -> None:
        """Called with each batch that is appended."""
        if self.is_led and log.log_end_offset > self.taken_offset:
            self.writer.note(self)

    def flush(self, log: PartitionLog) -> None:
        self.flush_soon(log)

    def begin(self) -> None:
        """Write what is appended from now on. Everything before is committed."""
        self.end()
        self.is_led = True
        self.taken_offset = self.partition.log.log_end_offset
        self.seen_bytes = self.partition.bytes_in

    def end(self) -> None:
        """Write nothing more. What is on its way does not count."""
        self.term += 1
        self.is_led = False
        self.writer.forget(self)

    def take_again(self) -> None:
        """Write again what is not committed."""
        self.term += 1
        self.taken_offset = self.partition.log.flushed_offset

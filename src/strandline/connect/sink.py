"""What a sink is: a class with a few methods.

    class Printer(connect.Sink):
        '''Prints values.'''

        async def write(self, batch):
            for record in batch:
                print(record.value)

`write` returns when the records are stored on the other side, or when it will store them in `flush`. Only then their
offsets are committed, so none is lost. To write none twice, a sink is idempotent by key, or it keeps offsets in the
target: it stores them with the rows, and returns them from `resume`. Each method may be a plain one, which runs in a
thread.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol

from strandline.connect.failures import InvalidConnectorConfig
from strandline.connect.records import SinkRecord, TopicPosition
from strandline.connect.source import Connector


class SinkBatch(Protocol):
    """Records in the order of their partitions: a sequence, and columns for sinks that want no object for each."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[SinkRecord]: ...

    def __getitem__(self, index: int, /) -> SinkRecord: ...

    @property
    def values(self) -> Sequence[Any]:
        """The value of each record."""

    @property
    def keys(self) -> Sequence[Any]:
        """The key of each record."""

    @property
    def ends(self) -> Mapping[TopicPosition, int]:
        """The offset behind the last record of each partition that is in the batch."""


class RecordList(list[SinkRecord]):
    """A list of records as a batch, for sinks that are called by hand, as in tests."""

    @property
    def values(self) -> Sequence[Any]:
        return [each.value for each in self]

    @property
    def keys(self) -> Sequence[Any]:
        return [each.key for each in self]

    @property
    def ends(self) -> Mapping[TopicPosition, int]:
        ends = {(each.original_topic, each.original_partition): each.offset + 1 for each in self}
        return {TopicPosition(*place): end for place, end in ends.items()}


class Sink(Connector):
    """Base of sinks."""

    keeps_offsets: ClassVar[bool] = False
    """Whether the target holds the offsets of what was written, and `resume` returns them."""

    no_target: ClassVar[str] = "it does not offer that"
    """Why a target cannot be compared or rebuilt, of a sink that lacks the methods for it."""

    @property
    def process_module(self) -> str | None:
        """The module of a process that reads the topics and writes to the target by itself; None for most sinks."""
        return None

    @classmethod
    def tasks(cls, config: Any, tasks_max: int) -> Sequence[Mapping[str, str]]:
        return [{}] * tasks_max

    def resume(
        self, partitions: Sequence[TopicPosition]
    ) -> Awaitable[Mapping[TopicPosition, int]] | Mapping[TopicPosition, int]:
        """Return where to go on in partitions that were just assigned, by the target; the group's offsets hold for
        others. The target wins, because it alone knows what it has."""
        return {}

    def write(self, batch: SinkBatch) -> Awaitable[None] | None:
        """Write records, or keep them for `flush`.

        Raise RecordFailed for a record that cannot be written, RetriableFailure if the target is away for a while;
        the same batch is then written again. Any other exception ends the task.
        """
        raise NotImplementedError

    def flush(self) -> Awaitable[Mapping[TopicPosition, int] | None] | Mapping[TopicPosition, int] | None:
        """Store what `write` has kept. Return the offsets behind what is stored; None if that is everything."""
        return None

    def revoked(self, partitions: Sequence[TopicPosition]) -> Awaitable[None] | None:
        """Learn that other tasks have these partitions now; called after a last flush. Forget what was kept of them."""

    def set_offsets(self, offsets: Mapping[TopicPosition, int | None]) -> Awaitable[None] | None:
        """Set offsets in the target, for an administrator, while no task runs; None for what the group says.

        Only a sink that keeps them is asked.
        """
        raise InvalidConnectorConfig(
            "this sink keeps offsets in its target, and they cannot be set from here: delete them there, or rebuild"
        )

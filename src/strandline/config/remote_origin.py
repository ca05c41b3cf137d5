"""Where the logs of a topic begin whose first records are in an object store already: a clone, or a restored topic.

It is the value of `strandline.remote.origin`, which `topic clone` and `storage restore` write when they create a topic:

    {"id": topic id, "epoch": leader epoch, "partitions": [
        [log start offset, end offset of the shared records, [[leader epoch, its first offset], ...],
         [[producer id, its epoch, coordinator epoch, first offset], ...]],
        ...]}

The last list names transactions that are open at the end: the leader aborts them, because no other records follow.
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple
from uuid import UUID

from strandline.errors import InvalidConfig

SETTING: Final = "strandline.remote.origin"


class SharedTransaction(NamedTuple):
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    first_offset: int


class PartitionOrigin(NamedTuple):
    """The records before a partition's local log. `epochs` are (leader epoch, first offset), oldest first."""

    start_offset: int
    end_offset: int
    epochs: tuple[tuple[int, int], ...] = ()
    transactions: tuple[SharedTransaction, ...] = ()


class RemoteOrigin(NamedTuple):
    topic_id: UUID
    leader_epoch: int
    """The first leader epoch of the topic: above those of the records."""
    partitions: tuple[PartitionOrigin, ...]

    def encode(self) -> str:
        partitions = [[each.start_offset, each.end_offset, each.epochs, each.transactions] for each in self.partitions]
        return json.dumps(
            {"id": str(self.topic_id), "epoch": self.leader_epoch, "partitions": partitions}, separators=(",", ":")
        )

    @staticmethod
    def decode(text: str) -> RemoteOrigin:
        """Raise InvalidConfig for what was not written by `encode`."""
        try:
            found = json.loads(text)
            partitions = tuple(
                PartitionOrigin(
                    int(start),
                    int(end),
                    tuple((int(epoch), int(offset)) for epoch, offset in epochs),
                    tuple(SharedTransaction(*map(int, each)) for each in transactions),
                )
                for start, end, epochs, transactions in found["partitions"]
            )
            origin = RemoteOrigin(UUID(found["id"]), int(found["epoch"]), partitions)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidConfig(
                f"{SETTING} cannot be read ({error}); only Strandline's own commands write it"
            ) from None
        for each in partitions:
            epochs, starts = [epoch for epoch, _ in each.epochs], [at for _, at in each.epochs]
            is_ordered = epochs == sorted(set(epochs)) and starts == sorted(starts)
            is_below = not epochs or (epochs[-1] < origin.leader_epoch and starts[-1] < each.end_offset)
            if not 0 <= each.start_offset <= each.end_offset or not is_ordered or not is_below:
                raise InvalidConfig(f"{SETTING} has offsets or epochs that contradict one another: {each}")
        return origin


def partition_origin(text: str, index: int) -> PartitionOrigin | None:
    """Return the origin of one partition. One that was added later has none."""
    partitions = RemoteOrigin.decode(text).partitions
    return partitions[index] if index < len(partitions) else None

"""A bounded sample of the keys of a partition, read from its leader as any consumer reads.

The offsets are divided into equal parts, and one slice of whole batches is read at a random place in each. What the
slices left out is read as well if it fits into the rest of the budget; so a small partition is read whole. A broker
sends the bytes as they lie in the page cache, and decodes nothing; keys are counted here, in the reader's process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Final
from uuid import UUID

from strandline.client.cluster_client import ClusterClient, TopicMetadata
from strandline.client.failures import ClusterFailed, DataLost
from strandline.client.raw_batches import read_batches
from strandline.codec.columns.batch import Columns
from strandline.codec.columns.decode import columns_of
from strandline.errors import PeerError
from strandline.ids import TopicPartition

SLICE_BYTES: Final = 64 * 1024
"""Asked for at once; a single batch that is larger comes whole."""
SLICES_PER_PARTITION_MAX: Final = 16
SLICES_MAX: Final = 256
"""Of all partitions together: 16 MiB."""
KEY_BYTES_KEPT_MAX: Final = 256
"""Of a longer key the beginning is kept, and it is counted with others that begin so."""

Key = bytes | None


@dataclass
class KeySlice:
    """What was counted in one place of a partition."""

    records: Counter[Key] = field(default_factory=Counter)
    size_bytes: Counter[Key] = field(default_factory=Counter)
    """Of keys and values, decompressed."""
    read_bytes: int = 0
    """As they came, compressed."""


@dataclass
class KeySample:
    """The slices of one partition, of the offsets `start` up to `end`."""

    partition: int
    start: int
    end: int
    slices: list[KeySlice] = field(default_factory=list)
    is_whole: bool = False
    """Whether every record between was counted."""


def slices_each(partitions: int, slices_max: int = SLICES_MAX) -> int:
    """Return how many slices each partition of a topic gets, so that all together stay within the budget."""
    return max(1, min(SLICES_PER_PARTITION_MAX, slices_max // max(1, partitions)))


def sample_topic(
    client: ClusterClient,
    topic: TopicMetadata,
    ranges: Mapping[int, tuple[int, int]],
    random: Random,
    *,
    slices_max: int = SLICES_MAX,
) -> Iterator[KeySample]:
    """Yield a sample of each partition, of the offsets in `ranges`. Raise ClusterFailed, in a sentence."""
    slices = slices_each(len(ranges), slices_max)
    for index, (start, end) in sorted(ranges.items()):
        reader = _Sampler(client, TopicPartition(topic.name, index), topic.topic_id, end)
        try:
            yield reader.sample(start, slices, random)
        except DataLost as error:
            raise ClusterFailed(f"{error}; records were deleted meanwhile, ask again") from error
        except PeerError as error:
            raise ClusterFailed(f"{topic.name}-{index} cannot be sampled: {error}") from error


class _Sampler:
    def __init__(self, client: ClusterClient, partition: TopicPartition, topic_id: UUID, end: int) -> None:
        self._client = client
        self._partition = partition
        self._topic_id = topic_id
        self._end = end

    def sample(self, start: int, slices: int, random: Random) -> KeySample:
        found = KeySample(self._partition.partition, start, self._end)
        gaps: list[tuple[int, int]] = []
        position, span = start, self._end - start
        for number in range(slices):
            low, high = start + span * number // slices, start + span * (number + 1) // slices
            if high <= max(low, position):
                # Read already, with a slice that reached further.
                continue
            at = random.randrange(max(low, position), high)
            if at > position:
                gaps.append((position, at))
            piece, position = self._read(at, self._end)
            found.slices.append(piece)
        if position < self._end:
            gaps.append((position, self._end))
        found.is_whole = self._fill(found, gaps, slices * SLICE_BYTES)
        return found

    def _fill(self, found: KeySample, gaps: list[tuple[int, int]], budget_bytes: int) -> bool:
        """Read the gaps, if all of them fit into the budget by what an offset took so far; return whether they did."""
        left = sum(high - low for low, high in gaps)
        read_bytes = sum(each.read_bytes for each in found.slices)
        covered = found.end - found.start - left
        if left and (not covered or read_bytes + left * read_bytes / covered > budget_bytes):
            return False
        for low, high in gaps:
            while low < high:
                piece, low = self._read(low, high)
                found.slices.append(piece)
                read_bytes += piece.read_bytes
                if read_bytes > 2 * budget_bytes:
                    # The gaps hold larger records than the slices.
                    return False
        return True

    def _read(self, at: int, end: int) -> tuple[KeySlice, int]:
        """Count one slice from `at` on, and return it with the offset behind it."""
        piece = KeySlice()
        raw = read_batches(self._client, self._partition, self._topic_id, at, size_bytes_max=SLICE_BYTES, end=self._end)
        behind = end
        for columns in columns_of(raw):
            behind = columns.last_offset + 1
            if columns.base_offset >= end:
                break
            if not columns.is_control:
                _count(piece, columns, at, end)
        piece.read_bytes = len(raw)
        return piece, min(end, max(behind, at + 1))


def _count(piece: KeySlice, columns: Columns, first: int, end: int) -> None:
    payload = bytes(columns.payload)
    rows = zip(columns.offsets, columns.key_start, columns.key_length, columns.value_length, strict=True)
    for offset, start, length, value_length in rows:
        if first <= offset < end:
            key = None if length < 0 else payload[start : start + min(length, KEY_BYTES_KEPT_MAX)]
            piece.records[key] += 1
            piece.size_bytes[key] += max(0, length) + max(0, value_length)

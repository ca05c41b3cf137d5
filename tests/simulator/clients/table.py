"""A compacted topic in the simulation: who writes to it, who reads it over and over while it is cleaned, the verdict.

A record says which one it is in a header, so that a tombstone has a name, too. Keys are few: most of what is written is
superseded within seconds. Each reader begins at the start, reads to where the log ended when it began, and what it then
holds for each key must be the last that was committed below. So must what a last reader finds, who comes when all is
quiet, and everything that was acknowledged must be part of what was committed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final
from zlib import crc32

from tests.simulator.clients.client import History
from tests.simulator.clients.consumer import Position, SimConsumer
from tests.simulator.truth.record_truth import RecordTruth
from tests.simulator.world.network import SimNetwork
from tests.simulator.world.runtime import SimHost

from strandline.codec.columns import Record
from strandline.codec.messages.fetch_response import PartitionData
from strandline.codec.messages.list_offsets_response import ListOffsetsResponse
from strandline.ids import TopicPartition
from strandline.testing.history import Op, Poll, Send

if TYPE_CHECKING:
    from collections.abc import Iterable

NAME: Final = "name"
"""The header that says which record it is."""
REST_S: Final = 1.0
TOMBSTONE_EVERY: Final = 4


def keyed_record(value: str, now_ms: int, *, keys: int) -> Record:
    """Return the record of a unique name: its key, and whether it is a tombstone, follow from that."""
    drawn = crc32(value.encode())
    key = f"key-{drawn % keys}".encode()
    held = None if (drawn >> 16) % TOMBSTONE_EVERY == 0 else value.encode()
    return Record(timestamp_ms=now_ms, key=key, value=held, headers=((NAME, value.encode()),))


class SimTableReader(SimConsumer):
    def __init__(
        self,
        network: SimNetwork,
        host: SimHost,
        history: History,
        bootstrap: Sequence[tuple[str, int]],
        partitions: Sequence[TopicPartition],
        *,
        truth_of: Callable[[TopicPartition], RecordTruth],
        repeats: bool,
        follows_replicas: bool = False,
    ) -> None:
        self._truth_of = truth_of
        self._repeats = repeats
        self._folds: dict[TopicPartition, dict[bytes, Record]] = {each: {} for each in partitions}
        self._began: dict[TopicPartition, float] = {}
        self._nothing: dict[tuple[TopicPartition, int], float] = {}
        """Since when nothing comes at a position."""
        self.waits_s = 0.0
        """How long what is in an object store may take. A broker that reads it answers with nothing meanwhile."""
        self.passes = 0
        """How often a partition was read from its start to its end."""
        super().__init__(
            network,
            host,
            history,
            bootstrap,
            partitions,
            is_final=True,
            committed_only=True,
            forgets=True,
            follows_replicas=follows_replicas,
        )

    def _read(self, position: Position, told: PartitionData) -> Poll:
        fold = self._folds[position.partition]
        for record in self._records(position, told):
            assert record.key is not None
            fold[record.key] = record
        self._maybe_judge(position)
        return Poll(str(position.partition), ())

    def on_nothing(self, position: Position, told: PartitionData) -> None:
        since, now = (
            self._nothing.setdefault((position.partition, position.offset), self.runtime.sim.now),
            self.runtime.sim.now,
        )
        if position.end is not None and told.last_stable_offset >= position.end and now - since >= self.waits_s:
            # The cleaner took all that lay between the position and the end.
            position.offset = max(position.offset, position.end)
            self._maybe_judge(position)

    def _look_at(self, position: Position, timestamp: int = -1) -> None:
        self._began.setdefault(position.partition, self.runtime.sim.now)
        super()._look_at(position, timestamp)

    def _on_end(self, position: Position, invoked_ns: int, answer: ListOffsetsResponse | None) -> None:
        was_known = position.end is not None
        super()._on_end(position, invoked_ns, answer)
        if not was_known:
            # There may be nothing to read.
            self._maybe_judge(position)

    def _maybe_judge(self, position: Position) -> None:
        if position.end is None or position.offset < position.end:
            return
        partition, now = position.partition, self.runtime.sim.now
        truth, began = self._truth_of(partition), self._began.pop(partition, now)
        # Each replica removes tombstones from its own log: who changes between them may miss one (docs/retention.md).
        misses_tombstones = len(position.sources) > 1 or truth.may_be_gone(began, now)
        wrong = truth.wrong_with_fold(self._folds[partition], position.offset, misses_tombstones=misses_tombstones)
        if wrong:
            self.history.surprises.append(f"{self.host.name} of {partition}, from {began:.3f} to {now:.3f}: {wrong}")
        self.passes += 1
        if self._repeats and not self.is_stopped:
            self.runtime.call_later(REST_S * (0.5 + self.random.random()), self._again, position)

    def _again(self, position: Position) -> None:
        if not self.is_stopped:
            self._folds[position.partition] = {}
            self._nothing.clear()
            position.end = None
            position.sources.clear()
            self.seek(position, 0)
            self._look()


def judge_table(ops: Iterable[Op], truths: dict[str, RecordTruth]) -> str:
    """Whether all that was acknowledged was committed once, and nothing that failed; `truths` by partition."""
    counts = {name: _names(truth) for name, truth in truths.items()}
    for op in ops:
        for mop in op.mops:
            if not isinstance(mop, Send) or mop.partition not in truths:
                continue
            count = counts[mop.partition][mop.value]
            if count > 1:
                return f"{mop.value} was committed {count} times to {mop.partition}"
            if op.outcome == "ok" and not count:
                return f"{mop.value} was acknowledged, and never committed to {mop.partition}"
            if op.outcome == "fail" and count:
                return f"{mop.value} was committed to {mop.partition}, though its write failed ({op.error})"
    return ""


def _names(truth: RecordTruth) -> Counter[str]:
    """Return how often each name counts in a partition."""
    names: Counter[str] = Counter()
    for offsets in truth.history.values():
        for offset in offsets:
            names[dict(truth.facts[offset].record.headers)[NAME].decode()] += 1  # type: ignore[union-attr]
    return names

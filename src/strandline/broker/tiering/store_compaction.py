"""Compaction of what is tiered: the leader cleans the segments in the store, one group after the other.

    read the indexes ──▶ read dirty segments, learn their keys ──▶ for each group, oldest first:
    read it ──▶ the worker cleans it ──▶ upload ──▶ one record puts it in the place of the old segments

So each byte is read at most twice. On the disk lies one group at a time, and memory holds the keys as it does for a
local log. A stop leaves some groups compacted and others not, which the next compaction continues. The objects of
replaced segments stay `file.delete.delay.ms` for readers that began to read them.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from strandline.broker.maintenance.cleaner_task import CleanerShare
from strandline.broker.tiering.metadata_topic import MetadataTopic
from strandline.broker.tiering.part_files import keep_batches
from strandline.broker.tiering.partition_tier import PartitionTier
from strandline.broker.tiering.segment_copy import LocalFacts, SegmentCopier, block_checksums
from strandline.codec.checksum import crc32c
from strandline.errors import NotLeader, StrandlineError
from strandline.log.cleaning.job import CLEANED_SUFFIX, CleanedGroup, CleaningJob, SourceSegment
from strandline.log.disk import Disk
from strandline.log.maintenance.worker_jobs import CLEAN_STEP
from strandline.log.segment.file_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_stem,
)
from strandline.log.segment.segment import Segment
from strandline.log.segment.transaction_index import AbortedTransaction, TransactionIndex
from strandline.runtime.fault_points import fault_point
from strandline.tiers.compaction import Chain, ChainPart, Group, compaction_of, groups
from strandline.tiers.lineage import epochs_between
from strandline.tiers.objects import (
    BLOCK_BYTES,
    ObjectPart,
    checksums_of,
    key_of,
    pack_checksums,
    pack_parts,
    unpack_parts,
)
from strandline.tiers.records import RemoteSegment, SegmentChanged
from strandline.tiers.segment_states import SegmentState
from strandline.tiers.store.object_store import ObjectDamaged, ObjectStore
from strandline.tiers.store.waiting import Signal, in_thread, pause

if TYPE_CHECKING:
    from strandline.broker.maintenance.storage import LogStorage

log = logging.getLogger("strandline.tiering")

SCRATCH: Final = "remote-log-index-cache"
"""The directory of the segments that are being compacted. Kafka knows that one of this name holds no log."""
READ_S_MAX: Final = 60.0
READ_BYTES: Final = 4 * BLOCK_BYTES
"""Bytes of one request for a segment."""


class _Indexes(NamedTuple):
    """What is kept of the index object of each segment."""

    checksums: tuple[int, ...]
    aborted: list[AbortedTransaction]
    object_bytes: int
    """Of both objects of the segment."""


class CompactionTools(NamedTuple):
    """What all compactions of a node share."""

    storage: LogStorage
    metadata: MetadataTopic
    copier: SegmentCopier
    cluster_id: str
    new_id: Callable[[], uuid.UUID]

    @property
    def disk(self) -> Disk:
        return self.storage.directory.disk

    @property
    def scratch(self) -> Path:
        return self.storage.directory.path / SCRATCH


class StoreCompaction:
    """One compaction of one partition."""

    def __init__(
        self, tools: CompactionTools, tier: PartitionTier, found: Chain, store: ObjectStore, share: CleanerShare
    ) -> None:
        self._tools = tools
        self._storage = tools.storage
        self._runtime = tools.storage.environment.runtime
        self._disk = tools.disk
        self._directory = tools.scratch
        self._tier = tier
        self._partition = tier.partition
        self._epoch = tier.partition.leader_epoch
        self._chain = found
        self._store = store
        self._share = share
        self._name = str(tools.new_id())
        self._indexes: dict[uuid.UUID, _Indexes] = {}
        self._swaps = self.replaced_segments = 0
        self.source_bytes = self.read_bytes = self.written_bytes = 0

    async def run(self) -> None:
        found, partition = self._chain, self._partition
        # Of the same segments as the chain, before the first wait.
        made = groups(
            found, self._tier.segments, partition.log.leader_epochs, segment_bytes=partition.config.segment_bytes
        )
        try:
            # Before all other waits: copies and merges go on, and move markers from where they are looked for.
            behind = await self._aborted_behind()
            await self._clear()
            for part in found.parts:
                self._check()
                self._indexes[part.segment.id] = await self._read_indexes(part.segment)
            inside = (each for indexes in self._indexes.values() for each in indexes.aborted)
            job = self._job(sorted({*behind, *inside}, key=lambda each: each.first_offset))
            clean_up_to = await self._learn(job)
            fault_point("tier-compaction-learned")
            for group in made:
                if group.start_offset < clean_up_to:
                    await self._compact(group, clean_up_to)
                    read = {part.segment.id for part in group.parts}
                    self.source_bytes += sum(self._indexes[each].object_bytes for each in read)
            fault_point("tier-compaction-done")
        except Exception:
            # Not in `finally`: a coroutine of a process that is gone must not wait.
            await self._end()
            raise
        await self._end()
        log.info(
            "%s: its remote segments are clean up to %d; %d groups were replaced, %d bytes read and %d written",
            self._tier.place,
            clean_up_to,
            self._swaps,
            self.read_bytes,
            self.written_bytes,
        )
        if clean_up_to <= found.first_dirty_offset:
            raise StrandlineError(
                f"the buffer of log.cleaner.dedupe.buffer.size has no room for the keys of one batch at offset "
                f"{found.first_dirty_offset}; raise it"
            )

    def _check(self) -> None:
        """Raise NotLeader if this leader is not to compact the partition any more."""
        partition = self._partition
        is_led = partition.is_leader and partition.leader_epoch == self._epoch and partition.log.failure is None
        if not is_led or not partition.config.compact or not partition.config.is_tiered:
            raise NotLeader(f"{self._tier.place} is not to be compacted here any more")

    async def _clear(self) -> None:
        await in_thread(self._runtime, partial(clear, self._disk, self._directory))

    async def _end(self) -> None:
        await self._step("end")
        self._storage.workers.get().end_idle(CLEAN_STEP)
        await self._clear()

    # Reading

    async def _read_indexes(self, segment: RemoteSegment) -> _Indexes:
        parts, size_bytes = await self._read_parts(segment)
        transactions = TransactionIndex.parse(
            parts.get(ObjectPart.TRANSACTION_INDEX, b""), base_offset=segment.start_offset
        )
        checksums = checksums_of(parts.get(ObjectPart.BLOCK_CHECKSUMS, b""))
        return _Indexes(checksums, transactions.entries(), size_bytes + segment.size_bytes)

    async def _read_parts(self, segment: RemoteSegment) -> tuple[dict[ObjectPart, bytes], int]:
        data = await self._store.read_whole(f"{self._key_of(segment)}.idx", deadline_s=READ_S_MAX)
        self.read_bytes += len(data)
        return unpack_parts(data), len(data)

    def _key_of(self, segment: RemoteSegment) -> str:
        return key_of(self._tools.cluster_id, self._tier.place, segment)

    async def _read_part(self, part: ChainPart) -> SourceSegment:
        """Write the batches of a part to the disk."""
        path, segment = self._path(part), part.segment
        key, checksums = self._key_of(segment), self._indexes[segment.id].checksums
        file = await in_thread(self._runtime, partial(self._disk.open, path, create=True))
        try:
            for start in range(0, segment.size_bytes, READ_BYTES):
                self._check()
                length = min(READ_BYTES, segment.size_bytes - start)
                data = await self._store.read(f"{key}.log", start, length, deadline_s=READ_S_MAX)
                self.read_bytes += len(data)
                write = partial(_write_checked, file.write_at, start, data, checksums)
                if not await in_thread(self._runtime, write):
                    raise ObjectDamaged(
                        f"{self._store.name}: {key}.log is not what was written, in the {length} bytes from {start} "
                        "on; restore the object from a copy"
                    )
                await self._keep_pace(length)
        finally:
            file.close()
        size_bytes = segment.size_bytes
        if not part.is_whole:
            size_bytes = await in_thread(self._runtime, partial(self._trim, path, part))
        return SourceSegment(part.start_offset, size_bytes, part.end_offset, False)

    async def _keep_pace(self, size_bytes: int) -> None:
        if self._share.io_bytes_per_s > 0:
            await pause(self._runtime, size_bytes / self._share.io_bytes_per_s)

    def _path(self, part: ChainPart) -> Path:
        return self._directory / (file_stem(part.start_offset) + LOG_SUFFIX)

    def _trim(self, path: Path, part: ChainPart) -> int:
        """In a thread: leave only the batches of a part in its file, and return their size."""
        return keep_batches(self._disk, path, part.segment.size_bytes, part.start_offset, part.end_offset)

    async def _aborted_behind(self) -> list[AbortedTransaction]:
        """Return the aborted transactions that begin in the chain, and have their markers behind it."""
        end_offset = self._chain.end_offset
        found = [] if self._tier.ranges is None else list(self._tier.ranges.aborted_before(end_offset))
        local = [segment for segment in self._partition.log.segments if segment.has_transaction_index]
        for segment in local:
            segment.retain()
        try:
            entries = await in_thread(self._runtime, partial(_entries, local))
        finally:
            for segment in local:
                segment.release()
        return found + [each for each in entries if each.first_offset < end_offset]

    # Cleaning

    def _job(self, aborted: Sequence[AbortedTransaction]) -> CleaningJob:
        config, found = self._partition.config, self._chain
        return CleaningJob(
            directory=self._directory,
            segments=(),
            log_start_offset=found.parts[0].start_offset,
            first_dirty_offset=found.first_dirty_offset,
            end_offset=found.end_offset,
            now_ms=self._runtime.now_ms(),
            delete_retention_ms=config.delete_retention_ms,
            segment_bytes=config.segment_bytes,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            dedupe_buffer_bytes=self._share.dedupe_buffer_bytes,
            load_factor=self._share.load_factor,
            io_buffer_bytes=self._share.io_buffer_bytes,
            io_bytes_per_s=0.0,
            aborted_later=tuple(aborted),
            # Replicas learn of producers from the snapshot beside a segment, and not from its batches.
            active_producers=(),
            horizons_below=found.horizons_below,
        )

    async def _step(self, do: str, **more: Any) -> dict[str, Any]:
        """Have the worker do a step. Raises JobFailed."""
        signal: Signal[dict[str, Any]] = Signal(self._runtime)

        def on_done(result: dict[str, Any] | None, error: BaseException | None) -> None:
            if result is None:
                signal.fail(error or StrandlineError("the worker gave no result"))
            else:
                signal.set(result)

        params = {"cleaning": self._name, "do": do, **more}
        self._storage.workers.get().run(CLEAN_STEP, params, lambda _: None, on_done)
        return await signal

    async def _learn(self, job: CleaningJob) -> int:
        """Learn the keys of the dirty segments, and return the offset up to which they are known."""
        facts = await self._step("begin", job=job.to_dict())
        for part in self._chain.dirty_parts:
            source = await self._read_part(part)
            facts = await self._step("learn", segments=[source])
            await in_thread(self._runtime, partial(self._disk.remove, self._path(part)))
            if not facts["has_room"]:
                break
        clean_up_to: int = facts["clean_up_to"]
        return clean_up_to

    async def _compact(self, group: Group, clean_up_to: int) -> None:
        """Clean a group of segments, and put the result in their place. Nothing is uploaded if nothing changed."""
        partition, leader = self._partition, self._partition.log.leader_epochs
        sources = [await self._read_part(part) for part in group.parts]
        facts = await self._step("copy", segments=sources)
        cleaned = CleanedGroup.from_dict(facts["group"])
        fault_point("tier-compaction-cleaned")
        self._check()
        last = group.parts[-1]
        compaction = compaction_of(
            group, clean_up_to=clean_up_to, leader=leader, log_end_offset=partition.log.log_end_offset
        )
        parts_of_last: dict[ObjectPart, bytes] = {}
        if last.end_offset == last.segment.end_offset + 1:
            parts_of_last, _ = await self._read_parts(last.segment)
        epochs = leader.below(last.end_offset).format().encode()
        local = await in_thread(self._runtime, partial(self._facts, cleaned, epochs, parts_of_last))
        is_same = local.checksums == self._indexes[last.segment.id].checksums
        if is_same and last.is_whole and list(group.replaced) == [last.segment] and len(group.parts) == 1:
            await self._note(last.segment, compaction._replace(replaces=()))
        else:
            remote = RemoteSegment(
                self._tools.new_id(),
                group.start_offset,
                last.end_offset - 1,
                epochs_between(leader, group.start_offset, last.end_offset),
                cleaned.max_timestamp_ms,
                cleaned.size_bytes,
                self._storage.environment.node_id,
                self._runtime.now_ms(),
                SegmentState.COPY_STARTED,
                is_txn_index_empty=not cleaned.has_transaction_index,
                compaction=compaction,
            )
            await self._tools.copier.publish(self._store, self._tier.place, remote, local.facts, partition, self._check)
            self._swaps += 1
            self.written_bytes += cleaned.size_bytes + len(local.facts.index_object)
            self.replaced_segments += len(group.replaced)
        await self._clear()

    async def _note(self, segment: RemoteSegment, compaction: Any) -> None:
        """Record that a segment is clean as it is."""
        await self._tools.metadata.append(
            SegmentChanged(
                self._tier.place,
                segment.id,
                SegmentState.COPY_FINISHED,
                self._storage.environment.node_id,
                self._runtime.now_ms(),
                compaction,
            )
        )

    def _facts(self, cleaned: CleanedGroup, epochs: bytes, last: dict[ObjectPart, bytes]) -> _CleanedFacts:
        """In a thread: read the files of a cleaned segment."""

        def path_of(suffix: str) -> Path:
            return self._directory / (file_stem(cleaned.base_offset) + suffix + CLEANED_SUFFIX)

        def beside(suffix: str) -> bytes:
            return self._disk.read_whole(path_of(suffix)) if suffix in cleaned.suffixes else b""

        path = path_of(LOG_SUFFIX)
        file = self._disk.open(path)
        try:
            checksums = block_checksums(file, cleaned.size_bytes)
        finally:
            file.close()
        parts = {
            ObjectPart.OFFSET_INDEX: beside(INDEX_SUFFIX),
            ObjectPart.TIME_INDEX: beside(TIME_INDEX_SUFFIX),
            ObjectPart.TRANSACTION_INDEX: beside(TRANSACTION_INDEX_SUFFIX),
            ObjectPart.LEADER_EPOCHS: epochs,
            ObjectPart.BLOCK_CHECKSUMS: pack_checksums(checksums),
        }
        if ObjectPart.PRODUCER_SNAPSHOT in last:
            parts[ObjectPart.PRODUCER_SNAPSHOT] = last[ObjectPart.PRODUCER_SNAPSHOT]
        facts = LocalFacts(
            path, cleaned.size_bytes, cleaned.max_timestamp_ms, pack_parts(parts), cleaned.has_transaction_index
        )
        return _CleanedFacts(facts, tuple(checksums))


class _CleanedFacts(NamedTuple):
    facts: LocalFacts
    checksums: tuple[int, ...]


def clear(disk: Disk, directory: Path) -> None:
    """In a thread: make the directory, and remove all files in it."""
    if not disk.exists(directory):
        disk.make_directory(directory)
    for name in disk.names(directory):
        disk.remove(directory / name)


def _entries(segments: Sequence[Segment]) -> list[AbortedTransaction]:
    """In a thread: read the aborted transactions beside local segments."""
    return [each for segment in segments for each in segment.transaction_index.entries()]


def _write_checked(
    write_at: Callable[[int, memoryview], None], start: int, data: bytes | memoryview, checksums: Sequence[int]
) -> bool:
    """In a thread: write whole blocks if they are sound, and return whether they are."""
    view = memoryview(data)
    for at in range(0, len(data), BLOCK_BYTES):
        number = (start + at) // BLOCK_BYTES
        if number >= len(checksums) or crc32c(view[at : at + BLOCK_BYTES]) != checksums[number]:
            return False
    write_at(start, view)
    return True

"""A data directory: its lock, whose it is, its checkpoints, and how the last process left it.

meta.properties                     cluster, node and directory id
.lock                               held while a process owns the directory
.kafka_cleanshutdown                left by a clean stop; without it logs are recovered
recovery-point-offset-checkpoint, replication-offset-checkpoint, log-start-offset-checkpoint, cleaner-offset-checkpoint,
    tombstone-horizon-checkpoint, plain-end-offset-checkpoint, no-producer-offset-checkpoint
<topic>-<partition>/                one log each, with partition.metadata naming the topic's id
<topic>-<partition>.<hex>-delete/   being deleted;  ...-stray/  belongs to no topic we know, kept for a person
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import threading
import uuid
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from strandline.config.remote_origin import partition_origin
from strandline.config.topic_config import TopicConfig
from strandline.errors import CorruptLog
from strandline.ids import TopicPartition
from strandline.log import checkpoints
from strandline.log.checkpoints import EndNotes
from strandline.log.disk import Disk
from strandline.log.log_loader import open_log
from strandline.log.observer import BatchObserver
from strandline.log.partition_log import PartitionLog
from strandline.log.segment.file_names import LOG_SUFFIX, file_stem
from strandline.log.segment.open_files import OpenFiles

log = logging.getLogger("strandline.log")

DELETE_SUFFIX: Final = "-delete"
STRAY_SUFFIX: Final = "-stray"
META_PROPERTIES: Final = "meta.properties"
PARTITION_METADATA: Final = "partition.metadata"
_PARTITION_DIRECTORY = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>\d+)")
_NAME_KEPT_MAX: Final = 150
"""Of a deleted topic's name, so that the suffixes fit the 255 bytes of a file name."""


Files = dict[Path, tuple[int, bytes]]
"""Small files to be written whole, each with a number that grows: see `LogDirectory.save`."""


class LogDirectory:
    def __init__(self, path: Path, *, disk: Disk, open_files_max: int) -> None:
        self.path = path
        self.disk = disk
        self.open_files = OpenFiles(disk, open_files_max=open_files_max)
        disk.make_directory(path)
        self._lock = disk.lock(path)
        self.new_hex: Callable[[], str] = lambda: uuid.uuid4().hex
        """What makes the names of deleted and stray directories unique; a simulation gives its own."""
        self._written: dict[Path, bytes] = {}
        self._files_made = 0
        self._saved: dict[Path, int] = {}
        self._saving = threading.Lock()
        self.clean_broker_epoch = -1
        """The broker epoch under which the last process stopped cleanly; -1 if it did not, or was no broker."""
        self.was_clean = self._take_clean_mark()
        self.recovery_points = self._read(checkpoints.RECOVERY_POINTS)
        self.high_watermarks = self._read(checkpoints.HIGH_WATERMARKS)
        self.log_start_offsets = self._read(checkpoints.LOG_START_OFFSETS)
        was_clean = self.was_clean
        self.cleaner_offsets = self._read(checkpoints.CLEANER_OFFSETS)
        """Up to where each compacted log has been cleaned. Lost, more is cleaned again."""
        # Without the file (Kafka wrote the directory, or an older version) any tombstone that was cleaned may be gone.
        self.tombstone_horizons = self._read(checkpoints.TOMBSTONE_HORIZONS, otherwise=self.cleaner_offsets)
        """The offset of each compacted log below which tombstones may have been removed."""
        # The two parts of `EndNotes`, for logs that are not open yet. Without them more is read again.
        self._plain_ends = self._read(checkpoints.PLAIN_END_OFFSETS)
        self._no_producer_ends = self._read(checkpoints.NO_PRODUCER_OFFSETS)
        self.was_clean = was_clean
        self._unopened = {*self.recovery_points, *self.high_watermarks, *self.log_start_offsets}
        """Logs in the checkpoints that are not open yet. A node may wait long for its cluster, or stop while it waits,
        and must still know where its logs begin."""
        self._recovered: set[TopicPartition] = set()
        """Logs that a worker has recovered and closed, and that are not open yet."""

    # How the last process left it

    def _take_clean_mark(self) -> bool:
        path = self.path / checkpoints.CLEAN_SHUTDOWN
        if not self.disk.exists(path):
            return False
        # Older versions leave an empty file; then the controller takes the stop for an unclean one.
        with contextlib.suppress(ValueError, KeyError, TypeError):
            self.clean_broker_epoch = int(json.loads(self.disk.read_whole(path))["brokerEpoch"])
        # Gone before the first append: a crash from here on must be seen as one.
        self.disk.remove(path)
        self.disk.sync_directory(self.path)
        return True

    def _read(self, name: str, *, otherwise: Mapping[TopicPartition, int] | None = None) -> dict[TopicPartition, int]:
        path = self.path / name
        if not self.disk.exists(path):
            return dict(otherwise or {})
        try:
            return checkpoints.parse_offsets(self.disk.read_whole(path))
        except CorruptLog as error:
            # Only ever a hint: without it more is read again.
            log.warning("%s: %s; ignored", path, error)
            self.was_clean = False
            return dict(otherwise or {})

    def read_meta_properties(self) -> str | None:
        path = self.path / META_PROPERTIES
        return self.disk.read_whole(path).decode() if self.disk.exists(path) else None

    def write_meta_properties(self, text: str) -> None:
        self.disk.write_whole(self.path / META_PROPERTIES, text.encode(), sync=True)

    def space(self) -> tuple[int, int]:
        """Return bytes of the file system, and how many of them are left. Blocks on it."""
        return self.disk.space(self.path)

    # Logs

    def open_log(
        self,
        name: TopicPartition,
        config: TopicConfig,
        *,
        now_ms: int,
        observer: BatchObserver | None = None,
        directory: Path | None = None,
    ) -> PartitionLog:
        path = directory or self.path / str(name)
        known = (self.recovery_points, self.high_watermarks, self.log_start_offsets)
        if any(name in offsets for offsets in known) and not self.disk.exists(path):
            self._forget_deleted()
        clean = self._was_left_clean(name)
        self._unopened.discard(name)
        origin = None
        if config.is_tiered and config.strandline_remote_origin:
            origin = partition_origin(config.strandline_remote_origin, name.partition)
        opened = open_log(
            path,
            config,
            disk=self.disk,
            open_files=self.open_files,
            now_ms=now_ms,
            observer=observer,
            clean=clean,
            recovery_point=self.recovery_points.get(name, 0),
            log_start_offset=self.log_start_offsets.get(name, 0),
            cleaned_up_to=self.cleaner_offsets.get(name, 0),
            noted=EndNotes(self._plain_ends.get(name, -1), self._no_producer_ends.get(name, -1)),
            origin=origin,
        )
        # Not before: a log that finds no room is opened once more, and must be known as well as the first time.
        self._recovered.discard(name)
        self._plain_ends.pop(name, None)
        self._no_producer_ends.pop(name, None)
        if not clean and self.disk.exists(path / PARTITION_METADATA):
            # Perhaps only in the kernel's memory, too. Torn by a power cut it would name an unknown topic.
            opened.sync_with_next_flush(path / PARTITION_METADATA)
        opened.tombstone_horizon = min(self.tombstone_horizons.get(name, 0), opened.log_end_offset)
        return opened

    def _was_left_clean(self, name: TopicPartition) -> bool:
        return (self.was_clean and name in self.recovery_points) or name in self._recovered

    def needs_recovery(self, name: TopicPartition) -> bool:
        """Return whether there is a log that was not closed by a clean stop."""
        return not self._was_left_clean(name) and self.disk.exists(self.path / str(name))

    def bytes_to_recover(self, name: TopicPartition) -> int:
        """Return the bytes that recovery reads: all segments from the one with the recovery point on."""
        path, recovery_point = self.path / str(name), self.recovery_points.get(name, 0)
        stems = [each[: -len(LOG_SUFFIX)] for each in self.disk.names(path) if each.endswith(LOG_SUFFIX)]
        offsets = sorted(int(stem) for stem in stems if stem.isdecimal())
        first = max(0, bisect_left(offsets, recovery_point) - 1)
        return sum(self.disk.size(path / (file_stem(offset) + LOG_SUFFIX)) for offset in offsets[first:])

    def recovery_params(self, name: TopicPartition) -> dict[str, Any]:
        """Return what a worker must know of a log to recover it."""
        path = self.path / str(name)
        return {
            "directory": str(path),
            "recovery_point": self.recovery_points.get(name, 0),
            "log_start_offset": self.log_start_offsets.get(name, 0),
            "cleaned_up_to": self.cleaner_offsets.get(name, 0),
            # Perhaps only in the kernel's memory, too.
            "synced_with_it": [str(path / PARTITION_METADATA)],
        }

    def note_recovered(self, name: TopicPartition, end_offset: int, noted: EndNotes) -> None:
        """Note that a worker has recovered, flushed and closed a log, which ends at `end_offset`."""
        self.recovery_points[name] = end_offset
        self._plain_ends[name], self._no_producer_ends[name] = noted
        self._recovered.add(name)
        self._unopened.add(name)

    def note_unopened(self, name: TopicPartition) -> None:
        """Keep what the checkpoints know of a log that found no room, until it is opened.

        Without its recovery point, recovery would take damage to what was flushed for a torn tail, and cut it.
        """
        self._unopened.add(name)

    def _forget_deleted(self) -> None:
        """Remove a deleted log of the same name from the checkpoints, before a new log begins.

        All logs that are gone are removed at once: recreating a topic of a thousand partitions costs one write.
        """
        self.forget_checkpoints()
        for file_name, offsets in (
            (checkpoints.RECOVERY_POINTS, self.recovery_points),
            (checkpoints.HIGH_WATERMARKS, self.high_watermarks),
            (checkpoints.LOG_START_OFFSETS, self.log_start_offsets),
            (checkpoints.CLEANER_OFFSETS, self.cleaner_offsets),
            (checkpoints.TOMBSTONE_HORIZONS, self.tombstone_horizons),
        ):
            gone = {name for name in offsets if not self.disk.exists(self.path / str(name))}
            if gone:
                kept = {name: offset for name, offset in offsets.items() if name not in gone}
                # Known until that is on disk: if there is no room, it is done when the log is opened again.
                self.save(self._changed(file_name, kept))
            for name in gone:
                del offsets[name]
                self._unopened.discard(name)

    def partition_directories(self) -> list[TopicPartition]:
        found = []
        for name in self.disk.names(self.path):
            match = _PARTITION_DIRECTORY.fullmatch(name)
            if match and not name.endswith((DELETE_SUFFIX, STRAY_SUFFIX)) and self.disk.is_directory(self.path / name):
                found.append(TopicPartition(match["topic"], int(match["partition"])))
        return found

    def topic_id_of(self, name: TopicPartition) -> str | None:
        """Return the topic id that `partition.metadata` names, as text."""
        path = self.path / str(name) / PARTITION_METADATA
        if not self.disk.exists(path):
            return None
        for line in self.disk.read_whole(path).decode(errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "topic_id":
                return value.strip()
        return None

    def is_in_use(self, name: TopicPartition) -> bool:
        """Return whether a log differs from a new one: it holds bytes, or starts above offset 0."""
        path = self.path / str(name)
        logs = [each for each in self.disk.names(path) if each.endswith(LOG_SUFFIX)]
        return any(each != file_stem(0) + LOG_SUFFIX or self.disk.size(path / each) > 0 for each in logs)

    def write_topic_id(self, opened: PartitionLog, topic_id: str) -> None:
        path = opened.directory / PARTITION_METADATA
        self.disk.write_whole(path, f"version: 0\ntopic_id: {topic_id}\n".encode())
        opened.sync_with_next_flush(path)

    def delete_path(self, name: TopicPartition) -> Path:
        """Return the path to which a deleted log is moved."""
        self._unopened.discard(name)
        self._recovered.discard(name)
        self.cleaner_offsets.pop(name, None)
        self.tombstone_horizons.pop(name, None)
        return self.path / f"{name.topic[:_NAME_KEPT_MAX]}-{name.partition}.{self.new_hex()}{DELETE_SUFFIX}"

    def put_aside(self, name: TopicPartition) -> Path:
        """Move a directory that belongs to no topic we know out of the way. It is never deleted by itself."""
        self._unopened.discard(name)
        self._recovered.discard(name)
        self.cleaner_offsets.pop(name, None)
        self.tombstone_horizons.pop(name, None)
        target = self.path / f"{name.topic[:_NAME_KEPT_MAX]}-{name.partition}.{self.new_hex()}{STRAY_SUFFIX}"
        self.disk.rename(self.path / str(name), target)
        return target

    def deleted_directories(self) -> list[Path]:
        """Return the directories of deletions that a stop or a crash interrupted."""
        paths = [self.path / name for name in self.disk.names(self.path) if name.endswith(DELETE_SUFFIX)]
        return [path for path in paths if self.disk.is_directory(path)]

    def remove_deleted(self) -> None:
        """Finish deletions that a stop, or a crash, interrupted. Blocks."""
        for path in self.deleted_directories():
            self.disk.remove_tree(path)

    # Checkpoints

    def write_checkpoints(
        self, logs: Mapping[TopicPartition, tuple[PartitionLog, int]], offline: Iterable[TopicPartition] = ()
    ) -> None:
        """Note for each log its recovery point, its high watermark, its start where that is not 0, and at a stop what
        it has no files for."""
        plain = self._of_unopened(self._plain_ends) | {name: each.noted.plain_at for name, (each, _) in logs.items()}
        no_producer = self._of_unopened(self._no_producer_ends) | {
            name: each.noted.no_producers_at for name, (each, _) in logs.items()
        }
        files = self.changed_checkpoints(logs, offline)
        for file_name, ends in ((checkpoints.PLAIN_END_OFFSETS, plain), (checkpoints.NO_PRODUCER_OFFSETS, no_producer)):
            noted = {name: offset for name, offset in ends.items() if offset >= 0}
            if noted or self.disk.exists(self.path / file_name):
                files |= self._changed(file_name, noted)
        self.save(files)

    def changed_checkpoints(
        self,
        logs: Mapping[TopicPartition, tuple[PartitionLog, int]],
        offline: Iterable[TopicPartition] = (),
        wanted: Collection[str] = checkpoints.ALL,
    ) -> Files:
        """Return the checkpoint files whose content has changed; `save` writes them, perhaps in a thread."""
        files: Files = {}
        if checkpoints.RECOVERY_POINTS in wanted:
            self.recovery_points = self._of_unopened(self.recovery_points) | {
                name: each.flushed_offset for name, (each, _) in logs.items()
            }
            files |= self._changed(checkpoints.RECOVERY_POINTS, self.recovery_points)
            files |= self._lowered_cleaner_offsets(logs)
            files |= self._changed_tombstone_horizons(logs, offline)
        if checkpoints.HIGH_WATERMARKS in wanted:
            self.high_watermarks = self._of_unopened(self.high_watermarks) | {
                name: high_watermark for name, (_, high_watermark) in logs.items()
            }
            files |= self._changed(checkpoints.HIGH_WATERMARKS, self.high_watermarks)
        if checkpoints.LOG_START_OFFSETS in wanted:
            files |= self.changed_start_offsets({name: each for name, (each, _) in logs.items()}, offline)
        return files

    def _is_any_unopened(self) -> bool:
        return any(self.disk.exists(self.path / str(name)) for name in self._unopened)

    def _of_unopened(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {name: offset for name, offset in offsets.items() if name in self._unopened}

    def changed_start_offsets(
        self, logs: Mapping[TopicPartition, PartitionLog], offline: Iterable[TopicPartition] = ()
    ) -> Files:
        """Return the file of log start offsets, if it has changed.

        Kafka leaves a log out that starts with its first segment. Here it stays in: after a power cut, files below that
        were deleted may be back. Offline logs keep their entries until they are repaired.
        """
        kept = {name: self.log_start_offsets[name] for name in offline if name in self.log_start_offsets}
        self.log_start_offsets = (
            self._of_unopened(self.log_start_offsets)
            | kept
            | {name: start for name, each in logs.items() if (start := _start_of(each)) > 0}
        )
        return self._changed(checkpoints.LOG_START_OFFSETS, self.log_start_offsets)

    def _changed(self, file_name: str, offsets: Mapping[TopicPartition, int]) -> Files:
        path, content = self.path / file_name, checkpoints.format_offsets(offsets)
        if self._written.get(path) == content:
            return {}
        self._written[path] = content
        self._files_made += 1
        return {path: (self._files_made, content)}

    def changed_cleaner_offsets(self) -> Files:
        """Return the file of cleaner offsets, if it has changed.

        The tombstone horizons are written first: where their file is missing, all that was cleaned counts as removed.
        """
        return self._changed(checkpoints.TOMBSTONE_HORIZONS, self.tombstone_horizons) | self._changed(
            checkpoints.CLEANER_OFFSETS, self.cleaner_offsets
        )

    def _changed_tombstone_horizons(
        self, logs: Mapping[TopicPartition, tuple[PartitionLog, int]], offline: Iterable[TopicPartition]
    ) -> Files:
        """Return the file of tombstone horizons, as they are or are about to be, if it has changed."""
        kept = {name: self.tombstone_horizons[name] for name in offline if name in self.tombstone_horizons}
        self.tombstone_horizons = (
            self._of_unopened(self.tombstone_horizons)
            | kept
            | {
                name: horizon
                for name, (each, _) in logs.items()
                if (horizon := max(each.tombstone_horizon, each.planned_tombstone_horizon))
            }
        )
        return self._changed(checkpoints.TOMBSTONE_HORIZONS, self.tombstone_horizons)

    def raised_tombstone_horizon(self, name: TopicPartition, offset: int) -> Files:
        """Return the file of tombstone horizons with a new one, to be written even if another thread writes it."""
        self.tombstone_horizons[name] = offset
        self._written.pop(self.path / checkpoints.TOMBSTONE_HORIZONS, None)
        return self._changed(checkpoints.TOMBSTONE_HORIZONS, self.tombstone_horizons)

    def _lowered_cleaner_offsets(self, logs: Mapping[TopicPartition, tuple[PartitionLog, int]]) -> Files:
        """Lower the cleaner offset before a truncation below it: records written there next are not clean, and a gap
        among them would be a loss."""
        too_high = [
            name
            for name, offset in self.cleaner_offsets.items()
            if name in logs and logs[name][0].cut_offset is not None and offset > logs[name][0].flushed_offset
        ]
        for name in too_high:
            self.cleaner_offsets[name] = logs[name][0].flushed_offset
        return self.changed_cleaner_offsets() if too_high else {}

    def lower_recovery_point(self, name: TopicPartition, offset: int) -> None:
        """Lower the recovery point before a truncation to `offset`: after a crash the log may end there. Blocks."""
        if self.recovery_points.get(name, 0) > offset:
            self.recovery_points[name] = offset
            self.save(self._changed(checkpoints.RECOVERY_POINTS, self.recovery_points))

    def forget_checkpoints(self) -> None:
        """Write all files the next time, because a write failed."""
        self._written.clear()

    def save(self, files: Files) -> None:
        """Write small files whole and synced: an empty one after a power cut would bring trimmed records back.

        Threads may overtake each other. A content that is older than what is there is not written: it knows less, of
        trimmed records for example, or of topics that are gone.
        """
        for path, (number, content) in files.items():
            with self._saving:
                if number > self._saved.get(path, 0):
                    self.disk.write_whole(path, content, sync=True)
                    self._saved[path] = number

    def close(self, *, clean: bool, broker_epoch: int = -1) -> None:
        if clean and (self.was_clean or not self._is_any_unopened()):
            # A log that this process never opened is as the one before left it, killed perhaps, and unflushed.
            mark = json.dumps({"version": 0, "brokerEpoch": broker_epoch}).encode()
            try:
                self.disk.write_whole(self.path / checkpoints.CLEAN_SHUTDOWN, mark, sync=True)
            except OSError as error:
                log.warning("%s: not marked as stopped cleanly, so the next start recovers: %s", self.path, error)
        self._lock.release()


def _start_of(log: PartitionLog) -> int:
    """Return where a log starts, or is about to start: readers have not seen that yet."""
    start_offset = log.log_start_offset if log.tier_start_offset < 0 else log.tier_start_offset
    return max(start_offset, log.planned_start_offset)

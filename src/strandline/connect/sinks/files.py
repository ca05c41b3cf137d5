"""Writes records to files: a line for each, as Kafka's FileStreamSink, but each once.

Beside a file lies `<file>.offsets`, which says how much of it counts, and the offsets behind that:

    {"size": 1024, "offsets": {"orders": {"0": 17}}}

It is replaced in one step, after the file is on disk. What is beyond `size` after a crash, half lines too, is cut off,
and the records behind the offsets are written again. So the file has each record once, whenever the task dies.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, Self

from strandline.connect.config import Config as ConnectConfig
from strandline.connect.config import option
from strandline.connect.convert.java_text import double_text
from strandline.connect.failures import ConnectFailed, InvalidConnectorConfig, RetriableFailure
from strandline.connect.records import SinkRecord, TopicPosition
from strandline.connect.sink import RecordList, Sink, SinkBatch
from strandline.connect.sinks.counted_rows import CountedRows
from strandline.connect.sinks.file_swap import (
    OLD,
    PARTITION,
    TOPIC,
    files_of,
    finish_swap,
    lock,
    offsets_path,
    store_text,
    swap_file,
)
from strandline.connect.sinks.plain_json import json_bytes, value_bytes
from strandline.connect.sinks.verifiable import ExpectedRow, TargetKey

log = logging.getLogger("strandline.connect.files")

_FULL: Final = {errno.ENOSPC, errno.EDQUOT}
_PLAIN: Final = {None: "null", True: "true", False: "false"}

Offsets = dict[TopicPosition, int]


class FileSink(Sink):
    """Writes a line for each record."""

    keeps_offsets = True

    class Config(ConnectConfig):
        """Settings of the file sink."""

        file: str = option(
            "The file to write. `${topic}` and `${partition}` make one for each; with `${partition}` several tasks can "
            "share the work.",
            importance="HIGH",
            check=lambda value: None if value else "String must be non-empty",
        )
        format: Literal["lines", "json"] = option(
            "`lines` writes text as it is, and other values as JSON; `json` writes all values as JSON.",
            default="lines",
        )
        exactly_once: bool = option(
            "Whether the offsets are kept beside the file; false appends as Kafka does, and a crash may repeat lines.",
            default=True,
        )

    config: Config

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._files: dict[Path, OutputFile] = {}
        self._by_place: dict[TopicPosition, OutputFile] = {}
        self._suffix = ""
        """What the names of fresh files end with."""
        self._rows: CountedRows | None = None
        self._read: dict[Path, tuple[int, int]] = {}
        """The inode of each file that was compared, and how much of it was read."""
        self._names: dict[TopicPosition, str] = {}

    @classmethod
    def tasks(cls, config: Any, tasks_max: int) -> Sequence[Mapping[str, str]]:
        """Return one task, because two cannot write one file; more if each partition has a file of its own."""
        return [{}] * (tasks_max if PARTITION in config.file else 1)

    def open(self) -> None:
        """Check that the path is allowed."""
        self._path(TopicPosition("topic", 0))

    def resume(self, partitions: Sequence[TopicPosition]) -> Mapping[TopicPosition, int]:
        """Open the files of partitions, and return the offsets that they hold."""
        found = {}
        for each in partitions:
            file = self._file(each)
            if each in file.stored:
                found[each] = file.stored[each]
        return found

    def set_offsets(self, offsets: Mapping[TopicPosition, int | None]) -> None:
        """Set the offsets beside the files. The lines that a file has stay."""
        for place, offset in offsets.items():
            self._file(place).set_offset(place, offset)

    def write(self, batch: SinkBatch) -> None:
        """Append the lines of a batch, in one write for each file."""
        if not len(batch):
            return
        if PARTITION not in self.config.file and TOPIC not in self.config.file:
            self._file(next(iter(batch.ends))).append(self._lines(batch), batch.ends)
            return
        by_place: dict[TopicPosition, RecordList] = {}
        for record in batch:
            place = TopicPosition(record.original_topic or record.topic, record.original_partition)
            by_place.setdefault(place, RecordList()).append(record)
        made = [(place, self._lines(records), records[-1].offset + 1) for place, records in by_place.items()]
        for place, data, end in made:
            file = self._file(place)
            # A batch is written again if one of its files had no room; the others have their lines.
            if file.written.get(place, -1) < end:
                file.append(data, {place: end})

    def flush(self) -> None:
        """Bring everything to disk, then the offsets."""
        for each in self._files.values():
            each.flush()

    def revoked(self, partitions: Sequence[TopicPosition]) -> None:
        """Close the files of partitions that others have now."""
        if PARTITION in self.config.file:
            for each in partitions:
                file = self._files.pop(self._path(each), None)
                self._by_place.pop(each, None)
                if file is not None:
                    file.close()

    def close(self) -> None:
        """Close all files. What was not flushed is cut off at the next start."""
        for each in self._files.values():
            each.close()
        self._files.clear()
        self._by_place.clear()
        if self._rows is not None:
            self._rows.close()
            self._rows = None

    def expected(self, record: SinkRecord) -> ExpectedRow:
        """Return the line of a record, and how often it is expected by now."""
        place = TopicPosition(record.original_topic or record.topic, record.original_partition)
        if place not in self._names:
            self._names[place] = str(self._path(place))
        line = self._lines(RecordList([record]))[:-1]
        if b"\n" in line:
            raise ConnectFailed(
                f"the record of {record.place} has several lines, so the file cannot be compared: set format=json"
            )
        return self._counted().expect(record, self._names[place], line)

    def digests(self, keys: Collection[TargetKey]) -> Mapping[TargetKey, bytes]:
        """Return how often the files have lines."""
        for each in {each.place for each in keys}:
            self._count_lines(Path(each))
        return self._counted().digests(keys)

    def scan(self) -> Iterator[tuple[TargetKey, bytes]]:
        """Yield every line of every file."""
        for each in self._existing():
            self._count_lines(each)
        yield from self._counted().scan()

    def fresh_target(self, suffix: str = "rebuild") -> Self:
        """Return a sink that writes files beside the old ones."""
        if not self.config.exactly_once:
            raise InvalidConnectorConfig("files without offsets beside them cannot be rebuilt: set exactly.once=true")
        fresh = type(self)(self.config)
        fresh.paths = self.paths
        fresh._suffix = f".{suffix}"
        return fresh

    def swap(self) -> None:
        """Replace each file by the fresh one."""
        if not self._suffix or not self._files:
            raise ConnectFailed("there are no fresh files: they were never written, or are swapped already")
        self.flush()
        paths = list(self._files)
        self.close()
        for each in paths:
            swap_file(self._replaced(each), each)

    def discard(self) -> None:
        """Remove the fresh files. A swap that is decided is finished instead."""
        if not self._suffix:
            raise ConnectFailed("these files are no fresh ones")
        for each in self._existing():
            finish_swap(self._replaced(each))
            each.unlink(missing_ok=True)
            offsets_path(each).unlink(missing_ok=True)

    def drop_old(self) -> None:
        """Remove every file that was replaced."""
        for each in files_of(self._pattern(), self.config.properties, suffix=rf"\{OLD}\d+(\.offsets)?"):
            self.paths.check(each).unlink()

    def _counted(self) -> CountedRows:
        if self._rows is None:
            self._rows = CountedRows()
        return self._rows

    def _count_lines(self, path: Path) -> None:
        """Count the lines that were added since, up to the size that counts."""
        try:
            with self.paths.check(path).open("rb") as file:
                found = os.fstat(file.fileno())
                inode, start = self._read.get(path, (found.st_ino, 0))
                end = min(found.st_size, _whole_size(path)) if self.config.exactly_once else found.st_size
                if inode != found.st_ino or end < start:
                    self._counted().forget(str(path), str(path))
                    start = 0
                file.seek(start)
                self._counted().add(str(path), str(path), _lines_until(file, end - start))
                self._read[path] = found.st_ino, end
        except FileNotFoundError:
            self._counted().forget(str(path), str(path))
            self._read.pop(path, None)

    def _existing(self) -> list[Path]:
        return files_of(self._pattern(), self.config.properties, suffix=re.escape(self._suffix))

    def _pattern(self) -> str:
        return str(self.paths.check(self.config.file))

    def _replaced(self, path: Path) -> Path:
        return path.with_name(path.name.removesuffix(self._suffix))

    def _path(self, place: TopicPosition) -> Path:
        name = self.config.file.replace(TOPIC, place.topic).replace(PARTITION, str(place.partition))
        found = self.paths.check(name)
        return self.paths.check(found.with_name(f"{found.name}{self._suffix}"))

    def _file(self, place: TopicPosition) -> OutputFile:
        if place not in self._by_place:
            path = self._path(place)
            if path not in self._files:
                finish_swap(self._replaced(path))
                self._files[path] = OutputFile(path, is_exact=self.config.exactly_once)
            self._by_place[place] = self._files[path]
        return self._by_place[place]

    def _lines(self, batch: SinkBatch) -> bytes:
        values = batch.values
        if self.config.format == "lines":
            try:
                return ("\n".join(values) + "\n").encode()
            except (TypeError, UnicodeEncodeError):
                return b"".join(_line(value, record) for value, record in zip(values, batch, strict=True))
        return b"".join(json_bytes(value, record) + b"\n" for value, record in zip(values, batch, strict=True))


def _line(value: Any, record: SinkRecord) -> bytes:
    """Return a value as a line: plain ones as Java prints them, structures as JSON."""
    if value is None or isinstance(value, bool):
        return f"{_PLAIN[value]}\n".encode()
    if isinstance(value, float):
        return f"{double_text(value)}\n".encode()
    if isinstance(value, dict | list):
        return json_bytes(value, record) + b"\n"
    return value_bytes(value, record) + b"\n"


def _whole_size(path: Path) -> int:
    """Return how much of a file counts, by the offsets beside it."""
    try:
        return int(json.loads(offsets_path(path).read_bytes())["size"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return sys.maxsize


def _lines_until(file: BinaryIO, size: int) -> Iterator[bytes]:
    while size > 0:
        line = file.readline(size)
        if not line:
            return
        size -= len(line)
        yield line.removesuffix(b"\n")


class OutputFile:
    """A file that is appended to, and the offsets beside it. It is locked against other tasks of this machine."""

    def __init__(self, path: Path, *, is_exact: bool) -> None:
        self.stored: Offsets = {}
        self._path = path
        self._sidecar = offsets_path(path)
        self._is_exact = is_exact
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise ConnectFailed(f"{path} cannot be written: {error.strerror}") from None
        try:
            lock(self._descriptor, path)
            self._size = os.fstat(self._descriptor).st_size
            if is_exact:
                self._recover()
            else:
                # Offsets that are not kept up to date would cut off lines if they were used again.
                self._sidecar.unlink(missing_ok=True)
            self._end_line()
        except BaseException:
            os.close(self._descriptor)
            raise
        self.written: Offsets = dict(self.stored)

    def append(self, data: bytes, ends: Mapping[TopicPosition, int]) -> None:
        """Write lines, all or none."""
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.pwrite(self._descriptor, rest, self._size + len(data) - len(rest)) :]
        except OSError as error:
            os.ftruncate(self._descriptor, self._size)
            raise self._failed(error) from None
        self._size += len(data)
        self.written.update(ends)

    def flush(self) -> None:
        """Bring the file to disk, and then the offsets. It does nothing if nothing was written since."""
        if not self._is_exact or self.written == self.stored:
            return
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            # Not tried again: a second sync would succeed without the pages that the first has lost.
            raise ConnectFailed(f"{self._path} cannot be brought to disk: {error.strerror}") from None
        try:
            self._store(self.written)
        except OSError as error:
            raise self._failed(error) from None

    def set_offset(self, place: TopicPosition, offset: int | None) -> None:
        """Store another offset of a partition, or none."""
        self.written.pop(place, None)
        if offset is not None:
            self.written[place] = offset
        self.flush()

    def close(self) -> None:
        """Close the file, which unlocks it."""
        os.close(self._descriptor)

    def _recover(self) -> None:
        """Cut off what was written after the last flush."""
        try:
            kept = json.loads(self._sidecar.read_bytes())
            size = int(kept["size"])
            self.stored = {
                TopicPosition(topic, int(partition)): int(offset)
                for topic, partitions in kept["offsets"].items()
                for partition, offset in partitions.items()
            }
        except FileNotFoundError:
            # From now on everything behind this size is ours, and may be cut off.
            self._store({})
            return
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ConnectFailed(f"{self._sidecar} is damaged: delete it to append to the file as it is") from None
        if self._size < size:
            log.warning("%s has %d bytes instead of %d: it was truncated or replaced", self._path, self._size, size)
        elif self._size > size:
            os.ftruncate(self._descriptor, size)
            self._size = size

    def _end_line(self) -> None:
        """End a line that someone else has left without newline, so that ours begins a new one."""
        if self._size and os.pread(self._descriptor, 1, self._size - 1) != b"\n":
            self._size += os.pwrite(self._descriptor, b"\n", self._size)

    def _store(self, offsets: Offsets) -> None:
        """Replace the offsets beside the file."""
        by_topic: dict[str, dict[str, int]] = {}
        for place, offset in sorted(offsets.items()):
            by_topic.setdefault(place.topic, {})[str(place.partition)] = offset
        text = json.dumps({"size": self._size, "offsets": by_topic})
        store_text(self._sidecar, text)
        self.stored = dict(offsets)

    def _failed(self, error: OSError) -> ConnectFailed:
        kind = RetriableFailure if error.errno in _FULL else ConnectFailed
        return kind(f"{self._path} cannot be written: {error.strerror}")

"""Writes records to files: a line for each, as Kafka's FileStreamSink, but each once.

Beside a file lies `<file>.offsets`, which says how much of it counts, and the offsets behind that:

    {"size": 1024, "offsets": {"orders": {"0": 17}}}

It is replaced in one step, after the file is on disk. What is beyond `size` after a crash, half lines too, is cut off,
and the records behind the offsets are written again. So the file has each record once, whenever the task dies.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from strandline.connect.config import Config as ConnectConfig
from strandline.connect.config import option
from strandline.connect.convert.java_text import double_text
from strandline.connect.failures import ConnectFailed, RetriableFailure
from strandline.connect.records import SinkRecord, TopicPosition
from strandline.connect.sink import RecordList, Sink, SinkBatch
from strandline.connect.sinks.plain_json import json_bytes, value_bytes

log = logging.getLogger("strandline.connect.files")

PARTITION: Final = "${partition}"
TOPIC: Final = "${topic}"
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

    def _path(self, place: TopicPosition) -> Path:
        name = self.config.file.replace(TOPIC, place.topic).replace(PARTITION, str(place.partition))
        return self.paths.check(name)

    def _file(self, place: TopicPosition) -> OutputFile:
        if place not in self._by_place:
            path = self._path(place)
            if path not in self._files:
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


class OutputFile:
    """A file that is appended to, and the offsets beside it. It is locked against other tasks of this machine."""

    def __init__(self, path: Path, *, is_exact: bool) -> None:
        self.stored: Offsets = {}
        self._path = path
        self._sidecar = path.with_name(f"{path.name}.offsets")
        self._is_exact = is_exact
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise ConnectFailed(f"{path} cannot be written: {error.strerror}") from None
        try:
            self._lock()
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

    def _lock(self) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RetriableFailure(f"{self._path} is in use by another task or worker") from None

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
        made = self._sidecar.with_name(f"{self._sidecar.name}.new")
        with open(made, "w") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        made.replace(self._sidecar)
        directory = os.open(self._path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
        self.stored = dict(offsets)

    def _failed(self, error: OSError) -> ConnectFailed:
        kind = RetriableFailure if error.errno in _FULL else ConnectFailed
        return kind(f"{self._path} cannot be written: {error.strerror}")

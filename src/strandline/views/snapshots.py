"""Snapshots of a view's records: a cache made from the log, that can be made again from it.

    <views>/<cluster id>/<topic id>/
      at-<sum of offsets>/            one state, named by how far the log had come; written once, never changed
        0.parquet 1.parquet ...       a file per partition: the records as in `folding`, and the view's columns, by key
        meta.json                     offsets, sizes, checksums, the first key of every row group
      making-<random>/                a snapshot that is being written, or one that a dead process has left
      writing.lock                    its holder may write and remove snapshots here

A snapshot is written under another name: files first, each synced, `meta.json` last, then the directory is renamed. So
one that is there is whole, and it is believed only if sizes and checksums are right; else it is as if it were not there
and the next one is made. Readers hold a shared lock on `meta.json`, and a locked one is not removed. The topic's id is
in the path: a topic that was deleted and created again finds nothing of the old one.

Known gap: an unclean election that takes records back is noticed only when the log ends before the snapshot does.
"""

from __future__ import annotations

import base64
import fcntl
import json
import logging
import mmap
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow.parquet

from strandline.codec.checksum import crc32c
from strandline.views.columns import rows_sql
from strandline.views.definition import ViewDefinition
from strandline.views.folding import Offsets
from strandline.views.schema import schema_json

SNAPSHOTS_MAX: Final = 8
"""Of one topic. The oldest and the newest stay; those between are thinned out, the older the more."""
ROW_GROUP_ROWS: Final = 8_192
"""What `view get` reads for one key."""
RECORD_COLUMNS: Final = ("_partition", "_key", "_offset", "_timestamp", "_value")

_FORMAT: Final = 1
_META: Final = "meta.json"
_MAKING: Final = "making-"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Part:
    """The records of one partition."""

    offset: int
    """The first that does not count."""
    rows: int
    size_bytes: int
    crc32c: int
    latest_ms: int | None
    """The greatest time of any record up to here; None: there was none."""
    first_keys: tuple[str, ...]
    """Of each row group, as base64."""


@dataclass(frozen=True)
class Snapshot:
    path: Path
    made_ms: int
    columns: dict[str, Any]
    """The schema that the view had: its columns are in the files."""
    is_whole: bool
    """Whether every record since offset 0 was there to be folded."""
    has_all_times: bool
    """Whether `latest_ms` counts all of them; rows that were trimmed since do not matter to that."""
    parts: dict[int, Part]

    @property
    def offsets(self) -> dict[int, int]:
        return {partition: part.offset for partition, part in self.parts.items()}

    @property
    def latest_ms(self) -> dict[int, int]:
        return {partition: part.latest_ms for partition, part in self.parts.items() if part.latest_ms is not None}

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts.values())

    def file_of(self, partition: int) -> Path:
        return self.path / f"{partition}.parquet"

    def has_columns_of(self, definition: ViewDefinition) -> bool:
        return self.columns == columns_of(definition)

    @property
    def source(self) -> str:
        """For SQL: its records."""
        names = ", ".join(_literal(self.file_of(partition)) for partition in sorted(self.parts))
        return f"read_parquet([{names}])"


@dataclass
class HeldSnapshot:
    """One that stays as long as it is held."""

    snapshot: Snapshot
    _descriptor: int
    _files: dict[int, pyarrow.parquet.ParquetFile] = field(default_factory=dict)

    def file(self, partition: int) -> pyarrow.parquet.ParquetFile:
        """Open, as long as it is held."""
        file = self._files.get(partition)
        if file is None:
            file = self._files[partition] = pyarrow.parquet.ParquetFile(self.snapshot.file_of(partition))
        return file

    def release(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class SnapshotStore:
    """The snapshots of one topic."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def snapshots(self) -> list[Snapshot]:
        """Those that look sound, from the oldest to the newest."""
        try:
            names = sorted(each.name for each in self.directory.iterdir() if each.name.startswith("at-"))
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [found for name in names if (found := _told(self.directory / name)) is not None]

    def hold(self, snapshot: Snapshot) -> HeldSnapshot | None:
        """Keep it from being taken away; None if it is gone, or is not what it was when it was written."""
        meta = snapshot.path / _META
        try:
            descriptor = os.open(meta, os.O_RDONLY)
        except FileNotFoundError:
            return None
        held = HeldSnapshot(snapshot, descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            # Between opening and locking it may have been taken away.
            if os.path.exists(meta) and os.stat(meta).st_ino == os.fstat(descriptor).st_ino and _is_sound(snapshot):
                return held
        except FileNotFoundError:
            pass
        except BaseException:
            held.release()
            raise
        held.release()
        return None

    def write(
        self,
        connection: duckdb.DuckDBPyConnection,
        definition: ViewDefinition,
        records: str,
        *,
        offsets: Offsets,
        latest_ms: Mapping[int, int],
        is_whole: bool,
        has_all_times: bool,
        made_ms: int,
    ) -> Snapshot | None:
        """Keep the `records`, a relation of SQL without tombstones; None if another process is writing here."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with self._writing() as may_write:
            if not may_write:
                return None
            target = self.directory / f"at-{sum(offsets.values()):020d}"
            there = _told(target)
            if there is not None and _is_sound(there):
                return there
            making = self.directory / f"{_MAKING}{secrets.token_hex(8)}"
            making.mkdir()
            parts = {
                partition: _write_part(connection, definition, records, making, partition, offsets, latest_ms)
                for partition in sorted(offsets)
            }
            made = Snapshot(target, made_ms, columns_of(definition), is_whole, has_all_times, parts)
            (making / _META).write_text(_meta_text(made))
            sync(making / _META)
            sync(making)
            if target.exists():
                # A damaged one, which no reader can hold.
                self._take_away(target)
            os.rename(making, target)
            sync(self.directory)
            self._thin_out()
            return made

    @contextmanager
    def _writing(self) -> Iterator[bool]:
        descriptor = os.open(self.directory / "writing.lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            # No other process writes, so what is half-made was left by one that died.
            for left in self.directory.glob(f"{_MAKING}*"):
                shutil.rmtree(left)
            yield True
        finally:
            os.close(descriptor)

    def _thin_out(self) -> None:
        kept = self.snapshots()
        while len(kept) > SNAPSHOTS_MAX:
            newest_ms = kept[-1].made_ms
            # The one whose neighbours lie closest together, seen from now.
            at = min(
                range(1, len(kept) - 1),
                key=lambda i: (kept[i + 1].made_ms - kept[i - 1].made_ms + 1) / (newest_ms - kept[i - 1].made_ms + 1),
            )
            self._take_away(kept.pop(at).path)

    def _take_away(self, path: Path) -> None:
        """Remove a snapshot, unless it is being read: then the next writer tries again."""
        try:
            descriptor = os.open(path / _META, os.O_RDONLY)
        except FileNotFoundError:
            shutil.rmtree(path, ignore_errors=True)
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        else:
            gone = path.with_name(f"{_MAKING}{secrets.token_hex(8)}")
            os.rename(path, gone)
            shutil.rmtree(gone)
        finally:
            os.close(descriptor)


def columns_of(definition: ViewDefinition) -> dict[str, Any]:
    read_by = {"reader_schema": definition.reader_schema} if definition.reader_schema else {}
    return schema_json(definition.columns) | {"key": list(definition.key), "is_plain": definition.is_plain} | read_by


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_part(
    connection: duckdb.DuckDBPyConnection,
    definition: ViewDefinition,
    records: str,
    directory: Path,
    partition: int,
    offsets: Offsets,
    latest_ms: Mapping[int, int],
) -> Part:
    path = directory / f"{partition}.parquet"
    chosen = f"(SELECT * FROM {records} WHERE _partition = {partition})"
    rows = rows_sql(definition, chosen, kept=RECORD_COLUMNS)
    connection.execute(
        f"COPY ({rows} ORDER BY _key) TO {_literal(path)} "
        f"(FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {ROW_GROUP_ROWS})"
    )
    sync(path)
    with pyarrow.parquet.ParquetFile(path) as file:
        groups = [file.read_row_group(group, columns=["_key"]) for group in range(file.num_row_groups)]
        first_keys = tuple(base64.b64encode(each.column(0)[0].as_py()).decode() for each in groups if each.num_rows)
        count = file.metadata.num_rows
    return Part(offsets[partition], count, path.stat().st_size, _crc_of(path), latest_ms.get(partition), first_keys)


def _meta_text(snapshot: Snapshot) -> str:
    parts = {str(partition): asdict(part) for partition, part in snapshot.parts.items()}
    told = {
        "format": _FORMAT,
        "made_ms": snapshot.made_ms,
        "columns": snapshot.columns,
        "is_whole": snapshot.is_whole,
        "has_all_times": snapshot.has_all_times,
        "parts": parts,
    }
    return json.dumps(told, indent=1)


def _told(path: Path) -> Snapshot | None:
    """By its `meta.json`; None if that is no description of a snapshot of this format."""
    try:
        told = json.loads((path / _META).read_text())
        if told["format"] != _FORMAT:
            return None
        parts = {
            int(partition): Part(**(part | {"first_keys": tuple(part["first_keys"])}))
            for partition, part in told["parts"].items()
        }
        # Snapshots of earlier versions do not have it.
        has_all_times = told.get("has_all_times", told["is_whole"])
        return Snapshot(path, told["made_ms"], told["columns"], told["is_whole"], has_all_times, parts)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        logger.warning("the snapshot %s is damaged and will be made again: %s", path, error)
        return None


def _is_sound(snapshot: Snapshot) -> bool:
    for partition, part in snapshot.parts.items():
        path = snapshot.file_of(partition)
        try:
            if path.stat().st_size == part.size_bytes and _crc_of(path) == part.crc32c:
                continue
            reason = "its checksum is wrong"
        except OSError as error:
            reason = error.strerror or str(error)
        logger.warning("the snapshot %s is damaged and will be made again: %s: %s", snapshot.path, path.name, reason)
        return False
    return True


def _crc_of(path: Path) -> int:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as content:
        return int(crc32c(content))


def _literal(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"

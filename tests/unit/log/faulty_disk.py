"""A real disk that fails when it is told to, and counts what was asked of it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from strandline.log.disk import Buffer, File, RealDisk, RealFile

Wanted = Callable[[Path], bool]


class Fault:
    """After `after` matching calls the next `times` of them raise `error_number`; `repaired` ends it."""

    def __init__(
        self, operation: str, error_number: int, wanted: Wanted, *, after: int, times: int, partial_bytes: int
    ) -> None:
        self.operation = operation
        self.error_number = error_number
        self.wanted = wanted
        self.after = after
        self.times = times
        self.partial_bytes = partial_bytes
        self.hits = 0
        self.repaired = False

    def strikes(self, operation: str, path: Path) -> bool:
        if self.repaired or self.operation not in (operation, "*") or not self.wanted(path):
            return False
        if self.after > 0:
            self.after -= 1
            return False
        self.hits += 1
        self.repaired = self.hits >= self.times
        return True

    def error(self, path: Path) -> OSError:
        return OSError(self.error_number, os.strerror(self.error_number), str(path))


class FaultyDisk(RealDisk):
    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.faults: list[Fault] = []
        self.open_now = 0
        self.open_most = 0

    def fail(
        self,
        operation: str,
        error_number: int,
        *,
        suffix: str = "",
        after: int = 0,
        times: int = 1 << 30,
        partial_bytes: int = 0,
    ) -> Fault:
        """Let `operation` (write_at, datasync, truncate, ..., * for any) fail on files that end in `suffix`."""
        fault = Fault(
            operation,
            error_number,
            lambda path: path.name.endswith(suffix),
            after=after,
            times=times,
            partial_bytes=partial_bytes,
        )
        self.faults.append(fault)
        return fault

    def meet(self, operation: str, path: Path) -> Fault | None:
        self.calls[operation] += 1
        return next((fault for fault in self.faults if fault.strikes(operation, path)), None)

    def check(self, operation: str, path: Path) -> None:
        fault = self.meet(operation, path)
        if fault is not None:
            raise fault.error(path)

    def open(self, path: Path, *, create: bool = False) -> File:  # type: ignore[override]
        self.check("open", path)
        opened = FaultyFile(self, path, super().open(path, create=create))
        self.open_now += 1
        self.open_most = max(self.open_most, self.open_now)
        return opened

    def write_whole(self, path: Path, data: bytes, *, sync: bool = False) -> None:
        self.check("write_whole", path)
        super().write_whole(path, data, sync=sync)

    def sync_directory(self, path: Path) -> None:
        self.check("sync_directory", path)

    def read_whole(self, path: Path) -> bytes:
        self.check("read_whole", path)
        return super().read_whole(path)

    def remove(self, path: Path) -> None:
        self.check("remove", path)
        super().remove(path)

    def rename(self, source: Path, target: Path) -> None:
        self.check("rename", source)
        super().rename(source, target)


class FaultyFile:
    def __init__(self, disk: FaultyDisk, path: Path, real: RealFile) -> None:
        self.disk = disk
        self.path = path
        self.real = real

    def fileno(self) -> int:
        return self.real.fileno()

    def write_at(self, position: int, data: Buffer) -> None:
        fault = self.disk.meet("write_at", self.path)
        if fault is not None:
            # A full disk takes what fits and then says no.
            self.real.write_at(position, bytes(data[: fault.partial_bytes]))
            raise fault.error(self.path)
        self.real.write_at(position, data)

    def read_at(self, position: int, size: int) -> bytes:
        self.disk.check("read_at", self.path)
        return self.real.read_at(position, size)

    def read_at_nowait(self, position: int, size: int) -> bytes | None:
        if self.disk.meet("read_at_nowait", self.path) is not None:
            return None  # Not in the page cache.
        return self.real.read_at_nowait(position, size)

    def is_cached(self, position: int) -> bool:
        return self.disk.meet("read_at_nowait", self.path) is None and self.real.is_cached(position)

    def datasync(self) -> None:
        # Counted or refused, but not waited for: no test here cuts the power.
        self.disk.check("datasync", self.path)

    def truncate(self, size: int) -> None:
        self.disk.check("truncate", self.path)
        self.real.truncate(size)

    def size(self) -> int:
        return self.real.size()

    def close(self) -> None:
        self.disk.open_now -= 1
        self.real.close()

"""A directory as an object store: the embedded default. The files and their rules are those of `object_files`."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from strandline.runtime.runtime import Runtime
from strandline.tiers.store.conditional import check_create, read_back
from strandline.tiers.store.failures import (
    BucketMissing,
    ObjectDamaged,
    ObjectMissing,
    StoreDenied,
    StoreFailed,
    StoreFull,
    StoreMisconfigured,
    StoreUnavailable,
)
from strandline.tiers.store.interface import StoredObject, below, check_key, check_range
from strandline.tiers.store.object_files import BodyUnreadable, ObjectFiles
from strandline.tiers.store.waiting import Deadline, LateAnswer, in_thread, within

T = TypeVar("T")

LIST_PAGE_S: Final = 60.0
"""What the list of one directory may take."""
DELETES_TOGETHER_MAX: Final = 100
"""Files of one job of a thread, so that other jobs have their turn."""
_DENIED: Final = {errno.EACCES, errno.EPERM, errno.EROFS}
_FULL: Final = {errno.ENOSPC, errno.EDQUOT}


class DirectoryStore:
    """Objects as files, written and read by the threads of the `Runtime`."""

    def __init__(self, directory: Path, runtime: Runtime) -> None:
        self.name: Final = directory.absolute().as_uri()
        self._runtime = runtime
        try:
            self._files = ObjectFiles(directory.absolute())
        except (FileExistsError, NotADirectoryError):
            raise StoreMisconfigured(f"{self.name} is no directory; correct the address") from None
        except FileNotFoundError:
            raise BucketMissing(
                f"{self.name} cannot be opened: its parent directory does not exist; create it or correct the address"
            ) from None
        except OSError as error:
            raise self._failure(error, "open", "its directory") from error

    def __repr__(self) -> str:
        return f"DirectoryStore({self.name!r})"

    def close(self) -> None:
        """Release the folder of temporary files."""
        self._files.close()

    async def put(self, key: str, body: bytes | memoryview | Path, *, deadline_s: float) -> StoredObject:
        check_key(key)
        return await self._call(lambda: self._files.put(key, body), "write", key, deadline_s)

    async def create(self, key: str, body: bytes, *, nonce: str, deadline_s: float) -> bool:
        check_create(key, body, nonce)
        deadline = Deadline(self._runtime, deadline_s)
        write = self._call(lambda: self._files.put_new(key, body), "create", key, deadline_s)
        return await read_back(self, write, key, body, nonce, deadline)

    async def read(self, key: str, start: int, length: int, *, deadline_s: float) -> bytes:
        check_key(key)
        check_range(start, length)
        found = await self._call(lambda: self._files.read(key, start, length), "read", key, deadline_s)
        if len(found) != length:
            raise ObjectDamaged(f"{self.name} holds {key} shorter than expected; run `strandline storage check`")
        return found

    async def read_whole(self, key: str, *, deadline_s: float) -> bytes:
        check_key(key)
        return await self._call(lambda: self._files.read_whole(key), "read", key, deadline_s)

    async def head(self, key: str, *, deadline_s: float) -> StoredObject | None:
        check_key(key)
        return await self._call(lambda: self._files.head(key), "describe", key, deadline_s)

    async def delete(self, keys: Sequence[str], *, deadline_s: float) -> None:
        for key in keys:
            check_key(key)
        deadline = Deadline(self._runtime, deadline_s)
        for first in range(0, len(keys), DELETES_TOGETHER_MAX):
            some = keys[first : first + DELETES_TOGETHER_MAX]
            await self._delete(some, deadline)

    async def _delete(self, keys: Sequence[str], deadline: Deadline) -> None:
        await self._call(lambda: self._files.delete(keys), "delete", keys[0], deadline.left_s)

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[StoredObject]:
        waiting: list[StoredObject | str] = [below(prefix)]
        while waiting:
            each = waiting.pop()
            if isinstance(each, StoredObject):
                if each.key > after:
                    yield each
            # Nothing below a folder is greater than `after` if the folder is less and does not lead to it.
            elif each > after or after.startswith(each):
                waiting.extend(reversed(await self._page(each)))

    async def _page(self, folder: str) -> Sequence[StoredObject | str]:
        return await self._call(lambda: self._files.page(folder), "list", folder, LIST_PAGE_S)

    async def _call(self, work: Callable[[], T], action: str, key: str, limit_s: float) -> T:
        try:
            return await within(self._runtime, limit_s, in_thread(self._runtime, work))
        except LateAnswer:
            raise StoreUnavailable(
                f"{self.name} did not {action} {key} in time; check its disk or allow more time"
            ) from None
        except BodyUnreadable as unreadable:
            raise unreadable.error from None
        except OSError as error:
            raise self._failure(error, action, key) from error

    def _failure(self, error: OSError, action: str, key: str) -> StoreFailed:
        what = f"{self.name} did not {action} {key}"
        if error.errno in _DENIED:
            return StoreDenied(f"{what}: {error.strerror}; grant this process the right", "rights")
        if error.errno in _FULL:
            return StoreFull(f"{what}: {error.strerror}; free some room")
        if isinstance(error, (IsADirectoryError, NotADirectoryError)):
            return StoreFailed(f"{what}: a directory or a file is in its way; remove it")
        if isinstance(error, FileNotFoundError):
            if not self._files.is_there:
                return BucketMissing(f"{what}: its directory is gone; mount or restore it and restart")
            if action == "read":
                return ObjectMissing(
                    f"{self.name} has no object {key}; if it was deleted by hand, run `strandline storage check`"
                )
        return StoreUnavailable(f"{what}: {error.strerror or error}; check its disk")

"""The directory: atomic under kills at each system call, tidy, and clear about disks."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies

from strandline.runtime.runtime import LoopRuntime, Runtime
from strandline.tiers.store import object_files
from strandline.tiers.store.directory_store import DirectoryStore
from strandline.tiers.store.memory_store import MemoryStore
from strandline.tiers.store.object_files import TEMPORARY
from strandline.tiers.store.object_store import BucketMissing, StoreDenied, StoreFull, StoreUnavailable
from strandline.tiers.store.waiting import together

S = 20.0


@pytest.fixture
def store(tmp_path: Path, runtime: Runtime) -> Iterator[DirectoryStore]:
    made = DirectoryStore(tmp_path / "objects", runtime)
    yield made
    made.close()


def files_below(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


KILLED = """
    import os, signal, sys
    from pathlib import Path
    from strandline.tiers.store.object_files import ObjectFiles

    CALLS = ("open", "write", "fsync", "replace", "link", "unlink", "mkdir", "rmdir")
    left = 0
    def counted(name, real):
        def call(*args, **named):
            global left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **named)
        return call
    for step in range(1, 60):
        root = Path(sys.argv[1]) / str(step)
        files = ObjectFiles(root)
        files.put("a/b/put", b"old" * 1000)
        files.put("d/deleted", b"deleted")
        files.close()
        if child := os.fork():
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            print(step, status)
            if status != -signal.SIGKILL:
                break
            continue
        files = ObjectFiles(root)
        left = step
        for name in CALLS:
            setattr(os, name, counted(name, getattr(os, name)))
        files.put("a/b/put", b"new" * 1000)
        files.put_new("a/c/created", b"created" * 1000)
        files.delete(["d/deleted", "none"])
        os._exit(0)
"""


def test_a_kill_at_any_step_leaves_whole_objects(tmp_path: Path) -> None:
    """Each process is killed one call later than the one before, until one ends."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    ended = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert [status for _, status in ended] == [-signal.SIGKILL] * (len(ended) - 1) + [0]
    assert len(ended) > 15
    for step, _ in ended:
        root = tmp_path / str(step)
        again = object_files.ObjectFiles(root)
        objects = {each for each in files_below(root) if not (each.startswith(TEMPORARY) and each.endswith("lock"))}
        assert objects <= {"a/b/put", "a/c/created", "d/deleted"}, step
        assert (root / "a/b/put").read_bytes() in (b"old" * 1000, b"new" * 1000), step
        if "a/c/created" in objects:
            assert (root / "a/c/created").read_bytes() == b"created" * 1000, step
        again.close()
    assert objects == {"a/b/put", "a/c/created"}


async def test_files_of_live_writers_stay_and_those_of_ended_ones_go(tmp_path: Path, runtime: Runtime) -> None:
    first = DirectoryStore(tmp_path, runtime)
    second = DirectoryStore(tmp_path, runtime)
    assert len(list((tmp_path / TEMPORARY).iterdir())) == 2
    await first.put("a", b"a", deadline_s=S)
    await second.put("b", b"b", deadline_s=S)
    assert await first.read_whole("b", deadline_s=S) == b"b"
    left = tmp_path / TEMPORARY / "left"
    left.mkdir()
    (left / "lock").touch()
    (left / "7").write_bytes(b"half")
    third = DirectoryStore(tmp_path, runtime)
    assert not left.exists()
    assert len(list((tmp_path / TEMPORARY).iterdir())) == 3
    for each in (first, second, third):
        each.close()
    assert files_below(tmp_path) == {"a", "b"}


async def test_empty_directories_go_while_others_write_into_them(store: DirectoryStore, runtime: Runtime) -> None:
    async def fill_and_empty(number: int) -> None:
        for _ in range(40):
            await store.put(f"x/y/{number}", b"x", deadline_s=S)
            await store.delete([f"x/y/{number}"], deadline_s=S)

    outcomes = await together(runtime, [fill_and_empty(each) for each in range(4)])
    assert outcomes == [None] * 4
    assert [each.key async for each in store.list("")] == []


async def test_no_temporary_file_is_left_or_listed(store: DirectoryStore, tmp_path: Path) -> None:
    for _ in range(3):
        await store.create("k", b"12345678", nonce="12345678", deadline_s=S)
        await store.put("l", b"", deadline_s=S)
    assert {name for name in files_below(tmp_path) if TEMPORARY in name and not name.endswith("lock")} == set()
    assert [each.key async for each in store.list("")] == ["k", "l"]


@pytest.mark.parametrize(
    ("number", "failure"),
    [
        (errno.ENOSPC, StoreFull),
        (errno.EDQUOT, StoreFull),
        (errno.EACCES, StoreDenied),
        (errno.EROFS, StoreDenied),
        (errno.EIO, StoreUnavailable),
    ],
)
async def test_errors_of_the_disk_are_named_and_leave_nothing(
    number: int, failure: type[Exception], store: DirectoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    await store.put("k", b"old", deadline_s=S)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails)
        with pytest.raises(failure, match="did not write k: "):
            await store.put("k", b"new", deadline_s=S)
    assert await store.read_whole("k", deadline_s=S) == b"old"
    assert len(files_below(tmp_path)) == 2


async def test_a_directory_that_went_away_is_not_made_again(
    store: DirectoryStore, tmp_path: Path, runtime: Runtime
) -> None:
    await store.put("k", b"x", deadline_s=S)
    (tmp_path / "objects").rename(tmp_path / "unmounted")
    for call in (
        store.put("k", b"x", deadline_s=S),
        store.read_whole("k", deadline_s=S),
        store.create("n", b"12345678", nonce="12345678", deadline_s=S),
    ):
        with pytest.raises(BucketMissing, match="gone"):
            await call
    with pytest.raises(BucketMissing):
        [each async for each in store.list("")]
    assert not (tmp_path / "objects").exists()
    (tmp_path / "unmounted").rename(tmp_path / "objects")


PARTS = strategies.lists(strategies.sampled_from(["a", "a-b", "a.b", "a=b", "b", "aa"]), min_size=1, max_size=3)
KEYS = strategies.sets(PARTS.map("/".join), max_size=12)


@settings(max_examples=20)
@given(
    keys=KEYS, after=PARTS.map("/".join) | strategies.just(""), prefix=strategies.sampled_from(["", "a", "a-b", "b"])
)
def test_a_directory_lists_as_memory_does(keys: set[str], after: str, prefix: str) -> None:
    """The order of keys is not that of a walk through directories: "a-b" is before "a/b"."""
    # A directory cannot hold an object and others below it.
    kept = {key for key in keys if not any(other.startswith(f"{key}/") for other in keys)}

    async def listed(store: MemoryStore | DirectoryStore) -> list[str]:
        for key in sorted(kept):
            await store.put(key, b"", deadline_s=S)
        return [each.key async for each in store.list(prefix, after=after)]

    async def both(directory: str) -> None:
        runtime = LoopRuntime(asyncio.get_running_loop())
        store = DirectoryStore(Path(directory), runtime)
        assert await listed(store) == await listed(MemoryStore())
        store.close()
        runtime.close()

    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(both(directory))

"""C threads that sync files: every job is answered once, with its own error, on the loop."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("strandline.runtime._sync", reason="not compiled here")

from strandline.runtime._sync import SyncThreads
from strandline.runtime.runtime import SYNCS_MAX


@pytest.fixture
def files(tmp_path: Path) -> Iterator[list[int]]:
    fds = [os.open(tmp_path / str(number), os.O_RDWR | os.O_CREAT) for number in range(40)]
    for fd in fds:
        os.write(fd, b"x" * 100)
    yield fds
    for fd in fds:
        os.close(fd)


async def synced(threads: SyncThreads, fds: list[int]) -> OSError | None:
    answer: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
    threads.run(fds, lambda _, error: answer.set_result(error))
    return await answer


async def test_more_jobs_than_threads_are_all_answered(files: list[int]) -> None:
    threads = SyncThreads(asyncio.get_running_loop(), 3)
    for _ in range(20):
        assert await asyncio.gather(*(synced(threads, [fd]) for fd in files)) == [None] * len(files)
    assert threads.is_idle
    threads.close()


async def test_one_job_syncs_many_files(files: list[int]) -> None:
    threads = SyncThreads(asyncio.get_running_loop(), SYNCS_MAX)
    assert await synced(threads, files) is None
    assert await synced(threads, []) is None
    threads.close()


async def test_a_failure_belongs_to_its_job_alone(files: list[int]) -> None:
    threads = SyncThreads(asyncio.get_running_loop(), SYNCS_MAX)
    reader, writer = os.pipe()
    jobs = [[files[0]], [files[1], writer, files[2]], [files[3]], [1_000_000]]
    errors = await asyncio.gather(*(synced(threads, fds) for fds in jobs))
    assert [error and error.errno for error in errors] == [None, errno.EINVAL, None, errno.EBADF]
    assert str(errors[3]) == f"[Errno {errno.EBADF}] {os.strerror(errno.EBADF)}"
    assert await synced(threads, [files[0]]) is None
    threads.close()
    os.close(reader)
    os.close(writer)


async def test_close_waits_for_the_jobs_and_drops_their_answers(files: list[int]) -> None:
    threads = SyncThreads(asyncio.get_running_loop(), 2)
    answers: list[OSError | None] = []
    for fd in files:
        threads.run([fd], lambda _, error: answers.append(error))
    threads.close()
    assert threads.is_idle
    await asyncio.sleep(0.01)
    assert answers == []
    threads.close()
    assert await synced(threads, files) is None, "it opens again on demand"
    threads.close()


async def test_a_callback_that_raises_costs_the_others_nothing(files: list[int]) -> None:
    loop = asyncio.get_running_loop()
    reported: list[object] = []
    loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
    threads = SyncThreads(loop, 1)
    mistake = ValueError("a mistake")

    def fail(_: None, error: OSError | None) -> None:
        raise mistake

    threads.run([files[0]], fail)
    assert await asyncio.gather(*(synced(threads, [fd]) for fd in files)) == [None] * len(files)
    assert reported == [mistake]
    threads.close()


async def test_a_fork_can_close_what_it_inherits(files: list[int]) -> None:
    threads = SyncThreads(asyncio.get_running_loop(), 2)
    assert await synced(threads, files) is None
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        threads.close()
        os._exit(0)
    assert await asyncio.to_thread(os.waitpid, child, 0) == (child, 0)
    assert await synced(threads, files) is None
    threads.close()


async def test_a_pool_that_is_never_closed_ends_with_its_owner(files: list[int]) -> None:
    loop = asyncio.new_event_loop()
    threads = SyncThreads(loop, 2)
    threads.run(files, lambda *_: None)
    loop.close()
    del threads

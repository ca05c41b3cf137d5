"""A disk whose fsync fails on command: a few lines of C between the broker and the C library, by LD_PRELOAD.

The test writes part of a path into the trigger file; from then on fsync and fdatasync of every file whose path contains
it return EIO, and one byte per refusal goes into a pipe, so that the test can wait for the fault instead of guessing.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int read_text(int fd, char *text, size_t size) {
    ssize_t length = fd < 0 ? -1 : read(fd, text, size - 1);
    if (fd >= 0) close(fd);
    if (length <= 0) return 0;
    text[length] = 0;
    return 1;
}

static int must_fail(int fd) {
    const char *trigger = getenv("SYNC_FAULT_TRIGGER"), *told = getenv("SYNC_FAULT_TOLD");
    char part[256], link[64], path[4096];
    if (!trigger || !told || !read_text(open(trigger, O_RDONLY | O_CLOEXEC), part, sizeof part)) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    if (!strstr(path, part)) return 0;
    int pipe_fd = open(told, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (pipe_fd >= 0) {
        if (write(pipe_fd, "!", 1) != 1) { /* The pipe is full: the test knows already. */ }
        close(pipe_fd);
    }
    errno = EIO;
    return 1;
}

int fsync(int fd) {
    static int (*next)(int);
    if (!next) next = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    return must_fail(fd) ? -1 : next(fd);
}

int fdatasync(int fd) {
    static int (*next)(int);
    if (!next) next = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    return must_fail(fd) ? -1 : next(fd);
}
"""


def why_not_available() -> str:
    """Empty if the fault can be made here; else the reason to skip."""
    if not Path("/proc/self/fd").exists():
        return "the fault needs Linux's /proc"
    return "" if shutil.which("gcc") else "the fault needs gcc"


class SyncFault:
    def __init__(self, library: Path, trigger: Path, told: Path, told_fd: int) -> None:
        self.environ = {"LD_PRELOAD": str(library), "SYNC_FAULT_TRIGGER": str(trigger), "SYNC_FAULT_TOLD": str(told)}
        self._trigger = trigger
        self._told_fd = told_fd

    def arm(self, part_of_path: str) -> None:
        # By rename, because the broker may look at any moment and must never see half a path.
        draft = self._trigger.with_suffix(".new")
        draft.write_text(part_of_path)
        draft.rename(self._trigger)

    def disarm(self) -> None:
        self._trigger.unlink()

    def wait_refused(self, *, timeout_s: float) -> None:
        """Waits until a sync has been refused since the last call."""
        readable, _, _ = select.select([self._told_fd], [], [], timeout_s)
        if not readable:
            raise TimeoutError(f"no sync was refused within {timeout_s:g} s")
        os.read(self._told_fd, 65_536)


@contextlib.contextmanager
def sync_fault(directory: Path) -> Iterator[SyncFault]:
    source, library = directory / "sync_fault.c", directory / "sync_fault.so"
    source.write_text(_SOURCE)
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
    told = directory / "refused"
    os.mkfifo(told)
    # Opened for both, so that the pipe exists before the first writer and outlives the last.
    told_fd = os.open(told, os.O_RDWR | os.O_NONBLOCK)
    try:
        yield SyncFault(library, directory / "trigger", told, told_fd)
    finally:
        os.close(told_fd)

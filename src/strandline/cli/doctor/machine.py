"""What `doctor` looks at on this machine: limits, memory, kernel settings, the clock, what is installed.

Everything is read from /proc, so on other systems these checks are left out, and said to be.
"""

from __future__ import annotations

import ctypes
import os
import resource
import socket
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from strandline._twins import is_compiled
from strandline.cli.common.plain_words import size
from strandline.cli.doctor.findings import Finding, note, ok, problem, warning

OPEN_FILES_WANTED = 10_000
OPEN_FILES_ADVISED = 65_536
OPEN_FILES_NEEDED = 4_096
MEMORY_WANTED = 512 * 1024 * 1024
MEMORY_NEEDED = 128 * 1024 * 1024
_PROC = Path("/proc")
_CLOCK_UNSYNCHRONISED = 5
_LISTENING = "0A"


def machine_findings(node_pid: int | None) -> Iterator[Finding]:
    yield from _open_files(node_pid)
    if not (_PROC / "meminfo").exists():
        yield note("machine", "memory, kernel settings and the clock are only looked at on Linux")
        return
    yield from _memory(node_pid)
    yield from kernel_findings(_PROC / "sys")
    yield from _clock()
    yield from _installed()


def listening_pid(port: int) -> int | None:
    """Return the process on this machine that listens on `port`, if it is ours to see."""
    wanted = set()
    for table in ("tcp", "tcp6"):
        path = _PROC / "net" / table
        if not path.exists():
            continue
        for line in path.read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                wanted.add(f"socket:[{fields[9]}]")
    if not wanted:
        return None
    for process in _PROC.iterdir():
        if process.name.isdigit() and _holds(process, wanted):
            return int(process.name)
    return None


def _holds(process: Path, sockets: set[str]) -> bool:
    try:
        return any(os.readlink(entry) in sockets for entry in (process / "fd").iterdir())
    except OSError:
        # It ended meanwhile, or belongs to another user: either way it cannot be read.
        return False


def _open_files(node_pid: int | None) -> Iterator[Finding]:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    whose, used = "this shell", ""
    if node_pid is not None:
        try:
            limits = (_PROC / str(node_pid) / "limits").read_text()
            row = next(line for line in limits.splitlines() if line.startswith("Max open files"))
            limit = int(row.split()[3])
            whose = f"the node (pid {node_pid})"
            used = f", {len(list((_PROC / str(node_pid) / 'fd').iterdir())):,} in use"
        except (OSError, ValueError, StopIteration):
            whose = "this shell (the node's own could not be read)"
    text = f"{whose} may open {limit:,} files and connections{used}"
    advice = (
        f"raise it: `ulimit -n {OPEN_FILES_ADVISED}` before the start, or LimitNOFILE={OPEN_FILES_ADVISED} in systemd"
    )
    if limit < OPEN_FILES_NEEDED:
        yield problem("open-files", f"{text}; partitions and clients need more", advice)
    elif limit < OPEN_FILES_WANTED:
        yield warning("open-files", f"{text}; thousands of partitions or clients need more", advice)
    else:
        yield ok("open-files", text)


def _memory(node_pid: int | None) -> Iterator[Finding]:
    meminfo = {
        line.split(":")[0]: int(line.split()[1]) * 1024
        for line in (_PROC / "meminfo").read_text().splitlines()
        if line.endswith("kB")
    }
    available, total = meminfo["MemAvailable"], meminfo["MemTotal"]
    text = f"{size(available)} of {size(total)} memory available"
    if node_pid is not None:
        text += _resident(node_pid)
    advice = "the page cache makes reads fast: give the machine more memory, or let less run on it"
    if available < MEMORY_NEEDED:
        yield problem("memory", text, advice)
    elif available < MEMORY_WANTED:
        yield warning("memory", text, advice)
    else:
        yield ok("memory", text)
    limit = Path("/sys/fs/cgroup/memory.max")
    if limit.exists() and (allowed := limit.read_text().strip()).isdigit():
        words = f"the container may use {size(int(allowed))}, page cache included"
        yield warning("memory-limit", words, advice) if int(allowed) < MEMORY_WANTED else ok("memory-limit", words)


def _resident(node_pid: int) -> str:
    try:
        pages = int((_PROC / str(node_pid) / "statm").read_text().split()[1])
    except OSError:
        return ""
    return f"; the node takes {size(pages * os.sysconf('SC_PAGE_SIZE'))}"


def kernel_findings(sys_path: Path) -> Iterator[Finding]:
    """Swapping, the flushing of dirty pages, and the queue of connections that wait to be accepted."""
    swappiness = _number(sys_path / "vm" / "swappiness")
    if swappiness is not None and swappiness > 10 and _has_swap():
        advice = "`sysctl -w vm.swappiness=1`: a broker that is swapped out answers late"
        yield warning("vm.swappiness", f"vm.swappiness is {swappiness}, and there is swap", advice)
    elif swappiness is not None:
        yield ok("vm.swappiness", f"vm.swappiness is {swappiness}{'' if _has_swap() else ', and there is no swap'}")
    ratio = _number(sys_path / "vm" / "dirty_ratio")
    if ratio:
        advice = "`sysctl -w vm.dirty_ratio=40`: beyond it every writer waits for the disk"
        low = ratio < 10
        text = f"vm.dirty_ratio is {ratio} %"
        yield warning("vm.dirty_ratio", f"{text}: writers stall early", advice) if low else ok("vm.dirty_ratio", text)
    background = _number(sys_path / "vm" / "dirty_background_ratio")
    if background:
        text = f"vm.dirty_background_ratio is {background} %"
        advice = "`sysctl -w vm.dirty_background_ratio=5`: begin early, so that a flush finds little left to do"
        yield (
            note("vm.dirty_background_ratio", text, advice)
            if background > 10
            else ok("vm.dirty_background_ratio", text)
        )
    backlog = _number(sys_path / "net" / "core" / "somaxconn")
    if backlog is not None:
        text = f"net.core.somaxconn is {backlog:,}"
        advice = "`sysctl -w net.core.somaxconn=4096`: many clients that come back at once are refused otherwise"
        yield warning("net.core.somaxconn", text, advice) if backlog < 1024 else ok("net.core.somaxconn", text)


def _has_swap() -> bool:
    swaps = _PROC / "swaps"
    return swaps.exists() and len(swaps.read_text().splitlines()) > 1


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _clock() -> Iterator[Finding]:
    """Whether the kernel believes that something keeps its clock right."""
    try:
        # struct timex with modes=0 only reads; it is smaller than this everywhere.
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.create_string_buffer(512))
    except (OSError, AttributeError):
        return
    if state == _CLOCK_UNSYNCHRONISED:
        yield warning(
            "clock-sync",
            "nothing keeps this machine's clock right",
            "run chrony or systemd-timesyncd: retention and reading by time go by the clock",
        )
    elif state >= 0:
        yield ok("clock-sync", "the clock is kept in step")


def _installed() -> Iterator[Finding]:
    if find_spec("uvloop") is None:
        yield warning("event-loop", "uvloop is missing: a node here runs on the slower asyncio", "pip install uvloop")
    if not is_compiled():
        why = "the hot path is not compiled: small requests cost about half as much again"
        yield note("hot-path", why, "install a wheel, or build with a C compiler")


def is_this_machine(host: str) -> bool:
    """Whether `host` is an address of this machine: only then its process, disk and clock can be looked at."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)
    except OSError:
        return False
    for family, kind, protocol, _, address in found:
        # Binding succeeds exactly for addresses that are ours.
        with socket.socket(family, kind, protocol) as probe:
            try:
                probe.bind(address)
            except OSError:
                continue
            return True
    return False

"""Where and with what a run was made: a figure without these means nothing a year later."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import confluent_kafka

from bench.kafka_jars import KAFKA_VERSION

_ROOT = Path(__file__).resolve().parent.parent
_NOT_THERE = "not there"
_PACKAGES = ("strandline", "uvloop", "crc32c", "cramjam", "lz4", "zstandard", "confluent-kafka")


def environment(arguments: list[str]) -> dict[str, Any]:
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "command": " ".join(["python -m bench", *arguments]),
        "machine": f"{os.cpu_count()} x {_processor()}, {_memory_gb():.0f} GB",
        "load_before": os.getloadavg()[0],
        "system": f"{platform.system()} {platform.release()}",
        "filesystem": _filesystem(),
        "python": sys.version.split()[0],
        "java": _java(),
        "kafka": KAFKA_VERSION,
        "librdkafka": confluent_kafka.libversion()[0],
        "packages": {name: _version(name) for name in _PACKAGES},
    }


def _commit() -> str:
    commit = _first_line(["git", "-C", str(_ROOT), "rev-parse", "--short", "HEAD"])
    if commit == _NOT_THERE:
        return "unknown"
    changed = _first_line(["git", "-C", str(_ROOT), "status", "--porcelain", "-uno", "--", "src", "bench"])
    return f"{commit}+changes" if changed else commit


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _memory_gb() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9


def _filesystem() -> str:
    """The type of the filesystem that holds the data directories: the longest mount point above the work tree."""
    best, kind = "", "unknown"
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount_point, filesystem, *_ = line.split()
        if _ROOT.is_relative_to(mount_point) and len(mount_point) > len(best):
            best, kind = mount_point, filesystem
    return kind


def _java() -> str:
    return _first_line(["java", "-version"])


def _first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return _NOT_THERE
    if done.returncode != 0:
        return _NOT_THERE
    # Java prints its version to standard error.
    lines = (done.stdout or done.stderr).splitlines()
    return lines[0].strip() if lines else ""


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"

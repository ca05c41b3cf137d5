"""The two ways to sync a segment, in C threads and in Python's, and a descriptor that fails in both."""

from __future__ import annotations

import os

import pytest

from strandline.log.partition_log import PartitionLog
from strandline.runtime import runtime

SYNC_WAYS = ("native", "plain")


def choose_sync_way(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    if way == "plain":
        monkeypatch.setattr(runtime, "SyncThreads", None)
    elif runtime.SyncThreads is None:
        pytest.skip("not compiled here")


def break_sync(log: PartitionLog) -> None:
    """Let fdatasync of the active segment fail with EINVAL, and writes vanish."""
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, log.active.file().fileno())
    os.close(null)

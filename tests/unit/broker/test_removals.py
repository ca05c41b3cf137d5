"""Directories of deleted partitions go one after the other, and one that will not go holds up no other."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from tests.unit.log.manual_runtime import ManualRuntime

from strandline.broker.maintenance.removals import TREES_PER_JOB, Removals
from strandline.log.disk import RealDisk


class StubbornDisk(RealDisk):
    """A disk that will not let go of one directory."""

    def remove_tree(self, path: Path) -> None:
        if path.name == "stuck":
            raise OSError(errno.EBUSY, "busy", str(path))
        super().remove_tree(path)


def test_one_thread_removes_all_of_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    runtime = ManualRuntime()
    removals = Removals(runtime, StubbornDisk())
    names = [f"topic-{number}" for number in range(3 * TREES_PER_JOB)]
    for name in [*names[:5], "stuck", *names[5:]]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.log").write_bytes(b"records")
        removals.remove(tmp_path / name)
        assert len(runtime.jobs) == 1, "never two threads at once"
    trips = 0
    while runtime.jobs:
        runtime.finish_job()
        trips += 1
        assert len(runtime.jobs) <= 1
    assert [path.name for path in tmp_path.iterdir()] == ["stuck"]
    assert "stuck is left behind" in caplog.text
    assert trips == 4, "one for the first, then eight at a time"
    removals.remove(tmp_path / "missing")
    runtime.settle()
    assert "missing is left behind" in caplog.text, "and it goes on after that"

"""A bound child runs its module as `python -m` would, and ends when its parent ends, however that happens."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

BOUND = [sys.executable, "-m", "strandline.local.bound_child"]

# A parent that starts a bound child which would run for ever, says its process id, and waits.
PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-m", "strandline.local.bound_child", "runs_for_ever"],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
print(child.stdout.readline().decode().strip(), flush=True)
sys.stdin.read()
"""

RUNS_FOR_EVER = """
import os, signal
print(os.getpid(), flush=True)
while True:
    signal.pause()
"""


def test_module_gets_its_arguments_and_its_status_is_ours(tmp_path: Path) -> None:
    (tmp_path / "shows_arguments.py").write_text("import sys; print(sys.argv[1:], __name__); sys.exit(7)")
    read_end, write_end = os.pipe()
    try:
        command = [*BOUND, "shows_arguments", "--data", "x y"]
        result = subprocess.run(command, cwd=tmp_path, stdin=read_end, capture_output=True, text=True)
    finally:
        os.close(read_end)
        os.close(write_end)
    assert result.stdout == "['--data', 'x y'] __main__\n"
    assert result.returncode == 7


def test_without_a_module_it_says_how_to_use_it() -> None:
    result = subprocess.run(BOUND, capture_output=True, text=True)
    assert result.returncode == 1
    assert "usage" in result.stderr


def test_child_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    (tmp_path / "runs_for_ever.py").write_text(RUNS_FOR_EVER)
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with parent:
        assert parent.stdout is not None
        child_pid = int(parent.stdout.readline())
        # A descriptor of the process becomes readable when it ends; a bare number could be another process's by then.
        child = os.pidfd_open(child_pid)
        try:
            # Not `select`: in a long run of tests a descriptor may have a number that it does not take.
            ended = select.poll()
            ended.register(child, select.POLLIN)
            assert not ended.poll(0), "the child ended before its parent"
            parent.send_signal(signal.SIGKILL)
            assert ended.poll(30_000), "the child outlived its parent"
        finally:
            os.close(child)

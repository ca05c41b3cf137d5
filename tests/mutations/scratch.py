"""A copy of the work tree in a directory of its own, to which a patch is applied; the tree itself is never touched."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.mutations.planted import BadPatch

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("src", "tests", "bench", "tools", "pyproject.toml")


@dataclass(frozen=True, slots=True)
class Run:
    """How one command ended in a copy. `status` is None if it was stopped after its time."""

    command: tuple[str, ...]
    status: int | None
    output: str


def files_of(root: Path) -> list[str]:
    """The files of the tree as it is now, committed or not, without what is ignored."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z", "--", *COPIED],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\0")
    return [name for name in listed if name and (root / name).is_file()]


def copy(to: Path, root: Path = ROOT) -> None:
    """Copies what a test run needs; a file that somebody removes meanwhile is left out."""
    for name in files_of(root):
        target = to / name
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copyfile(root / name, target)
        except FileNotFoundError:
            continue


def apply(patch: Path, tree: Path, *, check: bool = False) -> None:
    """Applies the patch, or with `check` only sees whether it would; BadPatch with git's words if not."""
    # Outside of any repository `git apply` takes the directory as it is; ours must not be found above the copy.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tree.parent)}
    options = ["--check"] if check else []
    done = subprocess.run(
        ["git", "apply", *options, str(patch)], cwd=tree, capture_output=True, text=True, check=False, env=environment
    )
    if done.returncode != 0:
        raise BadPatch(f"{patch.name} no longer applies; make it again with `git diff`: {done.stderr.strip()}")


def run(command: tuple[str, ...], tree: Path, *, timeout_s: float) -> Run:
    """Runs a catcher in the copy, with the copy's own sources, and stops it with all its children after its time."""
    environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}", "PYTHONHASHSEED": "0"}
    process = subprocess.Popen(
        [sys.executable, *command[1:]],
        cwd=tree,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        return Run(command, None, output)
    return Run(command, process.returncode, output)

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

from strandline import _twins

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("src", "tests", "bench", "tools", "pyproject.toml", "hatch_build.py")
IS_COMPILED = "import strandline; from strandline import _twins; assert _twins.is_compiled(), 'plain twins are used'"


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


def copy(to: Path, root: Path = ROOT, *, is_compiled: bool = False) -> None:
    """Copies what a test run needs; a file that somebody removes meanwhile is left out.

    With `is_compiled` also the extensions, behind the texts: one that is older than its text is not used.
    """
    extensions = [str(each.relative_to(root)) for each in root.glob("src/**/*.so")] if is_compiled else []
    for name in (*files_of(root), *extensions):
        target = to / name
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copyfile(root / name, target)
        except FileNotFoundError:
            continue


def link(to: Path, copied: Path, *, is_compiled: bool = False) -> None:
    """Makes a tree of the files of a copy, with the bytecode of what was run there.

    What is patched gets a file of its own from git; a compiler may write into the one that is there.
    """
    ignored = shutil.ignore_patterns(".pytest_cache", ".hypothesis")
    shutil.copytree(copied, to, ignore=ignored, copy_function=shutil.copy2 if is_compiled else os.link)


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


def forget_bytecode(files: tuple[str, ...], tree: Path) -> None:
    """Removes what Python may take for the bytecode of files that were patched within the second."""
    for each in map(Path, files):
        for cached in (tree / each.parent / "__pycache__").glob(f"{each.stem}.*.pyc"):
            cached.unlink()


def compile_changed(files: tuple[str, ...], tree: Path) -> Run | None:
    """Compiles what a patch changed; None if the copy runs on its extensions then, else the command that failed."""
    changed = compiled_modules(files)
    check = ("python", "-c", IS_COMPILED)
    commands = [("python", "hatch_build.py", *changed), check] if changed else [check]
    return next((done for each in commands if (done := run(each, tree, timeout_s=300)).status != 0), None)


def compiled_modules(files: tuple[str, ...]) -> list[str]:
    """Returns the modules among some files that have a compiled twin."""
    names = {
        f"src/{_twins.PACKAGE}/{name.replace('.', '/')}.py": f"{_twins.PACKAGE}.{name}" for name in _twins.COMPILED
    }
    return [names[each] for each in files if each in names]


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

"""An earlier commit of Strandline, so that a change is measured in turn with what was there before it."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from pathlib import Path

from bench.stage import CACHE

ROOT = Path(__file__).resolve().parent.parent


def source_of(commit: str) -> Path:
    """Return the `src` of a commit of this repository, compiled as an install would do: the hot loops, and bytecode.

    The tree that it is compared with gets its bytecode, too.
    """
    full = _git("rev-parse", "--verify", f"{commit}^{{commit}}").decode().strip()
    tree = CACHE / f"before-{full[:12]}"
    if not (tree / ".built").exists():
        tree.mkdir(parents=True, exist_ok=True)
        with tarfile.open(fileobj=io.BytesIO(_git("archive", full))) as archive:
            archive.extractall(tree, filter="data")
        subprocess.run([sys.executable, "hatch_build.py"], cwd=tree, check=True, stdout=subprocess.DEVNULL)
        (tree / ".built").touch()
    for each in (ROOT, tree):
        # Where Python may not write bytecode, each start would compile again what has none.
        subprocess.run([sys.executable, "-m", "compileall", "-q", "src"], cwd=each, check=True)
    return tree / "src"


def _git(*words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout

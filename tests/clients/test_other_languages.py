"""franz-go and KafkaJS hold a short conversation: programs of their own, built from the public registries by name.

Each makes a topic, writes with every codec it has, reads in a group, and goes through the admin calls it knows.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SMOKE = Path(__file__).resolve().parent / "smoke"
CACHE = Path(__file__).resolve().parent.parent.parent / ".cache" / "smoke"
BUILD_TIMEOUT_S = 280
RUN_TIMEOUT_S = 90


@pytest.mark.timeout(BUILD_TIMEOUT_S + 2 * RUN_TIMEOUT_S)
def test_franz_go(bootstrap: str, topic: str) -> None:
    home = fetched("franz-go", "go", ["go", "mod", "download"])
    run(["go", "build", "-o", "smoke", "."], home, BUILD_TIMEOUT_S)
    _converse([str(home / "smoke"), bootstrap, topic], home)


@pytest.mark.timeout(BUILD_TIMEOUT_S + 2 * RUN_TIMEOUT_S)
def test_kafkajs(bootstrap: str, topic: str) -> None:
    home = fetched("kafkajs", "npm", ["npm", "install", "--no-audit", "--no-fund", "--silent"])
    _converse(["node", str(home / "smoke.js"), bootstrap, topic], home)


def fetched(name: str, program: str, command: list[str]) -> Path:
    """The program's sources with the packages they need, in the cache; sources that changed have another place."""
    if shutil.which(program) is None:
        pytest.skip(f"`{program}` is not on PATH")
    sources = sorted(path for path in (SMOKE / name).iterdir() if path.is_file())
    fingerprint = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    home = CACHE / f"{name}-{fingerprint}"
    complete = home / "complete"
    if not complete.exists():
        home.mkdir(parents=True, exist_ok=True)
        for source in sources:
            shutil.copy(source, home)
        done = subprocess.run(command, cwd=home, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False)
        if done.returncode != 0:
            pytest.skip(f"the packages of {name} could not be fetched: {done.stdout}{done.stderr}"[:2000])
        complete.touch()
    return home


def run(command: list[str], home: Path, timeout_s: int) -> str:
    done = subprocess.run(command, cwd=home, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def _converse(command: list[str], home: Path) -> None:
    assert "SUCCESS" in run(command, home, RUN_TIMEOUT_S)

"""Java programs of tests and benchmarks, compiled once into the cache."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from bench.kafka_jars import CACHE, KafkaUnavailable


def compiled(sources: Path, class_path: str, *, name: str) -> Path:
    """Return the directory with the classes of all sources in a folder; sources that changed have another one."""
    if shutil.which("javac") is None:
        raise KafkaUnavailable("`javac` is not on PATH")
    files = sorted(sources.glob("*.java"))
    fingerprint = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
    classes = CACHE / f"{name}-{fingerprint}"
    if not classes.exists():
        fresh = Path(tempfile.mkdtemp(dir=CACHE))
        done = subprocess.run(
            ["javac", "-cp", class_path, "-d", str(fresh), *map(str, files)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        # Renamed when whole, so that an interrupted compilation is not mistaken for a finished one.
        fresh.rename(classes)
    return classes

"""A fresh file in the place of an old one, with its offsets, in one step.

A file and the offsets beside it are two files. So the swap is decided by a third one, `<file>.swap`, which has the
offsets of the fresh file and its name. Whatever opens the file next finishes a swap that was interrupted after that:

    {"size": 1024, "offsets": {"orders": {"0": 17}}, "fresh": "orders.txt.rebuild"}

Readers see the old file or the new one, because one is renamed over the other. The old one has a second name by then.
"""

from __future__ import annotations

import fcntl
import glob
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from strandline.connect.failures import ConnectFailed, RetriableFailure
from strandline.connect.sinks.own_topics import is_own_topic
from strandline.runtime.fault_points import fault_point

PARTITION: Final = "${partition}"
TOPIC: Final = "${topic}"
OLD: Final = ".old_"


def offsets_path(path: Path) -> Path:
    """Return the path of the offsets beside a file."""
    return path.with_name(f"{path.name}.offsets")


def store_text(path: Path, text: str) -> None:
    """Replace a small file in one step, and bring it to disk."""
    made = path.with_name(f"{path.name}.new")
    with open(made, "w") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    made.replace(path)
    _sync_directory(path.parent)


def lock(descriptor: int, path: Path) -> None:
    """Lock an open file against other tasks and rebuilds of this machine."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise RetriableFailure(f"{path} is in use by another task or worker") from None
    if not path.exists() or not os.path.samestat(os.fstat(descriptor), path.stat()):
        raise RetriableFailure(f"{path} was replaced while it was opened")


def swap_file(path: Path, fresh: Path) -> None:
    """Put a fresh file, which is closed, in the place of another; that is kept as `<file>.old_<n>`."""
    decided = json.loads(offsets_path(fresh).read_bytes()) | {"fresh": fresh.name}
    with _locked(path):
        _keep(path)
        fault_point("file-swap-kept")
        store_text(_decision(path), json.dumps(decided))
        fault_point("file-swap-decided")
        _finish(path)


def finish_swap(path: Path) -> None:
    """Finish a swap of a file that was interrupted, if there is one."""
    if _decision(path).exists():
        with _locked(path):
            _finish(path)


def files_of(pattern: str, properties: Mapping[str, str], *, suffix: str = "") -> list[Path]:
    """Return the files that a connector has made, whose names end with what a regular expression says."""
    names = glob.glob(glob.escape(pattern).replace(TOPIC, "*").replace(PARTITION, "*") + ("*" if suffix else ""))
    first, *others = re.escape(pattern).replace(re.escape(PARTITION), r"\d+").split(re.escape(TOPIC))
    expression = first + (f"(?P<topic>[^/]+){'(?P=topic)'.join(others)}" if others else "")
    found = [(name, match) for name in names if (match := re.fullmatch(expression + suffix, name))]
    return sorted(Path(name) for name, match in found if not others or is_own_topic(match["topic"], properties))


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise ConnectFailed(f"{path} cannot be written: {error.strerror}") from None
    try:
        lock(descriptor, path)
        yield
    finally:
        os.close(descriptor)


def _keep(path: Path) -> None:
    number = 1
    while (old := path.with_name(f"{path.name}{OLD}{number}")).exists():
        if old.samefile(path):
            # A swap before this one was interrupted here.
            return
        number += 1
    if offsets_path(path).exists():
        offsets_path(old).unlink(missing_ok=True)
        os.link(offsets_path(path), offsets_path(old))
    os.link(path, old)


def _finish(path: Path) -> None:
    decision = _decision(path)
    try:
        decided: dict[str, Any] = json.loads(decision.read_bytes())
    except FileNotFoundError:
        return
    fresh = path.with_name(decided.pop("fresh"))
    with suppress(FileNotFoundError):
        fresh.replace(path)
    fault_point("file-swap-replaced")
    store_text(offsets_path(path), json.dumps(decided))
    offsets_path(fresh).unlink(missing_ok=True)
    decision.unlink()
    _sync_directory(path.parent)


def _decision(path: Path) -> Path:
    return path.with_name(f"{path.name}.swap")


def _sync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)

"""What a batch reads and when it was planned, from the file that Spark writes to the checkpoint before it runs it.

    <checkpoint>/offsets/<batch>    v1, then a line of JSON with batchTimestampMs, then the offsets of each source

A batch that is run again keeps its file. Known gap: only checkpoints on a file system of the driver's machine are read;
for others the answer is None.
"""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import unquote, urlsplit


def planned_at_ms(checkpoint: str | None, batch_id: int) -> int | None:
    """By the clock of the driver that planned it; None if nothing can be read."""
    directory = local_path(checkpoint) if checkpoint else None
    if directory is None:
        return None
    try:
        lines = (directory / "offsets" / str(batch_id)).read_text().splitlines()
        planned = json.loads(lines[1])["batchTimestampMs"]
    except (OSError, ValueError, LookupError, TypeError):
        # Not there, or in a form of another Spark: then there is nothing to compare.
        return None
    return planned if isinstance(planned, int) and planned > 0 else None


def note_of(checkpoint: str | None, batch_id: int) -> bytes | None:
    """What is kept with a batch where it is committed, for the day on which the checkpoint is lost; None if unknown.

    The files as they are, of the batch and of the one before it: where it ended, and where it began.
    """
    directory = local_path(checkpoint) if checkpoint else None
    if directory is None:
        return None
    offsets = _read(directory / "offsets" / str(batch_id))
    before = _read(directory / "offsets" / str(batch_id - 1))
    return None if offsets is None else json.dumps({"offsets": offsets, "before": before}).encode()


def is_noted_plan(noted: bytes, checkpoint: str | None, batch_id: int) -> bool | None:
    """Whether the batch is still planned as it was when `noted` was kept with it; None if that cannot be told."""
    now = note_of(checkpoint, batch_id)
    try:
        then = json.loads(noted)
    except ValueError:
        return None
    if now is None or not isinstance(then, dict) or then.get("seal"):
        # A seal keeps the note of an earlier batch under a number that has no rows.
        return None
    return bool(then.get("offsets") == json.loads(now)["offsets"])


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except (OSError, ValueError):
        return None


def local_path(location: str) -> Path | None:
    parts = urlsplit(location)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return Path(unquote(parts.path))
    return None if parts.scheme else Path(location)

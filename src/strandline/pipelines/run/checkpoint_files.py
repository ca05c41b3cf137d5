"""A checkpoint that is made by hand, and what of it the log remembers.

    <checkpoint>/metadata              {"id": "<query id>"}, which is also the id of its sink
    <checkpoint>/offsets/<batch>       v1, a line of JSON about the batch, a line of offsets for each source
    <checkpoint>/commits/<batch>       v1, a line of JSON: the batch is written
    <checkpoint>.recovering            beside it while its state is being rebuilt: what is there is not all of it yet

Known gap: only checkpoints on a file system of this machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from strandline.spark.sink.checkpoint import local_path
from strandline.spark.source.offset_json import TOPIC_IDS

Offsets = dict[str, dict[str, int]]
"""{topic: {partition: offset}}"""

HALF_MADE: Final = ".recovering"
_NO_OFFSET: Final = "-"
"""What Spark writes for a source that has nothing yet."""


@dataclass(frozen=True)
class Note:
    """What the sink has kept with its last batch: the batch's file of offsets, and that of the batch before."""

    offsets: str
    before: str | None = None
    seal: str | None = None
    """Mark of the process that took the sink over."""
    wrote_nothing: bool = False
    """Whether no batch was ever committed when that was done: then the seal is the only decision there is."""

    @classmethod
    def parse(cls, content: bytes) -> Self | None:
        """Return the note; None if there is none, or another program wrote it."""
        try:
            told = json.loads(content)
        except ValueError:
            return None
        if not isinstance(told, dict) or not isinstance(told.get("offsets"), str):
            return None
        return cls(told["offsets"], told.get("before"), told.get("seal"), told.get("wrote_nothing", False))

    def to_bytes(self) -> bytes:
        told = {"before": self.before, "seal": self.seal, "wrote_nothing": self.wrote_nothing}
        return json.dumps({"offsets": self.offsets} | {name: value for name, value in told.items() if value}).encode()

    @property
    def is_empty(self) -> bool:
        """Return whether the batch was committed by a driver that could not read its checkpoint."""
        return not self.offsets

    def sealed_by(self, seal: str) -> Note:
        return replace(self, seal=seal)


def positions(text: str) -> Offsets | None:
    """Return where the sources of a batch are; None if one of them is none of ours.

    A topic that two sources of the query read counts from where the first of them is.
    """
    found: Offsets = {}
    for line in text.split("\n")[2:]:
        if line.strip() in ("", _NO_OFFSET):
            continue
        try:
            told = json.loads(line)
        except ValueError:
            return None
        if not isinstance(told, dict) or not all(isinstance(each, dict) for each in told.values()):
            return None
        for topic, partitions in told.items():
            if topic == TOPIC_IDS:
                continue
            known = found.setdefault(topic, {})
            for partition, offset in partitions.items():
                known[partition] = min(offset, known.get(partition, offset))
    return found


def topic_ids(text: str) -> dict[str, str]:
    """Return, by topic, the id of the topic that a batch has read; empty if that was not kept."""
    found: dict[str, str] = {}
    for line in text.split("\n")[2:]:
        with contextlib.suppress(ValueError, AttributeError):
            found |= json.loads(line).get(TOPIC_IDS, {})
    return found


def settings(text: str) -> dict[str, str]:
    """Return the settings that a batch ran with, which its state depends on."""
    with contextlib.suppress(ValueError, LookupError, AttributeError):
        told = json.loads(text.split("\n")[1])["conf"]
        return {str(name): str(value) for name, value in told.items()}
    return {}


class LocalCheckpoint:
    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @classmethod
    def of(cls, location: str) -> Self | None:
        """Return the checkpoint; None if it does not lie on this machine."""
        directory = local_path(location)
        return None if directory is None else cls(directory)

    # What is there

    @property
    def is_half_made(self) -> bool:
        return self._mark.exists()

    @property
    def last_batch(self) -> int:
        """Return the last batch that was planned; -1: none."""
        files = self.directory.glob("offsets/*")
        return max((int(each.name) for each in files if each.name.isdigit()), default=-1)

    # What becomes of it

    def put_aside(self) -> Path | None:
        """Give what is left of it another name, and return that; None if nothing is left."""
        if not self.directory.exists():
            return None
        number = 1
        while (aside := self.directory.with_name(f"{self.directory.name}.lost-{number}")).exists():
            number += 1
        self.directory.rename(aside)
        return aside

    def make(self, query_id: str, batch_id: int, note: Note) -> None:
        """Make the checkpoint of a query without state that has written batch `batch_id`: all of it or nothing."""
        new = self.directory.with_name(f"{self.directory.name}.new")
        shutil.rmtree(new, ignore_errors=True)
        # Spark looks at the batch before the last one, too, whenever there is one.
        for number, text in ((batch_id - 1, note.before or note.offsets), (batch_id, note.offsets)):
            if number >= 0:
                _write(new / "offsets" / str(number), text)
        _write(new / "commits" / str(batch_id), _COMMITTED)
        _write(new / "metadata", json.dumps({"id": query_id}))
        new.rename(self.directory)

    def begin(self, query_id: str) -> None:
        """Begin an empty checkpoint whose state is rebuilt; what another attempt left is removed."""
        self.directory.parent.mkdir(parents=True, exist_ok=True)
        _write(self._mark, query_id)
        shutil.rmtree(self.directory, ignore_errors=True)
        _write(self.directory / "metadata", json.dumps({"id": query_id}))

    def plan(self, text: str) -> int:
        """Have Spark run the next batch with these offsets and nothing else; its number."""
        batch_id = self.last_batch + 1
        _write(self.directory / "offsets" / str(batch_id), text)
        return batch_id

    def complete(self) -> None:
        self._mark.unlink(missing_ok=True)

    @property
    def _mark(self) -> Path:
        return self.directory.with_name(self.directory.name + HALF_MADE)


_COMMITTED: Final = 'v1\n{"nextBatchWatermarkMs":0}'


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def in_words(offsets: Mapping[str, Mapping[str, Any]]) -> str:
    """Return `orders 0:1200 1:1180`; of many partitions the sum."""
    found = []
    for topic, partitions in sorted(offsets.items()):
        ordered = sorted(partitions.items(), key=lambda each: int(each[0]))
        if len(ordered) <= _NAMED_MAX:
            found.append(f"{topic} " + " ".join(f"{partition}:{offset}" for partition, offset in ordered))
        else:
            found.append(f"{topic} (offset {sum(offset for _, offset in ordered):,} over {len(ordered)} partitions)")
    return ", ".join(found) or "the beginning"


_NAMED_MAX: Final = 4

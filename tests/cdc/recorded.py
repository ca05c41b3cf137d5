"""Files with what a live Debezium made of the profiles: compressed JSON lines, the first of which tells of what."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Final

from tests.cdc.profile import CdcProfile
from tests.cdc.running import CdcRecord

DIRECTORY: Final = Path(__file__).parent / "recordings"


@dataclass(frozen=True)
class RecordedWith:
    """What a recording was made with."""

    fingerprint: str
    debezium: str
    postgres: str


def file_of(profile: CdcProfile) -> Path:
    return DIRECTORY / f"{profile.name}.jsonl.xz"


def store(profile: CdcProfile, made_with: RecordedWith, records: Iterable[CdcRecord]) -> None:
    """Write a recording."""
    lines = [json.dumps(each, ensure_ascii=False, separators=(",", ":")) for each in (asdict(made_with), *records)]
    file_of(profile).write_bytes(lzma.compress("".join(f"{line}\n" for line in lines).encode(), preset=9))


@cache
def recording(profile: CdcProfile) -> tuple[RecordedWith, Sequence[CdcRecord]]:
    """Read a recording."""
    lines = lzma.decompress(file_of(profile).read_bytes()).decode().split("\n")
    first, *records = (json.loads(line) for line in lines if line)
    return RecordedWith(**first), records

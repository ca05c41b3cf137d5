"""What is known of the part of a segment's file that this process has not verified yet."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from strandline.log.disk import Disk
from strandline.log.leader_epochs import LeaderEpochs
from strandline.log.segment.digest import DIGEST_SUFFIX, Digest


class Stretch(NamedTuple):
    """A piece of a segment's file that was verified, or found damaged."""

    start: int
    end: int
    next_offset: int
    """The offset after its last batch; of one that is damaged, the offset where the damage begins."""
    fault: str | None = None


class SegmentOwner(Protocol):
    """The log of a segment, with what the verification must know of it."""

    leader_epochs: LeaderEpochs

    def end_of(self, base_offset: int) -> int: ...


class Unverified:
    """What is known of a segment below `verified_from`."""

    __slots__ = ("_digest", "owner", "stretches")

    def __init__(self, owner: SegmentOwner) -> None:
        self.owner = owner
        self._digest: Digest | Literal[False] | None = None
        self.stretches: tuple[Stretch, ...] = ()

    def digest(self, disk: Disk, segment_path: Path, size_bytes: int) -> Digest | None:
        """Return what holds offsets in their places where there are gaps; most segments need none, and have none."""
        if self._digest is None:
            path = segment_path.with_suffix(DIGEST_SUFFIX)
            content = disk.read_whole(path) if disk.exists(path) else b""
            self._digest = Digest.parse(content, size_bytes=size_bytes) or False
        return self._digest or None

    def at(self, position: int) -> Stretch | None:
        for stretch in self.stretches:
            if stretch.start <= position < stretch.end:
                return stretch
        return None

    def sound_before(self, position: int) -> Stretch | None:
        """Return the sound stretch that ends at `position`."""
        for stretch in self.stretches:
            if stretch.end == position and stretch.fault is None:
                return stretch
        return None

"""Compares a partition with its anchors: which offsets are proven, what was changed, and what cannot be said.

Between two anchors the chain is computed again from the batches as they are. After a difference the next anchor is
believed, so that each change is found once. Lines of the audit topic are compared as well: two that contradict each
other, and one that a later line names and that is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

from strandline.security.audit.chain import Anchor, chain_start, extended, points_of

CHANGED: Final = "changed"
MISSING: Final = "missing"
UNREADABLE: Final = "unreadable"
ANCHORS: Final = "anchors"
"""Kinds of problems. The last is about the lines of the audit topic."""

Read = Callable[[int], bytes]
"""Returns batches from the one on that holds an offset; raises BatchUnreadable."""


class BatchUnreadable(Exception):
    """A batch that the leader does not hand out, or that is gone."""


class ChainProblem(NamedTuple):
    """Offsets from `first` to before `end` of which something is wrong."""

    kind: str
    first: int
    end: int
    words: str


@dataclass
class ChainVerdict:
    """What a comparison found."""

    anchors: int = 0
    verified: list[tuple[int, int]] = field(default_factory=list)
    """Ranges of offsets that are as they were anchored, from the first to before the second."""
    unanchored: int = 0
    """Offsets at the end that no anchor covers yet."""
    problems: list[ChainProblem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What cannot be verified, and why."""

    def verify(self, first: int, end: int) -> None:
        """Note that a range is proven, which comes after those that were noted before."""
        if self.verified and self.verified[-1][1] == first:
            first = self.verified.pop()[0]
        self.verified.append((first, end))


def verify_chain(anchors: Sequence[Anchor], start: int, end: int, read: Read) -> ChainVerdict:
    """Compare a log that has the offsets from `start` to before `end` with its anchors, in the order of their lines."""
    verdict = ChainVerdict(anchors=len(anchors))
    chains = _chains(anchors)
    if not chains:
        return verdict
    for at, chain in enumerate(chains):
        limit = end
        if at + 1 < len(chains):
            limit = min(end, _compare_joint(verdict, chain[-1].offset, chains[at + 1][0].offset))
        elif chain[-1].offset > end:
            words = f"anchored, and the log ends at {end}"
            verdict.problems.append(ChainProblem(MISSING, end, chain[-1].offset, words))
        _compare_lines(verdict, chain)
        _compare_batches(verdict, [each for each in chain if each.offset <= limit], start, read)
    first = chains[0][0].offset
    if start < first:
        verdict.notes.append(f"offsets {start} to {first - 1} are before the first anchor")
    verdict.unanchored = max(0, end - max(start, chains[-1][-1].offset))
    return verdict


def _chains(anchors: Sequence[Anchor]) -> list[list[Anchor]]:
    """Return the anchors by chain, each in the order of offsets: a leader that was deposed may have written late."""
    chains: list[list[Anchor]] = []
    for anchor in anchors:
        if anchor.begins or not chains:
            chains.append([])
        chains[-1].append(anchor)
    for chain in chains:
        chain.sort(key=lambda anchor: anchor.offset)
    return chains


def _compare_joint(verdict: ChainVerdict, ended: int, begins: int) -> int:
    """Compare where a chain ended with where the next begins. Return how far the first can be compared."""
    if begins > ended:
        verdict.notes.append(f"offsets {ended} to {begins - 1} were deleted before they were anchored")
    elif begins < ended:
        words = f"anchored, and then the chain began again at {begins}: records were lost"
        verdict.problems.append(ChainProblem(MISSING, begins, ended, words))
    else:
        verdict.notes.append(f"the chain begins again at offset {begins}")
    return begins


def _compare_lines(verdict: ChainVerdict, chain: Sequence[Anchor]) -> None:
    values: dict[int, bytes] = {}
    for anchor in chain:
        is_begun = not anchor.begins or anchor.value == chain_start(*anchor.place)
        if values.setdefault(anchor.offset, anchor.value) != anchor.value or not is_begun:
            words = "anchors contradict each other"
            verdict.problems.append(ChainProblem(ANCHORS, anchor.offset, anchor.offset + 1, words))
        # Older lines than the first one are deleted by the retention of the audit topic.
        elif not anchor.begins and anchor.after > chain[0].offset and anchor.after not in values:
            words = "a later anchor names one here, which is not on the audit topic"
            verdict.problems.append(ChainProblem(ANCHORS, anchor.after, anchor.after + 1, words))


def _compare_batches(verdict: ChainVerdict, chain: Sequence[Anchor], start: int, read: Read) -> None:
    for before, anchor in pairwise(chain):
        if anchor.offset == before.offset or anchor.offset <= start:
            continue
        if before.offset < start:
            words = f"offsets {start} to {anchor.offset - 1} cannot be verified: batches before them are deleted"
            verdict.notes.append(words)
            continue
        problem = _compare(before, anchor, read)
        if problem is None:
            verdict.verify(before.offset, anchor.offset)
        else:
            if problem.first > before.offset:
                verdict.verify(before.offset, problem.first)
            verdict.problems.append(problem)
            if problem.end < anchor.offset:
                words = f"offsets {problem.end} to {anchor.offset - 1} cannot be verified: they come behind a change"
                verdict.notes.append(words)


def _compare(before: Anchor, anchor: Anchor, read: Read) -> ChainProblem | None:
    offset, value = before.offset, before.value
    sound = offset
    points = points_of(anchor.points)
    words = "not what was anchored"
    while offset < anchor.offset:
        try:
            batches = extended(value, read(offset), anchor.offset)
        except BatchUnreadable as error:
            return ChainProblem(UNREADABLE, offset, anchor.offset, str(error))
        if not batches:
            break
        for next_offset, value in batches:
            point = points.get(next_offset)
            if point is not None and not value.hex().startswith(point):
                return ChainProblem(CHANGED, sound, next_offset, words)
            if point is not None:
                sound = next_offset
        offset = batches[-1].next_offset
    if offset == anchor.offset and value == anchor.value:
        return None
    return ChainProblem(CHANGED, sound, anchor.offset, words)

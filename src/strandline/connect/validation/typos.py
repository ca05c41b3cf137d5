"""Settings that no part of a connector knows, and that look like a slip of the pen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

SHORT_MAX: Final = 6
"""Names of at most so many characters may differ by one, longer ones by two."""
CHECKED_MIN: Final = 4
"""Shorter names are too close to each other to tell."""


def typos(given: Mapping[str, object], known: Iterable[str], free: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield each unknown setting that is close to a known one which is not given, with that one.

    Names that begin with one of `free` are let through, as are those that resemble nothing: a connector may read more
    than it declares.
    """
    known = set(known)
    missing = sorted(known - set(given))
    for name in given:
        if name in known or name.startswith(free):
            continue
        close = [(distance, each) for each in missing if (distance := _distance(name, each)) <= _allowed(name, each)]
        if close:
            yield name, min(close)[1]


def _allowed(name: str, other: str) -> int:
    shorter = min(len(name), len(other))
    if shorter < CHECKED_MIN or _without_digits(name) == _without_digits(other):
        # `address1` and `address2` are names of a kind, not slips.
        return -1
    return 1 if shorter <= SHORT_MAX else 2


def _without_digits(name: str) -> str:
    return "".join(each for each in name if not each.isdigit())


def _distance(one: str, other: str) -> int:
    """Return how many characters differ: added, missing, wrong, or swapped with their neighbour."""
    if abs(len(one) - len(other)) > 2:
        return 3
    before: list[int] = []
    row = list(range(len(other) + 1))
    for at, char in enumerate(one, 1):
        before, last, row = row, before, [at]
        for to, wanted in enumerate(other, 1):
            found = min(before[to] + 1, row[to - 1] + 1, before[to - 1] + (char != wanted))
            if at > 1 and to > 1 and char == other[to - 2] and one[at - 2] == wanted:
                found = min(found, last[to - 2] + 1)
            row.append(found)
    return row[-1]

"""Entries found by the resources that their patterns cover, in a few look-ups however many there are.

Literal names and prefixes are in a dictionary each. A name is looked up with every length that some prefix has, so a
miss costs as many look-ups as there are different lengths.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from strandline.security.acl.kinds import WILDCARD, PatternType

E = TypeVar("E", bound=Hashable)


class _OfType(Generic[E]):
    """The entries of one resource type; each name has its entries, and how often each was added."""

    __slots__ = ("lengths", "literals", "prefixes")

    def __init__(self) -> None:
        self.literals: dict[str, dict[E, int]] = {}
        self.prefixes: dict[str, dict[E, int]] = {}
        self.lengths: dict[int, int] = {}
        """How many prefixes have this length."""


class ResourceIndex(Generic[E]):
    def __init__(self) -> None:
        self._types: dict[int, _OfType[E]] = {}

    def add(self, resource_type: int, pattern_type: int, name: str, entry: E) -> None:
        of_type = self._types.get(resource_type)
        if of_type is None:
            of_type = self._types[resource_type] = _OfType()
        is_prefix = pattern_type == PatternType.PREFIXED
        by_name = of_type.prefixes if is_prefix else of_type.literals
        entries = by_name.get(name)
        if entries is not None:
            entries[entry] = entries.get(entry, 0) + 1
            return
        by_name[name] = {entry: 1}
        if is_prefix:
            of_type.lengths[len(name)] = of_type.lengths.get(len(name), 0) + 1

    def remove(self, resource_type: int, pattern_type: int, name: str, entry: E) -> None:
        """Remove what one call of `add` added."""
        of_type = self._types[resource_type]
        is_prefix = pattern_type == PatternType.PREFIXED
        by_name = of_type.prefixes if is_prefix else of_type.literals
        entries = by_name[name]
        entries[entry] -= 1
        if entries[entry] == 0:
            del entries[entry]
        if not entries:
            del by_name[name]
            if is_prefix:
                of_type.lengths[len(name)] -= 1
                if of_type.lengths[len(name)] == 0:
                    del of_type.lengths[len(name)]

    def covering(self, resource_type: int, name: str) -> Iterator[E]:
        """Yield the entries whose patterns cover the name: its own first, then long prefixes, then those of `*`."""
        of_type = self._types.get(resource_type)
        if of_type is None:
            return
        yield from of_type.literals.get(name, ())
        yield from self.of_prefixes(resource_type, name)
        if name != WILDCARD:
            yield from of_type.literals.get(WILDCARD, ())

    def of_prefixes(self, resource_type: int, name: str) -> Iterator[E]:
        """Yield the entries of prefixes that the name begins with, those of the longest first."""
        of_type = self._types.get(resource_type)
        if of_type is None:
            return
        for length in sorted(of_type.lengths, reverse=True):
            if length <= len(name):
                yield from of_type.prefixes.get(name[:length], ())

    def of_literal(self, resource_type: int, name: str) -> Iterator[E]:
        """Yield the entries whose literal name this is."""
        of_type = self._types.get(resource_type)
        if of_type is not None:
            yield from of_type.literals.get(name, ())

    def of_type(self, resource_type: int) -> Iterator[E]:
        """Yield all entries of a resource type."""
        of_type = self._types.get(resource_type)
        if of_type is not None:
            for by_name in (of_type.literals, of_type.prefixes):
                for entries in by_name.values():
                    yield from entries

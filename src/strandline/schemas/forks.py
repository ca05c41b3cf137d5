"""Mappings that begin as others and go their own way, so that a decision can build upon what is not written yet.

A fork copies a value when it is first looked at, and nothing else. What is done to a fork does not reach its base.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, MutableMapping
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Fork(MutableMapping[K, V]):
    """A mapping over a base. `copy` makes a value of its own of one that the base has."""

    def __init__(self, base: MutableMapping[K, V], copy: Callable[[V], V]) -> None:
        self._base = base
        self._copy = copy
        self._own: dict[K, V] = {}
        self._gone: set[K] = set()

    def __getitem__(self, key: K) -> V:
        if key in self._own:
            return self._own[key]
        if key in self._gone:
            raise KeyError(key)
        found = self._own[key] = self._copy(self._base[key])
        return found

    def __setitem__(self, key: K, value: V) -> None:
        self._own[key] = value

    def __delitem__(self, key: K) -> None:
        if key not in self:
            raise KeyError(key)
        self._own.pop(key, None)
        self._gone.add(key)

    def __contains__(self, key: object) -> bool:
        return key in self._own or (key not in self._gone and key in self._base)

    def __iter__(self) -> Iterator[K]:
        for key in self._base:
            if key in self:
                yield key
        for key in self._own:
            if key not in self._base:
                yield key

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def items(self) -> ItemsView[K, V]:
        return _Items(self)

    def _peek(self, key: K) -> V:
        return self._own[key] if key in self._own else self._base[key]


class _Items(ItemsView[K, V]):
    """Keys and values to look at, without a copy of each."""

    _mapping: Fork[K, V]

    def __iter__(self) -> Iterator[tuple[K, V]]:
        for key in self._mapping:
            yield key, self._mapping._peek(key)

"""What a repair is, and the one that every JSON document has: take a part of the old schema back."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from strandline.schemas.types import Incompatibility


@dataclass(frozen=True)
class Reason:
    """An incompatibility, and whether it is the new schema that can not read (backward) or the old one."""

    incompatibility: Incompatibility
    is_backward: bool


@dataclass(frozen=True)
class Repair:
    """A changed schema, and what was changed, in a sentence."""

    text: str
    step: str


def find(document: Any, path: list[str]) -> Any:
    """Return the part of a document at a path, through local references; LookupError if there is none."""
    for segment in path:
        document = _followed(document, segment)
    return document


def _followed(document: Any, segment: str) -> Any:
    if isinstance(document, list):
        return document[int(segment)] if segment.isdecimal() else _missing(segment)
    if not isinstance(document, dict):
        raise LookupError(segment)
    return document[segment]


def _missing(segment: str) -> Any:
    raise LookupError(segment)


def restored(old: Any, new: Any, path: list[str]) -> Iterator[tuple[Any, list[str]]]:
    """Yield copies of `new` with the part at `path` as in `old`, then with the part around it, but not the whole."""
    for length in range(len(path), 0, -1):
        *outer, last = path[:length]
        changed = copy.deepcopy(new)
        try:
            holder = find(changed, outer)
            before = find(old, outer)
            if isinstance(holder, dict) and isinstance(before, dict):
                if last in before:
                    holder[last] = copy.deepcopy(before[last])
                elif last in holder:
                    del holder[last]
                else:
                    continue
            elif isinstance(holder, list) and isinstance(before, list):
                holder[int(last)] = copy.deepcopy(before[int(last)])
            else:
                continue
        except (LookupError, ValueError):
            continue
        if changed != new:
            yield changed, path[:length]

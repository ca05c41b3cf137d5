"""Subscriptions by pattern (KIP-848): RE2 syntax, matched against whole topic names on the coordinator.

RE2 runs in time linear in the name, whatever the pattern, so no member can keep the coordinator busy with one. Its
library is loaded with the first pattern, not before: most nodes never see one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from strandline.codec.messages.consumer_group_regular_expression_value import ConsumerGroupRegularExpressionValue
from strandline.coordinators.events import Record
from strandline.coordinators.topics import Topics

MayDescribe = Callable[[str], bool]
"""Whether a member may know of a topic. A pattern only ever matches what its member may see."""


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """The topics that a pattern matched when it was last looked."""

    topics: tuple[str, ...]
    """In order."""
    version: int
    """Of the metadata it was resolved against; Strandline counts the resolutions of the pattern."""
    timestamp_ms: int


def check(pattern: str) -> None:
    """RequestError INVALID_REGULAR_EXPRESSION with Kafka's sentence if RE2 does not take the pattern."""
    raise NotImplementedError


def resolve(
    patterns: Iterable[str],
    topics: Topics,
    known: Mapping[str, ResolvedRegex],
    *,
    now_ms: int,
    may_describe: MayDescribe | None = None,
) -> dict[str, ResolvedRegex]:
    """What is new: each pattern whose topics are not those that are known. Patterns were checked before."""
    raise NotImplementedError


def regex_record(group_id: str, pattern: str, resolved: ResolvedRegex) -> Record:
    raise NotImplementedError


def regex_tombstone(group_id: str, pattern: str) -> Record:
    raise NotImplementedError


def from_value(value: ConsumerGroupRegularExpressionValue) -> ResolvedRegex:
    raise NotImplementedError

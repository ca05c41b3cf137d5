"""Subscriptions by pattern (KIP-848): RE2 syntax, matched against whole topic names on the coordinator.

RE2 runs in time linear in the name, whatever the pattern, so no member can keep the coordinator busy for ever with
one; the limits below keep it from being busy for long. Its library is loaded with the first pattern: most nodes never
see one.

Where the library is missing (it has no wheel for the platform), every pattern is refused with a sentence that says so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from strandline.codec.internal_records import encode_coordinator_key, encode_coordinator_value
from strandline.codec.messages.consumer_group_regular_expression_key import ConsumerGroupRegularExpressionKey
from strandline.codec.messages.consumer_group_regular_expression_value import ConsumerGroupRegularExpressionValue
from strandline.coordinators.groups.shard_terms import CoordinatorRecord
from strandline.coordinators.groups.topics import Topics
from strandline.errors import ErrorCode, RequestError

PATTERN_BYTES_MAX: Final = 4_096
"""Of one pattern. Kafka's record holds 32,767; but classes such as `\\pL` take a tenth of a millisecond to compile."""
PATTERN_INSTRUCTIONS_MAX: Final = 2_000
"""Of a compiled pattern, about one per character or repeat. The worst of this size that were found take half a
millisecond for the longest name; `(?:a?b?){900}`, twice as large, takes thirty times as long."""
COMPILED_PATTERNS_MAX: Final = 64
"""Patterns that are kept compiled; others are compiled each time."""
PATTERN_MEMORY_BYTES_MAX: Final = 2 * 1024 * 1024
"""What RE2 may use for one compiled pattern."""

MayDescribe = Callable[[str], bool]
"""Whether a member may know of a topic. A pattern only ever matches what its member may see."""


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """The topics that a pattern matched when it was last looked."""

    topics: tuple[str, ...]
    """In order."""
    version: int
    """Grows with every change of `topics`. Kafka writes the version of its metadata here."""
    timestamp_ms: int


def check(pattern: str) -> None:
    """RequestError INVALID_REGULAR_EXPRESSION with Kafka's sentence if RE2 does not take the pattern."""
    _compiled(pattern)


def matcher(pattern: str) -> Callable[[str], bool]:
    """Return whether the whole of a name matches; RequestError as `check` for what RE2 does not take."""
    compiled = _compiled(pattern)
    return lambda name: bool(compiled.Match(name))


def resolve(
    patterns: Iterable[str],
    topics: Topics,
    known: Mapping[str, ResolvedRegex],
    *,
    now_ms: int,
    changed: Collection[str] | None = None,
    may_describe: MayDescribe | None = None,
) -> dict[str, ResolvedRegex]:
    """What is new: each pattern whose topics are not the known ones. A pattern that `check` refuses matches nothing.

    With `changed`, the names of topics that came or went since all known patterns were resolved, only those are looked
    at. Without it every topic is, as it has to be after a load: who knows what happened meanwhile.
    """
    resolved = {}
    for pattern in patterns:
        before = known.get(pattern)
        if before is None or changed is None:
            looked_at: Iterable[str] = topics.names()
            names = set()
        else:
            looked_at = [name for name in changed if topics.named(name) is not None]
            names = set(before.topics).difference(changed)
        names.update(name for name in _matches(pattern, looked_at) if may_describe is None or may_describe(name))
        matched = tuple(sorted(names))
        if before is None or matched != before.topics:
            resolved[pattern] = ResolvedRegex(matched, 1 if before is None else before.version + 1, now_ms)
    return resolved


def regex_record(group_id: str, pattern: str, resolved: ResolvedRegex) -> CoordinatorRecord:
    value = ConsumerGroupRegularExpressionValue(
        topics=list(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
    )
    return CoordinatorRecord(_key(group_id, pattern), encode_coordinator_value(value, 0))


def regex_tombstone(group_id: str, pattern: str) -> CoordinatorRecord:
    return CoordinatorRecord(_key(group_id, pattern), None)


def from_value(value: ConsumerGroupRegularExpressionValue) -> ResolvedRegex:
    return ResolvedRegex(tuple(sorted(value.topics)), value.version, value.timestamp)


def _matches(pattern: str, names: Iterable[str]) -> Iterable[str]:
    try:
        matcher = _compiled(pattern)
    except RequestError:
        # An Apache Kafka broker has taken the pattern, whose limits are wider, and left it in the log.
        return ()
    return [name for name in names if matcher.Match(name)]


def _key(group_id: str, pattern: str) -> bytes:
    return encode_coordinator_key(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern))


@lru_cache(maxsize=COMPILED_PATTERNS_MAX)
def _compiled(pattern: str) -> Any:
    """A `re2.Set` of the one pattern: of all that RE2 offers to Python, a set matches with the fewest steps between."""
    try:
        import re2
    except ImportError as error:
        raise _invalid(pattern, "this node has no RE2 library (google-re2)") from error
    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_MEMORY_BYTES_MAX
    # Captures are not needed, and tracking ten thousand of them takes RE2 minutes.
    options.never_capture = True
    # Topic names are ASCII. So is nearly every pattern, and then a character class need not know all of Unicode.
    is_narrow = pattern.isascii() and "\\x{" not in pattern
    options.encoding = re2.Options.Encoding.LATIN1 if is_narrow else re2.Options.Encoding.UTF8
    encoded = pattern.encode("utf-8", "replace")
    if len(encoded) > PATTERN_BYTES_MAX:
        raise _invalid(pattern[:80] + "...", f"it is longer than {PATTERN_BYTES_MAX} bytes")
    try:
        size = re2.compile(encoded, options).programsize
        if size > PATTERN_INSTRUCTIONS_MAX:
            raise _invalid(
                pattern, f"it is too large, {size} instructions where {PATTERN_INSTRUCTIONS_MAX} are allowed"
            )
        matcher = re2.Set.FullMatchSet(options)
        matcher.Add(encoded)
        matcher.Compile()
    except re2.error as error:
        raise _invalid(pattern, _reason_of(error)) from error
    return matcher


def _reason_of(error: Exception) -> str:
    reason = error.args[0] if error.args else ""
    return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)


def _invalid(pattern: str, reason: str) -> RequestError:
    return RequestError(
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {reason}.",
    )

"""Logs that are used as something else, found from what a running cluster shows.

Each sign has a weight: 2 if it shows the pattern by itself, 1 if it only supports it. A pattern is found from weight 2
on, and suspected below. What could not be measured is named, because a pattern that was not found may still be there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

FOUND_WEIGHT: Final = 2
RESCANS_MIN: Final = 3
SEEKS_BACK_MIN: Final = 3
SINGLE_COMMITS_MIN: Final = 20
SINGLE_SHARE_MIN: Final = 0.8
SINGLE_INTERVAL_MS: Final = 1_000
"""Commits of single records that are further apart come from a slow topic, not from a habit."""
READ_FACTOR_MIN: Final = 10.0
CORRELATED_SHARE_MIN: Final = 0.5
CORRELATED_RECORDS_MIN: Final = 3
PAIRED_WITHIN_MS: Final = 10_000
REPLY_TOPICS_MIN: Final = 3
LAG_RECORDS_MIN: Final = 10

CORRELATION_HEADERS: Final = ("correlationid", "kafkacorrelationid", "jmscorrelationid", "requestid", "replyid")
REPLY_HEADERS: Final = ("replyto", "replytopic", "kafkareplytopic", "kafkareplypartition", "responsetopic")
_REPLY_WORD: Final = re.compile(r"(^|[._-])(repl(y|ies)|responses?|results?|answers?)([._-]|$)", re.IGNORECASE)
_RETRY_WORD: Final = re.compile(r"(^|[._-])(retry|retries|redeliver|delay(ed)?)([._-]?\w+)?$", re.IGNORECASE)
_RANDOM: Final = re.compile(r"[._-](?=[0-9a-f]*[0-9])[0-9a-f]{6,}(-[0-9a-f]{4,}){0,4}$|[._-][0-9]{2,}$", re.IGNORECASE)


@dataclass(frozen=True)
class ObservedCommits:
    """What the last commits of a group to one topic show."""

    commits: int
    rescans: int
    """Returns of a position to the start of the log."""
    seeks_back: int
    """Other moves back."""
    singles: int
    """Commits that moved a position by one record, soon after the one before."""
    steps: int
    """Commits that moved a position forward."""


@dataclass(frozen=True)
class ObservedGroup:
    """A group that has positions in the topic, or members that subscribe to it."""

    group_id: str
    group_type: str = "classic"
    members: int | None = None
    idle_members: int = 0
    """Members of a stable group that own no partition."""
    lags: dict[int, int] = field(default_factory=dict)
    lag_ms: int | None = None
    stalled: tuple[int, ...] = ()
    """Partitions whose position does not move, though records are unread and a member holds them."""
    commits: ObservedCommits | None = None


@dataclass(frozen=True)
class SampledRecord:
    """What is looked at of one record: never its value."""

    timestamp_ms: int
    headers: dict[str, str]
    """Names in lower case without separators, with the values of those that correlate."""
    has_key: bool

    @property
    def correlation(self) -> str | None:
        return next((self.headers[name] for name in CORRELATION_HEADERS if name in self.headers), None)

    @property
    def reply_topic(self) -> str | None:
        return next((self.headers[name] for name in REPLY_HEADERS if name in self.headers), None)


@dataclass(frozen=True)
class ObservedTopic:
    """A topic as the cluster shows it. None means that it could not be measured."""

    name: str
    partitions: int
    cleanup_policy: str
    retention_ms: int | None
    retention_bytes: int | None
    groups: tuple[ObservedGroup, ...] | None = ()
    sample: tuple[SampledRecord, ...] | None = None
    bytes_in: float | None = None
    bytes_out: float | None = None
    size_bytes: float | None = None
    is_tiered: bool = False
    is_asked: bool = True
    """Whether it is judged, or only the possible partner of one that is."""


@dataclass(frozen=True)
class Sign:
    """Something that was seen."""

    text: str
    weight: int


@dataclass(frozen=True)
class AntiPattern:
    """A pattern with the signs that were seen, what could not be measured, and what to do instead."""

    pattern: str
    topic: str
    signs: tuple[Sign, ...]
    unknown: tuple[str, ...]
    advice: str

    @property
    def is_found(self) -> bool:
        return sum(sign.weight for sign in self.signs) >= FOUND_WEIGHT

    def as_json(self) -> dict[str, Any]:
        return {
            "anti_pattern": self.pattern,
            "topic": self.topic,
            "found": self.is_found,
            "signs": [{"text": sign.text, "weight": sign.weight} for sign in self.signs],
            "unknown": list(self.unknown),
            "advice": self.advice,
        }


DATABASE: Final = "log as a database"
RPC: Final = "log as RPC"
QUEUE: Final = "log as a task queue on classic groups"


def find_patterns(topics: Iterable[ObservedTopic], all_names: Iterable[str]) -> list[AntiPattern]:
    """Return each pattern for which at least one sign was seen. `all_names` are all topics of the cluster."""
    observed, names = list(topics), frozenset(all_names)
    by_name = {each.name: each for each in observed}
    found = []
    for topic in (each for each in observed if each.is_asked):
        for pattern in (_database(topic), _rpc(topic, by_name, names), _queue(topic, names)):
            if pattern.signs:
                found.append(pattern)
    return found


def _commits_of(topic: ObservedTopic) -> Iterable[tuple[ObservedGroup, ObservedCommits]]:
    for group in topic.groups or ():
        if group.commits is not None:
            yield group, group.commits


def _commits_unknown(topic: ObservedTopic) -> list[str]:
    if topic.groups is None:
        return ["groups and their commits (they could not be read)"]
    if any(group.commits is None for group in topic.groups):
        return ["commits of groups (__consumer_offsets could not be read)"]
    return []


def _database(topic: ObservedTopic) -> AntiPattern:
    signs = []
    for group, commits in _commits_of(topic):
        if commits.rescans >= RESCANS_MIN:
            kind = "a compacted topic" if "compact" in topic.cleanup_policy else "the topic"
            signs.append(
                Sign(
                    f"group {group.group_id} went back to the start {commits.rescans} times within its last "
                    f"{commits.commits} commits: it scans {kind} again and again",
                    2,
                )
            )
    forever = topic.retention_ms == -1 and topic.retention_bytes in (None, -1)
    if "delete" in topic.cleanup_policy and "compact" not in topic.cleanup_policy and forever and not topic.is_tiered:
        text = "cleanup.policy=delete without a limit of time or size, and no tier: every record is kept for good"
        signs.append(Sign(text, 1))
    unknown = _commits_unknown(topic)
    if topic.bytes_in is None or topic.bytes_out is None:
        unknown.append("reads without a group (give --metrics URL of every node)")
    elif topic.groups is not None and (whole := max(topic.bytes_in, topic.size_bytes or 0)):
        # A reader that catches up reads the whole topic once, so what it holds counts besides what came in.
        factor = topic.bytes_out / whole
        if factor >= READ_FACTOR_MIN and factor >= 3 * (len(topic.groups) + 1):
            text = (
                f"it was read {factor:,.0f} times over since the nodes started, and has "
                f"{len(topic.groups)} group{'' if len(topic.groups) == 1 else 's'}: readers scan it whole"
            )
            signs.append(Sign(text, 2))
    advice = (
        "keep the topic as the source, and serve look-ups from a view (`strandline view create`) or a database that it "
        "feeds; what must stay for good: cleanup.policy=compact, or a tier"
    )
    return AntiPattern(DATABASE, topic.name, tuple(signs), tuple(unknown), advice)


def _rpc(topic: ObservedTopic, by_name: dict[str, ObservedTopic], names: frozenset[str]) -> AntiPattern:
    signs = []
    unknown = ["what readers drop after they fetched it (only they know)"]
    if topic.sample is None:
        unknown.insert(0, "headers of records (they could not be read)")
    else:
        signs += _correlation_signs(topic, topic.sample, by_name)
    base = _RANDOM.sub("", topic.name)
    if base != topic.name and _REPLY_WORD.search(base):
        alike = sorted(name for name in names if _RANDOM.sub("", name) == base and name != base)
        if len(alike) >= REPLY_TOPICS_MIN:
            signs.append(Sign(f"{len(alike)} reply topics with names made up for one caller each: {base}...", 2))
    advice = (
        "call the service directly (HTTP, gRPC) where a caller waits for the answer, and write what was decided to a "
        "topic; long jobs: one request topic, and results in a store under the correlation id"
    )
    return AntiPattern(RPC, topic.name, tuple(signs), tuple(unknown), advice)


def _correlation_signs(
    topic: ObservedTopic, sample: tuple[SampledRecord, ...], by_name: dict[str, ObservedTopic]
) -> list[Sign]:
    correlated = [each for each in sample if each.correlation is not None]
    replying = [each for each in sample if each.reply_topic is not None]
    enough = max(CORRELATED_RECORDS_MIN, CORRELATED_SHARE_MIN * len(sample))
    signs = []
    if len(replying) >= enough:
        targets = sorted({str(each.reply_topic) for each in replying})
        where = targets[0] if len(targets) == 1 else f"{len(targets)} topics"
        signs.append(Sign(f"{len(replying)} of its last {len(sample)} records ask for a reply on {where}", 2))
    if len(correlated) < enough:
        return signs
    pair = _paired(topic, correlated, by_name)
    if pair is not None:
        signs.append(pair)
    else:
        signs.append(Sign(f"{len(correlated)} of its last {len(sample)} records carry a correlation id", 1))
    return signs


def _paired(topic: ObservedTopic, correlated: list[SampledRecord], by_name: dict[str, ObservedTopic]) -> Sign | None:
    """Return the sign of ids that are on two topics.

    Ids are also handed on to trace events, which many groups read. So it is strong only for a topic with a name of
    replies, or with one reader at most.
    """
    asked = {each.correlation: each.timestamp_ms for each in correlated}
    for other in by_name.values():
        if other.name == topic.name:
            continue
        gaps = [
            abs(each.timestamp_ms - asked[each.correlation]) for each in other.sample or () if each.correlation in asked
        ]
        near = [gap for gap in gaps if gap <= PAIRED_WITHIN_MS]
        if len(near) >= CORRELATED_RECORDS_MIN:
            text = f"{len(near)} correlation ids are also on {other.name}, within {max(near) / 1000:.1f} s"
            replies = bool(_REPLY_WORD.search(topic.name) or _REPLY_WORD.search(other.name))
            alone = topic.groups is not None and len(topic.groups) <= 1
            words = f"{text}: request and reply" if replies or alone else text
            return Sign(words, 2 if replies or alone else 1)
    return None


def _queue(topic: ObservedTopic, names: frozenset[str]) -> AntiPattern:
    signs = []
    for group in topic.groups or ():
        if group.idle_members and group.members is not None and group.members > topic.partitions:
            text = (
                f"group {group.group_id} has {group.members} members for {topic.partitions} "
                f"partition{'' if topic.partitions == 1 else 's'}: {group.idle_members} idle"
            )
            signs.append(Sign(text, 2))
        if (blocked := _blocked(topic, group)) is not None:
            signs.append(blocked)
    for group, commits in _commits_of(topic):
        if commits.singles >= SINGLE_COMMITS_MIN and commits.singles >= SINGLE_SHARE_MIN * commits.steps:
            text = f"group {group.group_id} commits single records: {commits.singles} of its last {commits.steps}"
            signs.append(Sign(text, 1))
        if commits.seeks_back >= SEEKS_BACK_MIN:
            text = f"group {group.group_id} moved its position back {commits.seeks_back} times: it tries again by hand"
            signs.append(Sign(text, 1))
    retries = sorted(name for name in names if name != topic.name and _is_retry_of(name, topic.name))
    if retries:
        shown = ", ".join(retries[:3]) + (f" and {len(retries) - 3} more" if len(retries) > 3 else "")
        signs.append(Sign(f"retry topics made by hand: {shown}", 2 if len(retries) > 1 else 1))
    advice = (
        "a share group (KIP-932) acknowledges and retries each record, and has as many workers as needed; with order "
        "for each key: a consumer that processes keys in parallel. For members alone: more partitions"
    )
    return AntiPattern(QUEUE, topic.name, tuple(signs), tuple(_commits_unknown(topic)), advice)


def _blocked(topic: ObservedTopic, group: ObservedGroup) -> Sign | None:
    """Return the sign of one slow record: one partition is far behind while all others are read."""
    behind = [partition for partition, lag in group.lags.items() if lag >= LAG_RECORDS_MIN]
    if topic.partitions < 2 or len(group.lags) < topic.partitions or len(behind) != 1 or not group.members:
        return None
    if any(lag for partition, lag in group.lags.items() if partition != behind[0]):
        return None
    held = behind[0] in group.stalled
    words = ", and its position does not move" if held else ""
    text = f"group {group.group_id} is behind in partition {behind[0]} alone ({group.lags[behind[0]]:,} records){words}"
    return Sign(text, 2 if held else 1)


def _is_retry_of(name: str, topic: str) -> bool:
    """Return whether a name is the topic's with a word for retries behind it, as `orders-retry-5m`."""
    if _RETRY_WORD.search(topic):
        return False
    if name.startswith(topic):
        return bool(_RETRY_WORD.search(name[len(topic) :]))
    before = name.removesuffix(topic)
    return before != name and before[-1] in "._-" and bool(_RETRY_WORD.fullmatch(before[:-1]))

"""Would a plan break a reader that is connected now? Asked of the groups of the cluster, before anything changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from strandline.cli.advise.tails import read_tails, tail_ranges
from strandline.cli.common.failures import CommandFailed
from strandline.cli.common.plain_words import count
from strandline.cli.config.access import known_topics
from strandline.cli.contract.acl_contract import AclChange
from strandline.cli.contract.kinds import Access, ContractStep
from strandline.cli.contract.schema_contract import SubjectChange
from strandline.cli.contract.topic_contract import TopicChange
from strandline.cli.group.lag_reading import GroupLag, LagReading, PositionLag
from strandline.cli.topic.topics import described, log_sizes
from strandline.lag.verdict import span
from strandline.security.acl.access_rule import Acl
from strandline.security.acl.kinds import WILDCARD, Operation, PatternType, Permission, ResourceType

KEYS_SAMPLED = 20
_KEEPING = {"retention.ms", "retention.bytes", "cleanup.policy"}
"""Settings that decide how long records are kept."""


@dataclass(frozen=True)
class Breakage:
    """A reader that a step would break."""

    step: str
    group: str
    text: str

    def as_json(self) -> dict[str, Any]:
        return {"breaks": self.text, "step": self.step, "group": self.group}


def find_breakages(access: Access, steps: Sequence[ContractStep]) -> list[Breakage]:
    """Return what the steps would break; reading groups costs something only if a step can break one."""
    rights = any(isinstance(step.change, AclChange) for step in steps)
    topics = [step.change.name for step in steps if isinstance(step.change, TopicChange) and _may_break(step.change)]
    topics += _read_by_schema(access, steps)
    if not rights and not topics:
        return []
    reading = LagReading(access.cluster, topics=() if rights else topics)
    try:
        groups = reading.look()
    finally:
        reading.close()
    found: list[Breakage] = []
    for step in steps:
        if isinstance(step.change, TopicChange):
            found += _of_topic(access, step, step.change, groups)
        elif isinstance(step.change, AclChange):
            found += rights_breakages(step, step.change, groups)
        elif isinstance(step.change, SubjectChange):
            found += schema_breakages(step, step.change, groups)
    return found


def _may_break(change: TopicChange) -> bool:
    if change.before is None:
        return False
    return change.after is None or bool(change.partitions_added or _KEEPING & {*change.set_, *change.unset})


def _readers(groups: Iterable[GroupLag], topic: str) -> Iterator[tuple[GroupLag, list[PositionLag]]]:
    for group in groups:
        positions = [each for each in group.positions if each.topic == topic]
        if positions:
            yield group, positions


def _is_connected(group: GroupLag) -> bool:
    return bool(group.group.members)


def _of_topic(access: Access, step: ContractStep, change: TopicChange, groups: list[GroupLag]) -> Iterator[Breakage]:
    if change.before is None:
        return
    if change.after is None:
        for group, _ in _readers(groups, change.name):
            if _is_connected(group):
                members = count(len(group.group.members or ()), "member")
                text = f"group {group.group_id} reads {change.name} now ({members}), and it would be deleted"
                yield Breakage(step.name, group.group_id, text)
        return
    yield from _of_retention(access, step, change, groups)
    if change.partitions_added and _is_keyed(access, change):
        for group, _ in _readers(groups, change.name):
            if _is_connected(group):
                text = (
                    f"group {group.group_id} reads {change.name} by key: with {change.partitions_added} more "
                    f"partition{'' if change.partitions_added == 1 else 's'} keys move, and their order breaks"
                )
                yield Breakage(step.name, group.group_id, text)


def _of_retention(
    access: Access, step: ContractStep, change: TopicChange, groups: list[GroupLag]
) -> Iterator[Breakage]:
    if not _KEEPING & {*change.set_, *change.unset}:
        return
    if "delete" not in (change.after_change("cleanup.policy") or "delete"):
        return
    limit_ms = _limit(change.after_change("retention.ms"))
    limit_bytes = _limit(change.after_change("retention.bytes"))
    sizes = log_sizes(access.cluster, described(access.cluster, access.admin, change.name)) if limit_bytes else None
    for group, positions in _readers(groups, change.name):
        for position in positions:
            seen = position.figures
            if seen is None or not seen.lag:
                continue
            if limit_ms is not None and seen.lag_s is None:
                text = f"group {group.group_id} has records unread in {position.name}, and their age could not be read"
                yield Breakage(step.name, group.group_id, text)
            elif limit_ms is not None and seen.lag_s is not None and seen.lag_s * 1000 > limit_ms:
                text = (
                    f"group {group.group_id} is {span(seen.lag_s)} behind in {position.name}, and a retention of "
                    f"{span(limit_ms / 1000)} deletes what it has not read"
                )
                yield Breakage(step.name, group.group_id, text)
            elif limit_bytes is not None and sizes is not None:
                held = sizes.get(position.partition, 0)
                unread = held * seen.lag / max(1, seen.end - seen.log_start)
                if unread > limit_bytes:
                    text = (
                        f"group {group.group_id} has about {unread:,.0f} bytes unread in {position.name}, and "
                        f"retention.bytes={limit_bytes:,} deletes a part of them"
                    )
                    yield Breakage(step.name, group.group_id, text)


def _limit(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


def _is_keyed(access: Access, change: TopicChange) -> bool:
    """Return whether records have keys: the contract says so, or the newest ones do."""
    assert change.before is not None, "only a topic that exists gets more partitions"
    if change.after is not None and change.after.key is not None:
        return True
    if "compact" in (change.before.in_force.get("cleanup.policy") or ""):
        return True
    places = [(change.name, partition) for partition in range(change.before.partitions)]
    try:
        ranges = tail_ranges(access.cluster, access.admin, places, KEYS_SAMPLED)
        return any(message.key() is not None for message in read_tails(access.cluster, ranges))
    except CommandFailed:
        # What cannot be read may be keyed.
        return True


# Schemas


def _read_by_schema(access: Access, steps: Sequence[ContractStep]) -> list[str]:
    """Return the topics whose readers could not read what a new schema writes."""
    named = {
        step.change.wanted.topic
        for step in steps
        if isinstance(step.change, SubjectChange) and step.change.unreadable and step.change.wanted.topic is not None
    }
    return sorted(named & set(known_topics(access.cluster, access.admin))) if named else []


def schema_breakages(step: ContractStep, change: SubjectChange, groups: Sequence[GroupLag]) -> Iterator[Breakage]:
    """Yield connected groups that read the topic of a subject, if the new schema writes what the last one cannot read.

    Which version a member reads with, no cluster says. One that is connected now was started with what there was, so
    the last version is the newest that it can have. A reader that asks the registry for each schema does not break.
    """
    if not change.unreadable or change.wanted.topic is None or change.before.latest is None:
        return
    version = change.before.latest["version"]
    for group, _ in _readers(groups, change.wanted.topic):
        if _is_connected(group):
            text = (
                f"group {group.group_id} reads {change.wanted.topic} now, and with version {version} of "
                f"{change.wanted.subject} it cannot read what the new schema writes: {change.unreadable[0]}"
            )
            yield Breakage(step.name, group.group_id, text)


# Rights


def rights_breakages(step: ContractStep, change: AclChange, groups: Sequence[GroupLag]) -> Iterator[Breakage]:
    """Yield connected groups that a principal reads as, and that lose a right they need (pure).

    A cluster does not say which principal a member is. That a principal reads as a group is taken from its rights: the
    ones that go here name the group, or the topic that the group reads.
    """
    lost = [acl for acl in change.removed if acl.permission == Permission.ALLOW]
    lost += [acl for acl in change.added if acl.permission == Permission.DENY]
    for group in groups:
        if not _is_connected(group):
            continue
        for acl in lost:
            if acl.operation not in (Operation.READ, Operation.ALL):
                continue
            topics = {position.topic for position in group.positions}
            if acl.resource_type == ResourceType.GROUP and _covers(acl, group.group_id):
                members = count(len(group.group.members or ()), "member")
                text = f"{change.principal} may no longer read as group {group.group_id}, which has {members} now"
                yield Breakage(step.name, group.group_id, text)
            elif acl.resource_type == ResourceType.TOPIC and (named := [each for each in topics if _covers(acl, each)]):
                text = (
                    f"{change.principal} may no longer read {min(named)}, which group {group.group_id} reads now; "
                    "whether its members are that principal, the cluster does not say"
                )
                yield Breakage(step.name, group.group_id, text)


def _covers(acl: Acl, name: str) -> bool:
    if acl.pattern_type == PatternType.PREFIXED:
        return name.startswith(acl.name)
    return acl.name in (WILDCARD, name)

"""What `doctor` says about the six rules of a well-run estate, as far as a cluster shows them.

They are notes, because whether a topic needs an owner or an objective is for its people to say. Only an objective that
is missed is a warning. Rule 5, replicas and acks, is what `doctor` says of each topic anyway.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from strandline.cli.common.client import Cluster
from strandline.cli.common.failures import CommandFailed
from strandline.cli.common.plain_words import count
from strandline.cli.doctor.findings import Finding, note, ok, warning
from strandline.cli.group.lag_reading import GroupLag, LagReading
from strandline.lag.objectives import LagObjective, objectives_of
from strandline.lag.verdict import span

NAMES_SHOWN = 3
OWNER = "strandline.owner"
OBJECTIVES = "strandline.lag.objectives"


def estate_findings(cluster: Cluster, metadata: Any, configs: dict[str, dict[str, str | None]]) -> Iterator[Finding]:
    """Yield a finding for each rule. `configs` are the settings in force of each topic that is no internal one."""
    if not configs:
        return
    yield from _contracts(configs)
    yield note("rule-2", "outboxes and idempotent consumers cannot be seen from outside: ask the owners")
    reading = LagReading(cluster, topics=())
    try:
        groups = [each for each in reading.look() if each.positions]
    except CommandFailed as failure:
        yield note("rule-3", f"lag cannot be looked at: {failure.message}")
        return
    finally:
        reading.close()
    yield from _objectives(groups, configs)
    yield from _state(groups, configs)
    yield from _room(groups, metadata)


def _contracts(configs: dict[str, dict[str, str | None]]) -> Iterator[Finding]:
    if not any(OWNER in config for config in configs.values()):
        yield note("rule-1", "this cluster keeps no owners of topics: contract files have them")
        return
    without = [name for name, config in configs.items() if not config.get(OWNER)]
    if without:
        advice = "write contracts (`strandline contract export` begins one), or `strandline config set --topic NAME "
        advice += f"{OWNER}=TEAM`"
        yield note("rule-1", f"{_listed(without, 'topic')} without an owner", advice)
    else:
        yield ok("rule-1", f"{count(len(configs), 'topic')}: each has an owner")


def _objectives(groups: list[GroupLag], configs: dict[str, dict[str, str | None]]) -> Iterator[Finding]:
    known: dict[tuple[str, str], LagObjective] = {
        (topic, each.group): each
        for topic, config in configs.items()
        for each in objectives_of(config.get(OBJECTIVES) or "")
    }
    missed, without = [], []
    for group in groups:
        for topic in sorted({position.topic for position in group.positions if position.topic in configs}):
            objective = known.get((topic, group.group_id))
            if objective is None:
                without.append(f"{group.group_id} in {topic}")
            else:
                missed += _missed(group, topic, objective)
    for words in missed:
        yield warning("rule-3", words, "`strandline group lag GROUP` says why, and where it goes")
    if without:
        advice = "write a lag objective into the contract of the topic, and alert on it"
        yield note("rule-3", f"{_listed(without, 'group')} without a lag objective", advice)
    elif groups and not missed:
        yield ok("rule-3", f"{count(len(groups), 'group')}: each is within its lag objective")


def _missed(group: GroupLag, topic: str, objective: LagObjective) -> list[str]:
    beyond = [
        position
        for position in group.positions
        if position.topic == topic and position.figures is not None and objective.is_met(position.figures) is False
    ]
    if not beyond:
        return []
    limit = f"{objective.limit_records:,} records" if objective.limit_ms is None else span(objective.limit_ms / 1000)
    return [f"group {group.group_id} misses its objective in {beyond[0].name}: at most {limit} behind"]


def _state(groups: list[GroupLag], configs: dict[str, dict[str, str | None]]) -> Iterator[Finding]:
    """Yield groups that have lost records, because what they derive cannot be complete."""
    lost = [
        f"{group.group_id} in {position.name}"
        for group in groups
        for position in group.positions
        if position.figures is not None and position.figures.lost and position.topic in configs
    ]
    if lost:
        advice = "rebuild what they derive from the log, and keep records longer (retention.ms)"
        yield warning("rule-4", f"{_listed(lost, 'group')} lost records before they were read", advice)
    else:
        yield note("rule-4", "no group lost records; whether views can be rebuilt, only trying shows")


def _room(groups: list[GroupLag], metadata: Any) -> Iterator[Finding]:
    tight = []
    for group in groups:
        members = len(group.group.members or ())
        topics = {position.topic for position in group.positions if not position.topic.startswith("__")}
        partitions = sum(len(metadata.topics[topic].partitions) for topic in topics if topic in metadata.topics)
        if members > 1 and members >= partitions:
            tight.append(f"{group.group_id} ({members} members, {count(partitions, 'partition')})")
    if tight:
        advice = (
            "`strandline advise --topic NAME` computes a number; partitions of keyed topics cannot be added cleanly"
        )
        yield note("rule-6", f"{_listed(tight, 'group')} without room to grow", advice)
    else:
        yield ok("rule-6", "every group has fewer members than partitions")


def _listed(names: list[str], noun: str) -> str:
    shown = ", ".join(names[:NAMES_SHOWN])
    return shown if len(names) <= NAMES_SHOWN else f"{shown} and {count(len(names) - NAMES_SHOWN, f'more {noun}')}"

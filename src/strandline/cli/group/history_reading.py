"""What the nodes of a cluster remember of the rebalances of a group, and how it is said in words.

Each node remembers what it saw while it coordinated the group, in memory and within limits. So every node is asked,
and what they saw is put in order. Apache Kafka remembers nothing of the kind.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from strandline.cli.common.client import Cluster
from strandline.cli.common.conversation import Conversation, error_name, is_spoken, not_spoken
from strandline.cli.common.failures import CommandFailed
from strandline.cli.common.partition_places import brokers_of
from strandline.cli.common.plain_words import count
from strandline.cli.group.state import Place, partitions_words, places_json
from strandline.codec.messages.group_history_request import GroupHistoryRequest
from strandline.codec.messages.group_history_response import GroupHistoryResponse
from strandline.coordinators.groups.history.sentences import VERBS

MEMBERS_SHOWN = 20
NOTES_SHOWN = 20


class Seen(NamedTuple):
    """One rebalance, and the node that saw it with its clock."""

    node_id: int
    now_ms: int
    rebalance: Any


def read_group_history(
    cluster: Cluster, group_id: str, last: int, tell: Callable[[str], object]
) -> tuple[list[Seen], int]:
    """Return what all nodes saw, the oldest first, and since when some node looks."""
    if not is_spoken(cluster):
        raise not_spoken("the history cannot be asked for")
    seen: list[Seen] = []
    began: list[int] = []
    refusals = []
    for broker in brokers_of(cluster):
        try:
            with Conversation(broker.host, broker.port, cluster.timeout_s, cluster.security) as conversation:
                answer = conversation.ask(
                    GroupHistoryRequest(group_id=group_id, rebalances_max=last), GroupHistoryResponse
                )
        except CommandFailed as failure:
            tell(f"node {broker.id} could not be asked, so what it saw is missing: {failure.message}")
            continue
        if answer is None:
            refusals.append(broker.id)
            continue
        if answer.error_code:
            raise CommandFailed(f"node {answer.node_id} does not tell: {error_name(answer.error_code)}")
        began.append(answer.since_ms)
        seen.extend(Seen(answer.node_id, answer.now_ms, each) for each in answer.rebalances)
    if refusals and not began:
        raise CommandFailed(
            "this cluster does not remember why its groups rebalanced: only Strandline does",
            hint="Apache Kafka writes it to the log of the group's coordinator; `strandline group describe` names that",
        )
    return sorted(seen, key=lambda each: each.rebalance.began_ms)[-last:], min(began, default=0)


def history_lines(seen: Seen, *, every_member: bool) -> list[str]:
    rebalance = seen.rebalance
    lines = [f"{moment_of(rebalance.began_ms)}  {headline(seen)}"]
    notes = rebalance.notes if every_member else rebalance.notes[:NOTES_SHOWN]
    lines += [f"  {_clock(note.at_ms)}  {note_words(note)}" for note in notes]
    hidden = len(rebalance.notes) - len(notes) + rebalance.notes_left_out
    if hidden:
        lines.append(f"  ... and {count(hidden, 'more happening')}")
    lines += _change_lines(rebalance, every_member=every_member)
    flappers = {_name(note): note.flaps for note in rebalance.notes if note.flaps}
    lines += [
        f"  {name} flaps: {flaps} times within minutes it joined and was soon gone; see its own log and "
        "max.poll.interval.ms"
        for name, flaps in flappers.items()
    ]
    return lines


def headline(seen: Seen) -> str:
    rebalance = seen.rebalance
    if not rebalance.is_rebalance:
        return "no rebalance was needed"
    if rebalance.ended_ms < 0:
        return f"a rebalance has been under way for {_span(seen.now_ms - rebalance.began_ms)}"
    if rebalance.epoch < 0:
        return f"node {seen.node_id} stopped coordinating the group in the midst of a rebalance"
    word = "generation" if rebalance.group_type == "classic" else "epoch"
    return (
        f"rebalanced to {word} {rebalance.epoch} with {count(rebalance.members, 'member')} "
        f"in {_span(rebalance.ended_ms - rebalance.began_ms)}"
    )


def note_words(note: Any) -> str:
    verb = VERBS.get(note.what, note.what)
    words = verb if note.member_id is None else f"{_name(note)}{_host(note)} {verb}"
    return f"{words}: {note.reason}" if note.reason else words


def _change_lines(rebalance: Any, *, every_member: bool) -> list[str]:
    changes = [each for each in rebalance.changes if not each.is_known or each.lost or each.gained]
    shown = changes if every_member else changes[:MEMBERS_SHOWN]
    names = distinct_names(shown)
    width = max((len(name) for name in names), default=0)
    lines = [f"  {name:{width}}  {change_words(change)}" for name, change in zip(names, shown, strict=True)]
    hidden = len(changes) - len(shown) + rebalance.changes_left_out
    if hidden:
        lines.append(f"  ... and {count(hidden, 'more member')}{'' if every_member else ': see --all'}")
    if not changes and rebalance.is_rebalance and rebalance.epoch >= 0:
        lines.append("  no partition moved")
    return lines


def change_words(change: Any) -> str:
    if not change.is_known:
        return "has another assignment, which cannot be read"
    words = [f"keeps {change.kept}"] if change.kept else []
    words += [f"loses {partitions_words(_places(change.lost))}"] if change.lost else []
    words += [f"gets {partitions_words(_places(change.gained))}"] if change.gained else []
    return ", ".join(words)


def distinct_names(changes: Iterable[Any]) -> list[str]:
    """Clients often share a client id; then the member id tells them apart."""
    changes = list(changes)
    names = [_name(change) for change in changes]
    return [name if names.count(name) == 1 else change.member_id for name, change in zip(names, changes, strict=True)]


def history_object(group_id: str, seen: Seen) -> dict[str, Any]:
    rebalance = seen.rebalance
    has_ended = rebalance.ended_ms >= 0
    return {
        "group": group_id,
        "node": seen.node_id,
        "rebalance": rebalance.is_rebalance,
        "type": rebalance.group_type,
        "began_ms": rebalance.began_ms,
        "ended_ms": rebalance.ended_ms if has_ended else None,
        "took_ms": rebalance.ended_ms - rebalance.began_ms if has_ended else None,
        "epoch": rebalance.epoch if rebalance.epoch >= 0 else None,
        "members": rebalance.members if rebalance.epoch >= 0 else None,
        "why": [_note_object(note) for note in rebalance.notes],
        "why_left_out": rebalance.notes_left_out,
        "changes": [
            _who_object(change)
            | {
                "known": change.is_known,
                "lost": places_json(_places(change.lost)),
                "gained": places_json(_places(change.gained)),
                "kept": change.kept,
            }
            for change in rebalance.changes
        ],
        "changes_left_out": rebalance.changes_left_out,
    }


def _note_object(note: Any) -> dict[str, Any]:
    return {
        "at_ms": note.at_ms,
        "what": note.what,
        **_who_object(note),
        "reason": note.reason or None,
        "flaps": note.flaps,
    }


def _who_object(who: Any) -> dict[str, Any]:
    return {"member": who.member_id, "instance": who.instance_id, "client": who.client_id, "host": who.client_host}


def _places(topics: Iterable[Any]) -> list[Place]:
    return [(each.topic, partition) for each in topics for partition in each.partitions]


def _name(who: Any) -> str:
    return str(who.instance_id or who.client_id or who.member_id)


def _host(who: Any) -> str:
    return f" ({who.client_host.removeprefix('/')})" if who.client_host else ""


def moment_of(at_ms: int) -> str:
    return f"{time.strftime('%Y-%m-%d', time.localtime(at_ms / 1000))} {_clock(at_ms)}"


def _clock(at_ms: int) -> str:
    return f"{time.strftime('%H:%M:%S', time.localtime(at_ms / 1000))}.{at_ms % 1000:03d}"


def _span(span_ms: int) -> str:
    return f"{max(0, span_ms)} ms" if span_ms < 1000 else f"{span_ms / 1000:.1f} s"

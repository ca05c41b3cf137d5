"""What happens to groups, in words: a sentence for people, and the same as fields for machines."""

from __future__ import annotations

from strandline.coordinators.groups.events import Tell
from strandline.coordinators.groups.history.assignment_diff import MemberRef
from strandline.coordinators.groups.history.group_history import Happening, Rebalance, RebalanceNote

NOTES_LOGGED_MAX = 10
"""Of one rebalance, in its sentence; `group history` has them all."""

VERBS = {
    Happening.JOINED: "joined",
    Happening.RETURNED: "came back to its seat",
    Happening.LEFT: "left",
    Happening.AWAY: "went away for a while",
    Happening.REMOVED: "was removed",
    Happening.TIMED_OUT: "timed out",
    Happening.LATE: "was too late",
    Happening.FENCED: "was fenced",
    Happening.ASKED: "asked for a rebalance",
    Happening.SUBSCRIBED: "changed its subscription",
    Happening.TOPICS: "topics changed",
    Happening.CONVERTED: "the group changed its protocol",
    Happening.ASSIGNED: "partitions were reassigned",
}
TOLD_AT_ONCE = frozenset({Happening.TIMED_OUT, Happening.LATE, Happening.FENCED, Happening.REMOVED})
"""Happenings that are logged at once, while the rebalance is still in progress."""


def note_words(note: RebalanceNote) -> str:
    words = VERBS[note.what] if note.who is None else f"{short_name(note.who)} {VERBS[note.what]}"
    if note.reason:
        words += f" ({note.reason})"
    if note.flaps:
        words += f", as {note.flaps} times within minutes: it flaps"
    return words


def short_name(who: MemberRef) -> str:
    """Return the configured name; the member id if there is none."""
    return who.instance_id or who.client_id or who.member_id


def note_line(group_id: str, note: RebalanceNote) -> Tell | None:
    """Return the log line of a happening that is logged before its rebalance has ended."""
    if note.who is None or (note.what not in TOLD_AT_ONCE and not note.flaps):
        return None
    return Tell(
        f"group {group_id}: {note_words(note)}",
        {
            "group": group_id,
            "event": note.what.value,
            "member": note.who.member_id,
            "instance": note.who.instance_id,
            "client": note.who.client_id,
            "host": note.who.client_host,
            "reason": note.reason,
            "flaps": note.flaps,
        },
    )


def rebalance_line(rebalance: Rebalance) -> Tell:
    took_ms = rebalance.ended_ms - rebalance.began_ms
    causes = [note_words(note) for note in rebalance.notes[:NOTES_LOGGED_MAX]]
    more = len(rebalance.notes) - len(causes) + rebalance.notes_left_out
    why = "; ".join(causes) + (f"; and {more} more" if more else "")
    word = "generation" if rebalance.group_type == "classic" else "epoch"
    members = f"{rebalance.members} member{'' if rebalance.members == 1 else 's'}"
    return Tell(
        f"group {rebalance.group_id}: rebalanced to {word} {rebalance.epoch} with {members} in {took_ms} ms: {why}",
        {
            "group": rebalance.group_id,
            "event": "rebalanced",
            "type": rebalance.group_type,
            "epoch": rebalance.epoch,
            "members": rebalance.members,
            "took_ms": took_ms,
            "why": why,
            "changed": len(rebalance.changes) + rebalance.changes_left_out,
        },
    )

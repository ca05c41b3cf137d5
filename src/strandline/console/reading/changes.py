"""What changed in a cluster between two looks, in sentences (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from strandline.cli.cluster.state import ClusterState
from strandline.cli.common.plain_words import count

NAMES_SHOWN = 3


def changes_between(before: ClusterState, after: ClusterState) -> Iterator[str]:
    """Yield a sentence for each kind of change."""
    were_up = {broker.node_id for broker in before.live_brokers()}
    are_up = {broker.node_id for broker in after.live_brokers()}
    for node_id in sorted(were_up - are_up):
        yield f"Broker {node_id} is gone"
    for node_id in sorted(are_up - were_up):
        yield f"Broker {node_id} is there"
    if before.quorum is not None and after.quorum is not None and before.quorum.leader_id != after.quorum.leader_id:
        yield f"Node {after.quorum.leader_id} leads the quorum now; before it was {before.quorum.leader_id}"
    if before.partitions is after.partitions:
        return
    yield from _topics(before, after)
    leaders = {(each.topic, each.index): each.leader for each in before.partitions}
    moved = [
        each.name
        for each in after.partitions
        if leaders.get((each.topic, each.index), each.leader) != each.leader and each.leader is not None
    ]
    if moved:
        yield f"{count(len(moved), 'partition')} got another leader: {_listed(moved)}"
    lacked, lack = len(before.under_replicated()), len(after.under_replicated())
    if lack > lacked:
        yield f"{count(lack - lacked, 'partition')} lost a replica in sync"
    elif lack < lacked:
        yield f"{count(lacked - lack, 'partition')} got a replica back in sync"


def _topics(before: ClusterState, after: ClusterState) -> Iterator[str]:
    were, are = before.topics, after.topics
    if made := sorted(are - were):
        yield f"{count(len(made), 'topic')} created: {_listed(made)}"
    if gone := sorted(were - are):
        yield f"{count(len(gone), 'topic')} deleted: {_listed(gone)}"


def _listed(names: list[str]) -> str:
    more = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {more:,} more" if more > 0 else "")

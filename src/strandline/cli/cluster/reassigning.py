"""Carries out moves of replicas: asks for them, and follows them until the new replicas are in sync."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from strandline.cli.cluster.reading import conversation_with, read_reassignments
from strandline.cli.cluster.reassignment_plan import Move
from strandline.cli.cluster.state import ClusterState, Reassignment
from strandline.cli.common.client import Cluster
from strandline.cli.common.conversation import Conversation, error_name
from strandline.cli.common.failures import CommandFailed, Interrupted
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import count, size
from strandline.cli.common.progress import Progress
from strandline.codec.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from strandline.codec.messages.alter_partition_reassignments_response import AlterPartitionReassignmentsResponse

PARTITIONS_PER_REQUEST = 500
LOOK_EVERY_S = 0.5
_NO_REASSIGNMENT = 85

Wanted = tuple[str, int, tuple[int, ...] | None]
"""Topic, partition and its replicas to be; None takes a move back."""


def plan_lines(state: ClusterState, moves: Sequence[Move]) -> list[str]:
    """Return the plan in words: each move, and how much is to be copied."""
    sizes: dict[tuple[str, int], int] = {}
    for broker in state.brokers:
        for place, size_bytes in broker.disk.sizes.items() if broker.disk is not None else ():
            sizes[place] = max(size_bytes, sizes.get(place, 0))
    total = sum(sizes.get((move.topic, move.index), 0) * len(move.added) for move in moves)
    return [f"{count(len(moves), 'partition')} to move, {size(total)} to copy", *(f"  {move}" for move in moves)]


def carry_out(output: Output, cluster: Cluster, moves: Sequence[Move], *, wait: bool) -> None:
    """Ask for the moves, and by default wait until they are done."""
    send(cluster, [(move.topic, move.index, move.after) for move in moves])
    if wait:
        follow(cluster, {(move.topic, move.index) for move in moves})
    for move in moves:
        if output.as_json:
            output.json_line(
                {
                    "topic": move.topic,
                    "partition": move.index,
                    "before": list(move.before),
                    "after": list(move.after),
                    "done": wait,
                }
            )
    if not output.as_json:
        done = "moved" if wait else "being moved; `strandline cluster reassign` shows how far it is"
        output.line(f"{count(len(moves), 'partition')} {done}")


def send(cluster: Cluster, wanted: Sequence[Wanted]) -> None:
    """Ask the controller; CommandFailed with the first refusal, after all were asked for."""
    refused: list[str] = []
    with conversation_with(cluster) as conversation:
        for begin in range(0, len(wanted), PARTITIONS_PER_REQUEST):
            refused += _send_some(conversation, wanted[begin : begin + PARTITIONS_PER_REQUEST], cluster.timeout_s)
    if refused:
        more = f"; and {len(refused) - 1:,} more" if len(refused) > 1 else ""
        raise CommandFailed(f"refused: {refused[0]}{more}", hint="`strandline cluster status` shows how things are now")


def _send_some(conversation: Conversation, wanted: Sequence[Wanted], timeout_s: float) -> Iterable[str]:
    topics: dict[str, ReassignableTopic] = {}
    for topic, index, replicas in wanted:
        named = topics.setdefault(topic, ReassignableTopic(name=topic))
        chosen = None if replicas is None else list(replicas)
        named.partitions.append(ReassignablePartition(partition_index=index, replicas=chosen))
    request = AlterPartitionReassignmentsRequest(timeout_ms=int(timeout_s * 1000), topics=list(topics.values()))
    answer = conversation.ask(request, AlterPartitionReassignmentsResponse)
    if answer is None:
        raise CommandFailed("this cluster does not offer AlterPartitionReassignments")
    if answer.error_code:
        raise CommandFailed(f"refused: {answer.error_message or ''} ({error_name(answer.error_code)})")
    for topic_answer in answer.responses:
        for each in topic_answer.partitions:
            # What was done before we could take it back needs no taking back.
            if each.error_code not in (0, _NO_REASSIGNMENT):
                name = f"{topic_answer.name}-{each.partition_index}"
                yield f"{name}: {each.error_message or 'no reason given'} ({error_name(each.error_code)})"


def follow(cluster: Cluster, places: set[tuple[str, int]]) -> None:
    """Wait until none of them is being moved any more. A cluster that does not answer for `--timeout` ends the wait."""
    heard_at = time.monotonic()
    try:
        with Progress("moving", total=len(places), unit="partitions") as progress:
            while True:
                try:
                    moving = ongoing(cluster)
                    heard_at = time.monotonic()
                except CommandFailed:
                    # The broker that was asked may be the one that leaves, and the controller may change meanwhile.
                    if time.monotonic() - heard_at > cluster.timeout_s:
                        raise
                    time.sleep(LOOK_EVERY_S)
                    continue
                left = [each for each in moving if (each.topic, each.index) in places]
                progress.reached(len(places) - len(left))
                if not left:
                    return
                time.sleep(LOOK_EVERY_S)
    except Interrupted:
        raise CommandFailed(
            "no longer waiting; the cluster goes on with it",
            hint="`strandline cluster reassign` shows how far it is, `--cancel` takes it back",
        ) from None


def ongoing(cluster: Cluster) -> tuple[Reassignment, ...]:
    with conversation_with(cluster) as conversation:
        found = read_reassignments(conversation)
    if found is None:
        raise CommandFailed("the cluster does not say what is being moved")
    return found

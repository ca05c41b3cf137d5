"""Which replicas go where: plans to drain a broker, for another number of replicas, and for a file of moves (pure)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from strandline.cli.cluster.state import BrokerState, ClusterState, PartitionState
from strandline.cli.common.failures import CommandFailed, NotFound, UsageFailed
from strandline.cli.common.plain_words import count


@dataclass(frozen=True)
class Move:
    """The replicas of one partition, before and after; the first of them is the preferred leader."""

    topic: str
    index: int
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def added(self) -> tuple[int, ...]:
        return tuple(replica for replica in self.after if replica not in self.before)

    def __str__(self) -> str:
        return f"{self.name}: {','.join(map(str, self.before))} -> {','.join(map(str, self.after))}"


class _Room:
    """Where a further replica of a partition is best: another rack, another host, then the least loaded broker."""

    def __init__(self, state: ClusterState, *, without: int | None = None) -> None:
        self._brokers = {broker.node_id: broker for broker in state.brokers}
        self._candidates = [broker for broker in state.live_brokers() if broker.node_id != without]
        self._load = Counter(replica for each in state.partitions for replica in each.replicas)

    def take(self, kept: Sequence[int], unwanted: Iterable[int] = ()) -> int | None:
        """Return a broker for one more replica beside `kept`; None where there is none left."""
        refused = {*kept, *unwanted}
        racks = {broker.rack for broker in self._of(kept) if broker.rack is not None}
        hosts = {broker.host for broker in self._of(kept)}
        free = [broker for broker in self._candidates if broker.node_id not in refused]
        if not free:
            return None
        chosen = min(free, key=lambda b: (b.rack in racks, b.host in hosts, self._load[b.node_id], b.node_id))
        self._load[chosen.node_id] += 1
        return chosen.node_id

    def give_back(self, node_id: int) -> None:
        self._load[node_id] -= 1

    def _of(self, node_ids: Iterable[int]) -> list[BrokerState]:
        return [self._brokers[node_id] for node_id in node_ids if node_id in self._brokers]


def plan_drain(state: ClusterState, node_id: int) -> list[Move]:
    """Every replica of `node_id` goes to another broker; CommandFailed where there are not enough of them."""
    if not any(node_id in each.replicas for each in state.partitions) and state.broker(node_id) is None:
        known = ", ".join(str(broker.node_id) for broker in state.brokers)
        raise NotFound(f"there is no broker {node_id}", hint=f"there are {known}")
    room = _Room(state, without=node_id)
    moves, stuck = [], []
    for each in state.partitions:
        if node_id not in each.replicas:
            continue
        kept = [replica for replica in each.replicas if replica != node_id]
        replacement = room.take(kept)
        if replacement is None:
            stuck.append(each)
            continue
        after = tuple(replacement if replica == node_id else replica for replica in each.replicas)
        moves.append(Move(each.topic, each.index, each.replicas, after))
    if stuck:
        most = max(len(each.replicas) for each in stuck)
        others = len([broker for broker in state.live_brokers() if broker.node_id != node_id])
        raise CommandFailed(
            f"broker {node_id} cannot be drained: {stuck[0].name} and {len(stuck) - 1:,} others have up to {most} "
            f"replicas, and only {count(others, 'other broker')} are up"
            if len(stuck) > 1
            else f"broker {node_id} cannot be drained: {stuck[0].name} has {count(most, 'replica')}, and only "
            f"{count(others, 'other broker')} are up",
            hint="start another broker first, or keep fewer replicas: "
            "`strandline cluster reassign --topic NAME --replication-factor N`",
        )
    return moves


def plan_replication_factor(state: ClusterState, partitions: Sequence[PartitionState], factor: int) -> list[Move]:
    """So many replicas for each: further ones on the least loaded brokers, or fewer, those out of sync going first."""
    if factor < 1:
        raise UsageFailed(f"--replication-factor {factor} is less than one")
    room = _Room(state)
    moves = []
    for each in partitions:
        after = list(each.replicas)
        while len(after) > factor:
            out_of_sync = [replica for replica in after if replica not in each.in_sync]
            not_leading = [replica for replica in after if replica != each.leader]
            gone = (out_of_sync or not_leading)[-1]
            after.remove(gone)
            room.give_back(gone)
        while len(after) < factor:
            added = room.take(after)
            if added is None:
                up = len(state.live_brokers())
                raise CommandFailed(
                    f"{each.name} cannot have {factor} replicas: {count(up, 'broker')} are up",
                    hint="start more brokers",
                )
            after.append(added)
        if tuple(after) != each.replicas:
            moves.append(Move(each.topic, each.index, each.replicas, tuple(after)))
    return moves


def plan_replicas(partitions: Sequence[PartitionState], replicas: Sequence[int], *, rotate: bool) -> list[Move]:
    """These replicas for each; rotated from one to the next, so that each broker is preferred in its turn."""
    moves = []
    for number, each in enumerate(partitions):
        shift = number % len(replicas) if rotate else 0
        after = (*replicas[shift:], *replicas[:shift])
        if after != each.replicas:
            moves.append(Move(each.topic, each.index, each.replicas, after))
    return moves


def plan_file(state: ClusterState, content: str, *, file_name: str) -> list[Move]:
    """Return the moves of a file in the form of Kafka's own tool: `{"version": 1, "partitions": [{"topic", ...}]}`."""
    current = {(each.topic, each.index): each for each in state.partitions}
    moves, seen = [], set()
    for entry in _entries(content, file_name):
        topic, index, replicas = _entry(entry, file_name)
        if (topic, index) in seen:
            raise UsageFailed(f"{file_name}: {topic}-{index} stands there twice")
        seen.add((topic, index))
        partition = current.get((topic, index))
        if partition is None:
            raise NotFound(f"{file_name}: there is no partition {topic}-{index}", hint="see `strandline topic list`")
        if replicas != partition.replicas:
            moves.append(Move(topic, index, partition.replicas, replicas))
    return moves


def _entries(content: str, file_name: str) -> list[Mapping[str, Any]]:
    try:
        document = json.loads(content)
    except ValueError as error:
        raise UsageFailed(f"{file_name} is no JSON: {error}") from None
    partitions = document.get("partitions") if isinstance(document, dict) else None
    if not isinstance(partitions, list) or document.get("version", 1) != 1:
        raise UsageFailed(
            f"{file_name} is no plan of moves",
            hint='it should be {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2]}]}',
        )
    return partitions


def _entry(entry: Any, file_name: str) -> tuple[str, int, tuple[int, ...]]:
    match entry:
        case {"topic": str(topic), "partition": int(index), "replicas": [*replicas]} if replicas and all(
            isinstance(each, int) for each in replicas
        ):
            if len(set(replicas)) < len(replicas):
                raise UsageFailed(f"{file_name}: {topic}-{index} names a broker twice")
            return topic, index, tuple(replicas)
    raise UsageFailed(f"{file_name}: {json.dumps(entry)} names no topic, partition and replicas")


def check_brokers(state: ClusterState, moves: Iterable[Move]) -> None:
    """NotFound where a move names a broker that the cluster does not know."""
    known = {broker.node_id for broker in state.brokers}
    for move in moves:
        for node_id in move.added:
            if node_id not in known:
                raise NotFound(
                    f"{move.name}: there is no broker {node_id}",
                    hint=f"there are {', '.join(str(each) for each in sorted(known))}",
                )

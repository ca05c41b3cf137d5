"""Where the replicas of a new topic go: round robin over racks and brokers, from a random start."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from strandline.errors import ErrorCode, RequestError
from strandline.quorum.cluster_image import BrokerImage

if TYPE_CHECKING:
    import random


def place_replicas(
    brokers: Iterable[BrokerImage], *, partition_count: int, replication_factor: int, rng: random.Random
) -> list[list[int]]:
    """Replicas of each partition, leader first; INVALID_REPLICATION_FACTOR if there are too few brokers."""
    registered = list(brokers)
    if replication_factor > len(registered):
        raise _unplaceable(
            replication_factor,
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{len(registered)} broker(s) are registered.",
        )
    if not any(broker.is_active for broker in registered):
        raise _unplaceable(replication_factor, "All brokers are currently fenced or in controlled shutdown.")
    order = _rack_alternated(registered, rng)
    count, followers = len(order), len(order) - 1
    active = {broker.id for broker in registered if broker.is_active}
    placed = []
    for partition in range(partition_count):
        # Each round over the brokers shifts the followers by one, so that no pair shares all its partitions.
        shift, leader = divmod(partition, count)
        replicas = [order[leader]]
        replicas += [order[(leader + 1 + (shift + step) % followers) % count] for step in range(replication_factor - 1)]
        if len(active) < count:
            # A replica list may name a broker that is away, but its first must be able to lead.
            replicas.sort(key=lambda broker_id: broker_id not in active)
            if replicas[0] not in active:
                replicas[0] = next(broker_id for broker_id in order if broker_id in active)
        placed.append(replicas)
    return placed


def _rack_alternated(brokers: list[BrokerImage], rng: random.Random) -> list[int]:
    """Broker ids such that neighbours are in different racks where possible, turned to a random start."""
    racks: dict[str, list[int]] = {}
    for broker in sorted(brokers, key=lambda broker: broker.id):
        racks.setdefault(broker.rack or "", []).append(broker.id)
    columns = [racks[rack] for rack in sorted(racks)]
    order = [column[row] for row in range(max(map(len, columns))) for column in columns if row < len(column)]
    start = rng.randrange(len(order))
    return order[start:] + order[:start]


def _unplaceable(replication_factor: int, reason: str) -> RequestError:
    return RequestError(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        f"Unable to replicate the partition {replication_factor} time(s): {reason}",
    )

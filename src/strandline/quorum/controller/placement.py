"""Where the replicas of new partitions go: over racks, then over hosts, then over processes.

Leaders take turns over all brokers. The others of a partition are chosen one by one, from the rack that has the fewest
of its replicas, and there from the host that has the fewest: two replicas share a host only when every host has one.
Brokers without a rack share one. A broker that is away gets a replica only if there are not enough that are here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from strandline.errors import ErrorCode, RequestError
from strandline.quorum.image.cluster_image import BrokerImage

if TYPE_CHECKING:
    import random


def place_replicas(
    brokers: Iterable[BrokerImage],
    *,
    partition_count: int,
    replication_factor: int,
    rng: random.Random,
    is_usable: Callable[[int], bool] | None = None,
) -> list[list[int]]:
    """Replicas of each partition, leader first; INVALID_REPLICATION_FACTOR if there are too few brokers."""
    registered = [broker for broker in brokers if not _is_cordoned(broker)]
    if replication_factor > len(registered):
        raise _unplaceable(
            replication_factor,
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{len(registered)} broker(s) are registered.",
        )
    here = [broker for broker in registered if (broker.is_active if is_usable is None else is_usable(broker.id))]
    if not here:
        raise _unplaceable(replication_factor, "All brokers are currently fenced or in controlled shutdown.")
    order = _alternated(here, rng)
    away: list[BrokerImage] = []
    if replication_factor > len(order):
        present = {broker.id for broker in order}
        away = _alternated([broker for broker in registered if broker.id not in present], rng)
    count, followers = len(order), max(1, len(order) - 1)
    chosen: dict[tuple[int, int], list[int]] = {}
    placed = []
    for partition in range(partition_count):
        # Each round over the brokers shifts the followers by one, so that no pair shares all its partitions.
        shift, leader = divmod(partition, count)
        key = (leader, shift % followers)
        if key not in chosen:
            after = order[leader + 1 :] + order[:leader]
            candidates = after[key[1] :] + after[: key[1]]
            chosen[key] = _spread(order[leader], candidates, away, replication_factor)
        placed.append(list(chosen[key]))
    return placed


def _spread(
    leader: BrokerImage, candidates: list[BrokerImage], away: list[BrokerImage], replication_factor: int
) -> list[int]:
    racks, hosts = Counter([leader.rack]), Counter([leader.host])
    replicas = [leader.id]
    for group in (candidates, away):
        left = list(group)
        while left and len(replicas) < replication_factor:
            best = min(left, key=lambda broker: (racks[broker.rack], hosts[broker.host]))
            left.remove(best)
            racks[best.rack] += 1
            hosts[best.host] += 1
            replicas.append(best.id)
    return replicas


def _alternated(brokers: list[BrokerImage], rng: random.Random) -> list[BrokerImage]:
    """The brokers such that neighbours are in different racks and on different hosts where possible, from a random
    start on."""
    racks: dict[str, dict[str, list[BrokerImage]]] = {}
    for broker in sorted(brokers, key=lambda broker: broker.id):
        racks.setdefault(broker.rack or "", {}).setdefault(broker.host, []).append(broker)
    order = _interleaved([_interleaved(list(hosts.values())) for _, hosts in sorted(racks.items())])
    start = rng.randrange(len(order)) if order else 0
    return order[start:] + order[:start]


def _interleaved(columns: list[list[BrokerImage]]) -> list[BrokerImage]:
    """Return the first of each, then the second of each, and so on."""
    rows = max(map(len, columns), default=0)
    return [column[row] for row in range(rows) for column in columns if row < len(column)]


def _is_cordoned(broker: BrokerImage) -> bool:
    """Return whether none of its directories takes new replicas."""
    cordoned = broker.registration.cordoned_log_dirs or ()
    return bool(cordoned) and set(broker.registration.log_dirs) <= set(cordoned)


def _unplaceable(replication_factor: int, reason: str) -> RequestError:
    return RequestError(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        f"Unable to replicate the partition {replication_factor} time(s): {reason}",
    )

"""Share groups, as a seed draws them: a topic of tasks, and one or two groups of workers over it."""

from __future__ import annotations

import dataclasses
import random
from typing import TYPE_CHECKING, Final

from tests.simulator.clients.share_group import TASKS, ShareOptions
from tests.simulator.clients.share_worker import WorkerManners

if TYPE_CHECKING:
    from tests.simulator.options import SimOptions

SHARE_SETTINGS: Final = {
    # Kafka's own bounds are for people; what happens in a run of a minute needs locks of seconds.
    "group.share.min.session.timeout.ms": "3000",
    "group.share.session.timeout.ms": "6000",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "1000",
    "group.share.min.record.lock.duration.ms": "1000",
    "share.coordinator.state.topic.num.partitions": "2",
}


def with_shares(options: SimOptions) -> SimOptions:
    """Draw apart from all else, so that the rest of what a seed means is the same with share groups and without."""
    rng = random.Random(f"shares {options.seed}")
    if rng.random() < 0.4:
        return options
    return with_share_groups(options, rng, groups=rng.choice([1, 1, 2]))


def with_share_groups(options: SimOptions, rng: random.Random, *, groups: int) -> SimOptions:
    orders = options.topics[0]
    is_delayed = rng.random() < 0.7
    configs = {**orders.configs, "strandline.delay.enable": "true"} if is_delayed else orders.configs
    tasks = dataclasses.replace(orders, name=TASKS, partitions=1, configs=configs)
    shares = tuple(
        ShareOptions(
            f"workers-{number}",
            workers=rng.choice([1, 2, 3]),
            churn_s=rng.choice([0.0, 3.0, 10.0]),
            is_key_ordered=rng.random() < 0.5,
            backoff_ms=rng.choice([0, 0, 300, 2_000]),
            limit=rng.choice([2, 5, 10]),
            lock_s=rng.choice([1.0, 4.0, 10.0]),
            manners=WorkerManners(
                work_s=rng.choice([0.05, 0.3, 1.0]),
                records_max=rng.choice([1, 10, 100]),
                strict_share=rng.choice([0.0, 0.5, 1.0]),
                release_share=rng.choice([0.0, 0.1, 0.3]),
                forget_share=rng.choice([0.0, 0.03]),
            ),
        )
        for number in range(groups)
    )
    weights = dict(options.nemesis.weights)
    if is_delayed:
        # What is due by a clock that jumps is given early by the next one.
        weights["clock jump"] = 0
    settings = {
        **options.settings,
        **SHARE_SETTINGS,
        "share.coordinator.snapshot.update.records.per.snapshot": rng.choice(["3", "50", "500"]),
        "share.coordinator.state.topic.prune.interval.ms": rng.choice(["2000", "300000"]),
        "share.coordinator.cold.partition.snapshot.interval.ms": rng.choice(["3000", "300000"]),
    }
    return dataclasses.replace(
        options,
        topics=(*options.topics, tasks),
        shares=shares,
        settings=settings,
        nemesis=dataclasses.replace(options.nemesis, weights=weights),
    )

"""Tiered topics, as a seed draws them: which topics have a tier, when segments leave, and what the store does."""

from __future__ import annotations

import dataclasses
import random
from typing import TYPE_CHECKING, Final

from tests.simulator.clients.share_group import TASKS

if TYPE_CHECKING:
    from tests.simulator.options import SimOptions, TopicOptions

STORE_FAULTS: Final = {
    "store outage": 4,
    "store overload": 4,
    "slow store": 4,
    "lost store answers": 4,
    "cut uploads": 3,
    "late lists": 2,
    "expired credentials": 3,
    "wrong ranges": 3,
}
LOCAL_START_MS: Final = ("300", "1000", "3000")


def with_tiers(options: SimOptions) -> SimOptions:
    """Draw apart from all else, so that the rest of what a seed means is the same with a store and without."""
    rng = random.Random(f"tiers {options.seed}")
    if rng.random() < 0.4:
        return options
    # Share groups read local segments only.
    names = {each.name for each in (*options.topics[1:], *options.outputs) if each.name != TASKS}
    chosen = {name for name in sorted(names) if rng.random() < 0.5} | {options.topics[0].name}
    return with_tiered_topics(options, rng, chosen)


def with_tiered_topics(options: SimOptions, rng: random.Random, names: set[str]) -> SimOptions:
    def tiered(topic: TopicOptions) -> TopicOptions:
        return _tiered(topic, rng) if topic.name in names else topic

    weights = {**options.nemesis.weights, **{kind: each * rng.choice([0, 1, 3]) for kind, each in STORE_FAULTS.items()}}
    return dataclasses.replace(
        options,
        topics=tuple(map(tiered, options.topics)),
        outputs=tuple(map(tiered, options.outputs)),
        has_tiers=True,
        nemesis=dataclasses.replace(options.nemesis, weights=weights),
        settings={
            **options.settings,
            "remote.log.storage.system.enable": "true",
            "strandline.remote.store.url": "memory://bucket",
            "remote.log.manager.task.interval.ms": rng.choice(LOCAL_START_MS),
            "log.retention.check.interval.ms": rng.choice(["500", "2000"]),
            "remote.fetch.max.wait.ms": rng.choice(["20", "500"]),
            "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
        },
    )


def _tiered(topic: TopicOptions, rng: random.Random) -> TopicOptions:
    forgets = "retention.bytes" in topic.configs
    configs = {
        **topic.configs,
        "remote.storage.enable": "true",
        "internal.segment.bytes": rng.choice(["1500", "4000", "15000"]),
        "local.retention.bytes": rng.choice(["1", "1", "3000"] if forgets else ["1", "4000", "20000"]),
        "file.delete.delay.ms": rng.choice(["0", "1000", "60000"]),
    }
    if not forgets:
        configs["local.retention.ms"] = rng.choice(["-2", "-2", "1000"])
    return dataclasses.replace(topic, configs=configs)

"""Object topics, as a seed draws them: which topics have their records in the store, and how soon they are merged."""

from __future__ import annotations

import dataclasses
import random
from typing import TYPE_CHECKING, Final

from tests.simulator.clients.share_group import TASKS
from tests.simulator.tier_users import with_tiered_topics

if TYPE_CHECKING:
    from tests.simulator.options import SimOptions, TopicOptions

TRIM: Final = "trim"
"""What the administrator does to a topic that forgets."""
TIERED: Final = "remote.storage.enable"
UNFIT: Final = ("unclean.leader.election.enable",)
"""Settings of topics that show nothing more where no replica holds anything."""


def with_objects(options: SimOptions) -> SimOptions:
    """Draw apart from all else, so that the rest of what a seed means is the same with object topics and without."""
    rng = random.Random(f"objects {options.seed}")
    if rng.random() < 0.5:
        return options
    names = sorted({each.name for each in (*options.topics[1:], *options.outputs) if each.name != TASKS})
    chosen = {name for name in names if rng.random() < 0.6}
    if rng.random() < 0.8:
        chosen.add(options.topics[0].name)
    if options.table is not None and rng.random() < 0.5:
        chosen.add(options.table.topic.name)
    return with_object_topics(options, rng, chosen)


def with_object_topics(options: SimOptions, rng: random.Random, names: set[str], *, acks: str = "") -> SimOptions:
    if not options.has_tiers:
        options = with_tiered_topics(options, rng, set())

    def converted(topic: TopicOptions) -> TopicOptions:
        is_fit = topic.name in names and not any(each in topic.configs for each in UNFIT)
        return _in_store(topic, rng, acks or rng.choice(["object", "object", "wal"])) if is_fit else topic

    topics, table = tuple(map(converted, options.topics)), options.table
    if table is not None and table.topic.name in names:
        table = dataclasses.replace(table, topic=_in_store(table.topic, rng, "object"))
    duties = options.users.duties
    if any(each.forgets and each.configs.get("strandline.object.ack") == "object" for each in topics):
        duties += (TRIM,) * rng.choice([0, 2, 6])
    every_s = options.administer_every_s
    if TRIM in duties:
        every_s = min(every_s or 3.0, rng.choice([1.0, 3.0]))
    return dataclasses.replace(
        options,
        topics=topics,
        table=table,
        outputs=tuple(map(converted, options.outputs)),
        users=dataclasses.replace(options.users, duties=duties),
        administer_every_s=every_s,
        settings={
            **options.settings,
            "strandline.object.flush.interval.ms": rng.choice(["10", "100", "250", "1000"]),
            "strandline.object.merge.interval.ms": rng.choice(["500", "3000", "20000"]),
            "strandline.object.checkpoint.interval.ms": rng.choice(["1000", "5000", "60000"]),
            # Shorter than an upload may take, too: what is taken for an orphan too early is written again.
            "strandline.object.orphan.ms": rng.choice(["1000", "10000", "70000"]),
            "log.segment.delete.delay.ms": rng.choice(["0", "1000", "10000"]),
        },
    )


def _in_store(topic: TopicOptions, rng: random.Random, ack: str) -> TopicOptions:
    forgets = "retention.bytes" in topic.configs
    configs = {
        **topic.configs,
        "strandline.storage": "object",
        "strandline.object.ack": ack,
        "internal.segment.bytes": rng.choice(["1500", "4000", "15000"]),
        "local.retention.bytes": rng.choice(["1", "1", "3000"] if forgets else ["1", "4000", "20000"]),
        "file.delete.delay.ms": rng.choice(["0", "1000", "60000"]),
    }
    configs.pop(TIERED, None)
    return dataclasses.replace(topic, configs=configs)

"""What `/metrics` says of lag: figures and verdicts of all positions that the node's sampler has looked at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from strandline.broker.environment import Environment
from strandline.coordinators.groups.subscribed_topics import subscribed_topics
from strandline.lag.figures import Figures, TopicRetention, figures
from strandline.lag.verdict import LagJudgement, judge

if TYPE_CHECKING:
    from strandline.broker.coordinating.group_driver import GroupDriver
    from strandline.broker.coordinating.lag_sampler import LagSampler


class Judged(NamedTuple):
    """A position with its figures."""

    group_id: str
    topic: str
    partition: int
    figures: Figures
    judgement: LagJudgement


def judged(environment: Environment, groups: GroupDriver, lag: LagSampler) -> Iterator[Judged]:
    """One by one; lists are copied, for a page is written over many turns of the loop."""
    retentions: dict[str, TopicRetention] = {}
    for shard in groups.loaded_shards():
        for group_id, group in list(shard.groups.items()):
            windows = lag.windows_of(group_id)
            is_behind = any(window.last.lag for _, window in windows)
            read_topics = subscribed_topics(group) if is_behind else ()
            for (topic, index), window in windows:
                if topic not in retentions:
                    retentions[topic] = _retention(environment, topic)
                seen = figures(window, retentions[topic])
                yield Judged(group_id, topic, index, seen, judge(seen, is_read=topic in read_topics))


def _retention(environment: Environment, topic_name: str) -> TopicRetention:
    topic = environment.image().topic_by_name(topic_name)
    if topic is None:
        return TopicRetention()
    config = environment.config().topic_config_in_force(topic.config_overrides)
    return TopicRetention.of(
        cleanup_policy=",".join(config.cleanup_policy),
        retention_ms=config.retention_ms,
        retention_bytes=config.retention_bytes,
    )

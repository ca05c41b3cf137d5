"""`strandline.retention.lock.ms`: records of a topic stay for so long, and no request takes that back.

The lock is at most `strandline.retention.lock.max.ms` of the node, also for topics that have a longer one. An operator
of the machines lifts all locks with 0. The age of a record is the time since a broker appended it. So the topic needs
`message.timestamp.type=LogAppendTime`, because the times of other topics are the producers' choice.
"""

from __future__ import annotations

from typing import Final

from strandline.config.node_config import BrokerConfig
from strandline.config.topic_config import TopicConfig
from strandline.errors import ErrorCode, RequestError
from strandline.quorum.image.cluster_image import RESOURCE_TOPIC, ClusterImage

LOCK: Final = "strandline.retention.lock.ms"
LIMIT: Final = "strandline.retention.lock.max.ms"


def check_lock(name: str, asked: TopicConfig, *, image: ClusterImage, config: BrokerConfig) -> None:
    """Raise RequestError (POLICY_VIOLATION) for settings of a topic that its lock forbids, old or new."""
    lock_ms, before_ms = asked.retention_lock_ms, locked_ms(name, image=image, config=config)
    if lock_ms < before_ms:
        raise _violation(f"{LOCK} of topic '{name}' is {before_ms}, and can be raised but not lowered to {lock_ms}.")
    if not lock_ms:
        return
    stored_ms = config.topic_defaults.with_stored(image.configs.get((RESOURCE_TOPIC, name), {})).retention_lock_ms
    if lock_ms > max(config.strandline_retention_lock_max_ms, stored_ms):
        raise _violation(f"{LOCK}={lock_ms} is above {LIMIT}={config.strandline_retention_lock_max_ms} of the node.")
    if asked.compact:
        raise _violation(f"{LOCK} cannot be used with cleanup.policy=compact, which removes records.")
    if not asked.log_append_time:
        raise _violation(
            f"{LOCK} needs message.timestamp.type=LogAppendTime, because producers choose the times of other topics."
        )
    if 0 <= asked.retention_ms < lock_ms:
        raise _violation(f"retention.ms={asked.retention_ms} is below {LOCK}={lock_ms}; expected at least that, or -1.")


def check_deletion(name: str, *, image: ClusterImage, config: BrokerConfig) -> None:
    """Raise RequestError (POLICY_VIOLATION) if the lock of a topic forbids to delete it."""
    lock_ms = locked_ms(name, image=image, config=config)
    if lock_ms:
        raise _violation(f"Topic '{name}' cannot be deleted: {LOCK} is {lock_ms}.")


def locked_ms(name: str, *, image: ClusterImage, config: BrokerConfig) -> int:
    """Return the lock of a topic that is in force; 0 if there is none."""
    overrides = image.configs.get((RESOURCE_TOPIC, name), {})
    return config.topic_config_in_force(overrides).retention_lock_ms if LOCK in overrides else 0


def _violation(message: str) -> RequestError:
    return RequestError(ErrorCode.POLICY_VIOLATION, message)

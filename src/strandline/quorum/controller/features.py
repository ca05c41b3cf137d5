"""Features of the cluster: what this version supports, and what UpdateFeatures may make of it.

Only what works is supported: `metadata.version`, the level of the records in the metadata log;
`eligible.leader.replicas.version`, with which the controller remembers who may still lead when the in-sync set is
empty; `group.version`, with which groups may use the consumer protocol; and `transaction.version`, with which each end
of a transaction raises the producer's epoch (2); and, where share groups are on, `share.version`. Streams, which Kafka
has beside these, comes with what it stands for. `strandline.coordinator.hash` is our own: it says in which partitions
groups and transactional ids are, and never changes (decision 0055).
The log is always written in the newest level of `metadata.version`, so it can be raised to it (a directory of an older
Kafka) and never lowered: a reader of the lower level could not read what is there already.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

from strandline.codec.messages.clear_elr_record import ClearElrRecord
from strandline.codec.messages.config_record import ConfigRecord
from strandline.codec.messages.feature_level_record import FeatureLevelRecord
from strandline.codec.messages.register_broker_record import RegisterBrokerRecord
from strandline.config.node_config import BrokerConfig
from strandline.errors import ErrorCode, RequestError
from strandline.quorum.controller.new_topics import IN_SYNC_MIN
from strandline.quorum.image.cluster_image import (
    COORDINATOR_HASH,
    ELIGIBLE_LEADER_REPLICAS,
    GROUP_VERSION,
    METADATA_VERSION,
    RESOURCE_BROKER,
    SHARE_VERSION,
    TRANSACTION_VERSION,
    ClusterImage,
)

METADATA_VERSION_LEVEL: Final = 30
"""The records are those of Apache Kafka 4.3."""
METADATA_VERSION_LEVEL_MIN: Final = 7
"""The oldest level that Apache Kafka 4.x reads."""
ELIGIBLE_LEADER_REPLICAS_LEVEL: Final = 1
GROUP_VERSION_LEVEL: Final = 1
TRANSACTION_VERSION_LEVEL: Final = 2
SHARE_VERSION_LEVEL: Final = 2
"""With 2 share groups have dead letters (KIP-1191)."""
COORDINATOR_HASH_LEVEL: Final = 1
_KRAFT_VERSION: Final = "kraft.version"
_OUR_METADATA_VERSION_MIN: Final = 30
"""No broker of Strandline was ever registered with less as its highest level."""

SUPPORTED_FEATURES: Final[Mapping[str, tuple[int, int]]] = {
    METADATA_VERSION: (METADATA_VERSION_LEVEL_MIN, METADATA_VERSION_LEVEL),
    ELIGIBLE_LEADER_REPLICAS: (0, ELIGIBLE_LEADER_REPLICAS_LEVEL),
    GROUP_VERSION: (0, GROUP_VERSION_LEVEL),
    TRANSACTION_VERSION: (0, TRANSACTION_VERSION_LEVEL),
    SHARE_VERSION: (0, SHARE_VERSION_LEVEL),
    COORDINATOR_HASH: (0, COORDINATOR_HASH_LEVEL),
}


# How a level may move, in the numbers of the protocol.
UPGRADE: Final = 1
SAFE_DOWNGRADE: Final = 2
UNSAFE_DOWNGRADE: Final = 3


@dataclasses.dataclass(frozen=True, slots=True)
class FeatureUpdate:
    feature: str
    level: int
    upgrade_type: int = UPGRADE


def bootstrap_records(config: BrokerConfig) -> list[Any]:
    """Return the first records of a new cluster: the newest levels.

    A `min.insync.replicas` of the node that makes the cluster becomes the cluster's, as in Kafka: leaders and
    controller must agree on it, or an eligible leader replica is none.
    """
    records: list[Any] = [
        FeatureLevelRecord(name=METADATA_VERSION, feature_level=METADATA_VERSION_LEVEL),
        FeatureLevelRecord(name=ELIGIBLE_LEADER_REPLICAS, feature_level=ELIGIBLE_LEADER_REPLICAS_LEVEL),
        FeatureLevelRecord(name=GROUP_VERSION, feature_level=GROUP_VERSION_LEVEL),
        FeatureLevelRecord(name=TRANSACTION_VERSION, feature_level=TRANSACTION_VERSION_LEVEL),
        FeatureLevelRecord(name=SHARE_VERSION, feature_level=SHARE_VERSION_LEVEL),
    ]
    in_sync_min = config.given.get(IN_SYNC_MIN)
    if in_sync_min is not None:
        records.append(
            ConfigRecord(resource_type=RESOURCE_BROKER, resource_name="", name=IN_SYNC_MIN, value=in_sync_min)
        )
    return records


def hash_record() -> FeatureLevelRecord:
    """Return the record of a cluster whose groups and transactional ids are where Kafka has them."""
    return FeatureLevelRecord(name=COORDINATOR_HASH, feature_level=COORDINATOR_HASH_LEVEL)


def is_kafkas(image: ClusterImage) -> bool:
    """Return whether all brokers of the cluster are Apache Kafka's: Strandline has coordinated nothing in it yet."""
    return bool(image.brokers) and all(_is_kafkas(broker.registration) for broker in image.brokers.values())


def _is_kafkas(registration: RegisterBrokerRecord) -> bool:
    # Brokers of Kafka have named kraft.version since 3.9, ours never. Older ones do not know our metadata.version.
    highest = {feature.name: feature.max_supported_version for feature in registration.features}
    return _KRAFT_VERSION in highest or highest.get(METADATA_VERSION, 0) < _OUR_METADATA_VERSION_MIN


def feature_records(
    updates: Sequence[FeatureUpdate],
    finalised: Mapping[str, int],
    supported: Mapping[str, tuple[int, int]] = SUPPORTED_FEATURES,
) -> list[Any]:
    """Return the records of these levels; raise INVALID_UPDATE_VERSION for the first that is not allowed.

    Of updates that name a feature twice the last counts, as in Kafka.
    """
    records: list[Any] = []
    for update in {update.feature: update for update in updates}.values():
        _check(update, finalised.get(update.feature, 0), supported.get(update.feature))
        if finalised.get(update.feature, 0) != update.level:
            records.append(FeatureLevelRecord(name=update.feature, feature_level=update.level))
            if update.feature == ELIGIBLE_LEADER_REPLICAS and update.level == 0:
                # Without the feature they are not kept up to date.
                records.append(ClearElrRecord(topic_name=""))
    return records


def check_elr_is_not_needed(image: ClusterImage) -> None:
    """Refuse to forget the eligible leader replicas while a partition has no in-sync replica.

    They are all that says which brokers hold its records: without them it could never have a clean leader again.
    """
    for topic in image.topics.values():
        for index, partition in enumerate(topic.partitions):
            if partition.replicas and not partition.isr:
                reason = (
                    f"Partition {topic.name}-{index} has no in-sync replica, so that only its eligible leader replicas "
                    "tell which brokers hold its records. Start these brokers, or elect a leader, and try again."
                )
                raise _refusal(FeatureUpdate(ELIGIBLE_LEADER_REPLICAS, 0), reason)


def _check(update: FeatureUpdate, current: int, supported: tuple[int, int] | None) -> None:
    if update.upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise _refusal(update, "The controller does not support the given upgrade type.")
    if update.level < 0:
        raise _refusal(update, "A feature version cannot be less than 0.")
    if update.feature == COORDINATOR_HASH and update.level != current:
        reason = "Groups and transactions stay in the partitions where the cluster began to store them."
        raise _refusal(update, reason)
    if supported is None:
        raise _refusal(update, "This cluster does not support this feature.")
    lowest, highest = supported
    if not lowest <= update.level <= highest:
        raise _refusal(update, f"This cluster only supports versions {lowest}-{highest}.")
    if update.level < current:
        if update.upgrade_type == UPGRADE:
            raise _refusal(
                update,
                "Can't downgrade the version of this feature without setting the upgrade type to either safe or "
                "unsafe downgrade.",
            )
        if update.feature != METADATA_VERSION:
            return
        raise _refusal(update, f"The metadata log holds records of version {current}, which cannot be taken back.")
    if update.level > current and update.upgrade_type != UPGRADE:
        raise _refusal(update, "Can't downgrade to a newer version.")


def _refusal(update: FeatureUpdate, reason: str) -> RequestError:
    message = f"Invalid update version {update.level} for feature {update.feature}. {reason}"
    return RequestError(ErrorCode.INVALID_UPDATE_VERSION, message)

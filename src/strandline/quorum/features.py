"""Features of the cluster: what this version supports, and what UpdateFeatures may make of it.

Only what works is supported, and that is `metadata.version`: the level of the records in the metadata log. The features
that Kafka has beside it (group, transaction, share, streams, eligible leader replicas) come with what they stand for.
The log is always written in the newest level, so a level can be raised to it (a directory of an older Kafka) and never
lowered: a reader of the lower level could not read what is there already.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final

from strandline.codec.messages.feature_level_record import FeatureLevelRecord
from strandline.errors import ErrorCode, RequestError
from strandline.quorum.cluster_image import METADATA_VERSION

METADATA_VERSION_LEVEL: Final = 30
"""The records are those of Apache Kafka 4.3."""
METADATA_VERSION_LEVEL_MIN: Final = 7
"""The oldest level that Apache Kafka 4.x reads."""

SUPPORTED_FEATURES: Final[Mapping[str, tuple[int, int]]] = {
    METADATA_VERSION: (METADATA_VERSION_LEVEL_MIN, METADATA_VERSION_LEVEL),
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


def feature_records(updates: Sequence[FeatureUpdate], finalised: Mapping[str, int]) -> list[FeatureLevelRecord]:
    """The records that bring these levels about, all or none; INVALID_UPDATE_VERSION for the first that may not be.

    Of updates that name a feature twice the last counts, as in Kafka.
    """
    records = []
    for update in {update.feature: update for update in updates}.values():
        _check(update, finalised.get(update.feature, 0))
        if finalised.get(update.feature, 0) != update.level:
            records.append(FeatureLevelRecord(name=update.feature, feature_level=update.level))
    return records


def _check(update: FeatureUpdate, current: int) -> None:
    if update.upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise _refusal(update, "The controller does not support the given upgrade type.")
    if update.level < 0:
        raise _refusal(update, "A feature version cannot be less than 0.")
    supported = SUPPORTED_FEATURES.get(update.feature)
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
        raise _refusal(update, f"The metadata log holds records of version {current}, which cannot be taken back.")
    if update.level > current and update.upgrade_type != UPGRADE:
        raise _refusal(update, "Can't downgrade to a newer version.")


def _refusal(update: FeatureUpdate, reason: str) -> RequestError:
    message = f"Invalid update version {update.level} for feature {update.feature}. {reason}"
    return RequestError(ErrorCode.INVALID_UPDATE_VERSION, message)

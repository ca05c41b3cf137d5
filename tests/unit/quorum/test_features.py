"""Which levels of features may be set, as a table; all updates of a request or none."""

from __future__ import annotations

import pytest

from strandline.errors import ErrorCode, RequestError
from strandline.quorum.controller.features import (
    METADATA_VERSION_LEVEL,
    SAFE_DOWNGRADE,
    SUPPORTED_FEATURES,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    FeatureUpdate,
    feature_records,
)
from strandline.quorum.image.cluster_image import COORDINATOR_HASH, METADATA_VERSION

OLD = {METADATA_VERSION: 20}


@pytest.mark.parametrize(
    ("update", "written"),
    [
        (FeatureUpdate(METADATA_VERSION, METADATA_VERSION_LEVEL), METADATA_VERSION_LEVEL),
        (FeatureUpdate(METADATA_VERSION, 21, UPGRADE), 21),
        (FeatureUpdate(METADATA_VERSION, 20), None),
        (FeatureUpdate(METADATA_VERSION, 20, SAFE_DOWNGRADE), None),
    ],
)
def test_levels_go_up(update: FeatureUpdate, written: int | None) -> None:
    assert [record.feature_level for record in feature_records([update], OLD)] == ([written] if written else [])


@pytest.mark.parametrize(
    ("update", "words"),
    [
        (FeatureUpdate(METADATA_VERSION, METADATA_VERSION_LEVEL + 1), "only supports versions 7-30"),
        (FeatureUpdate(METADATA_VERSION, 6, SAFE_DOWNGRADE), "only supports versions 7-30"),
        (FeatureUpdate(METADATA_VERSION, 0, UNSAFE_DOWNGRADE), "only supports versions 7-30"),
        (FeatureUpdate(METADATA_VERSION, -1), "cannot be less than 0"),
        (FeatureUpdate(METADATA_VERSION, 19), "without setting the upgrade type"),
        (FeatureUpdate(METADATA_VERSION, 19, SAFE_DOWNGRADE), "cannot be taken back"),
        (FeatureUpdate(METADATA_VERSION, 19, UNSAFE_DOWNGRADE), "cannot be taken back"),
        (FeatureUpdate(METADATA_VERSION, 21, SAFE_DOWNGRADE), "to a newer version"),
        (FeatureUpdate(METADATA_VERSION, 20, 0), "upgrade type"),
        (FeatureUpdate(METADATA_VERSION, 20, 9), "upgrade type"),
        (FeatureUpdate("streams.version", 1), "does not support this feature"),
        (FeatureUpdate("group.version", 2), "only supports versions 0-1"),
        (FeatureUpdate("", 0), "does not support this feature"),
        (FeatureUpdate(COORDINATOR_HASH, 1), "stay in the partitions"),
    ],
)
def test_what_may_not_be(update: FeatureUpdate, words: str) -> None:
    with pytest.raises(RequestError, match=words) as refusal:
        feature_records([FeatureUpdate(METADATA_VERSION, 30), update], OLD)
    assert refusal.value.code == ErrorCode.INVALID_UPDATE_VERSION


@pytest.mark.parametrize("upgrade_type", [UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE])
def test_the_hash_of_coordinators_never_changes(upgrade_type: int) -> None:
    with pytest.raises(RequestError, match="stay in the partitions"):
        feature_records([FeatureUpdate(COORDINATOR_HASH, 0, upgrade_type)], {COORDINATOR_HASH: 1})
    assert feature_records([FeatureUpdate(COORDINATOR_HASH, 1)], {COORDINATOR_HASH: 1}) == []


def test_of_two_updates_of_one_feature_the_last_counts() -> None:
    updates = [FeatureUpdate(METADATA_VERSION, 99), FeatureUpdate(METADATA_VERSION, 25)]
    assert [record.feature_level for record in feature_records(updates, OLD)] == [25]


def test_share_groups_get_dead_letters_by_a_level_of_their_own() -> None:
    supported = {**SUPPORTED_FEATURES, "share.version": (0, 2)}
    (record,) = feature_records([FeatureUpdate("share.version", 2)], {**OLD, "share.version": 1}, supported)
    assert (record.name, record.feature_level) == ("share.version", 2)
    with pytest.raises(RequestError, match="only supports versions 0-2"):
        feature_records([FeatureUpdate("share.version", 3)], OLD, supported)

"""The broker's settings as the share coordinator uses them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from strandline.config.share_coordinator_settings import ShareCoordinatorSettings

_DEFAULTS: Final = ShareCoordinatorSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareConfig:
    """The settings of all share partitions whose state a broker keeps. Defaults are those of the table of settings."""

    updates_per_snapshot: int = _DEFAULTS.share_coordinator_snapshot_update_records_per_snapshot
    prune_interval_ms: int = _DEFAULTS.share_coordinator_state_topic_prune_interval_ms
    cold_interval_ms: int = _DEFAULTS.share_coordinator_cold_partition_snapshot_interval_ms


def share_config(settings: ShareCoordinatorSettings) -> ShareConfig:
    return ShareConfig(
        updates_per_snapshot=settings.share_coordinator_snapshot_update_records_per_snapshot,
        prune_interval_ms=settings.share_coordinator_state_topic_prune_interval_ms,
        cold_interval_ms=settings.share_coordinator_cold_partition_snapshot_interval_ms,
    )

"""The settings of quotas. The quotas themselves are records of the metadata log."""

from __future__ import annotations

import dataclasses

from strandline.config.settings import at_least, integer


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuotaSettings:
    """The table of quota settings. Each attribute is the setting of that name with underscores for dots."""

    quota_window_num: int = integer(
        "quota.window.num",
        11,
        at_least(1),
        "How many windows the rate of a client is measured over. A client that was idle may take as much at once as "
        "its quota allows in all of them but one.",
    )
    quota_window_size_seconds: int = integer(
        "quota.window.size.seconds",
        1,
        at_least(1),
        "How long a window is. A client above its share of requests is throttled for one window at most.",
    )
    controller_quota_window_num: int = integer(
        "controller.quota.window.num",
        11,
        at_least(1),
        "How many windows of changes to topics and partitions a client may make at once, after it made none.",
    )
    controller_quota_window_size_seconds: int = integer(
        "controller.quota.window.size.seconds",
        1,
        at_least(1),
        "How long such a window is.",
    )

"""The settings of the log cleaner and the scrubber, and the checks of their combinations.

Settings that a topic can override (`min.cleanable.dirty.ratio` and others) are in `topic_config`.
"""

from __future__ import annotations

import dataclasses
import sys

from strandline.config.settings import CLUSTER_WIDE, at_least, boolean, double, integer, long
from strandline.errors import InvalidConfig

KIB = 1024
MIB = 1024 * 1024
DEDUPE_BYTES_PER_THREAD = MIB
"""Each cleaner gets more than this of the buffer for keys, as in Kafka."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StorageSettings:
    """The table of storage settings. Each attribute is the setting of that name with underscores for dots."""

    log_cleaner_enable: bool = boolean(
        "log.cleaner.enable",
        True,
        "Whether topics with `cleanup.policy=compact` are compacted. Internal topics are such; without it they grow.",
    )
    log_cleaner_threads: int = integer(
        "log.cleaner.threads",
        1,
        at_least(0),
        "Logs that are cleaned at a time, each in a process of its own.",
        update=CLUSTER_WIDE,
    )
    log_cleaner_dedupe_buffer_size: int = long(
        "log.cleaner.dedupe.buffer.size",
        128 * MIB,
        None,
        "Memory for the last offsets of keys, for all cleaners together: 24 bytes a key. A log with more dirty keys is "
        "cleaned in several goes. No more is taken than a log needs.",
        update=CLUSTER_WIDE,
    )
    log_cleaner_io_buffer_size: int = integer(
        "log.cleaner.io.buffer.size",
        512 * KIB,
        at_least(0),
        "What a cleaner reads at a time, for all cleaners together.",
        update=CLUSTER_WIDE,
    )
    log_cleaner_io_buffer_load_factor: float = double(
        "log.cleaner.io.buffer.load.factor",
        0.9,
        None,
        "How full the buffer for keys may become.",
        update=CLUSTER_WIDE,
    )
    log_cleaner_io_max_bytes_per_second: float = double(
        "log.cleaner.io.max.bytes.per.second",
        sys.float_info.max,
        None,
        "What all cleaners together may read and write in a second.",
        update=CLUSTER_WIDE,
    )
    log_cleaner_backoff_ms: int = long(
        "log.cleaner.backoff.ms",
        15_000,
        at_least(0),
        "How long the cleaner rests when there is nothing to clean.",
        update=CLUSTER_WIDE,
    )
    log_scrub_interval_ms: int = long(
        "log.scrub.interval.ms",
        7 * 24 * 3_600_000,
        at_least(1),
        "Strandline's own. How often the files of each log are read again, to find what changed on the disk.",
        update=CLUSTER_WIDE,
    )
    log_scrub_max_bytes_per_second: int = long(
        "log.scrub.max.bytes.per.second",
        10 * MIB,
        at_least(1),
        "Strandline's own. What is read for that in a second.",
        update=CLUSTER_WIDE,
    )
    strandline_retention_lock_max_ms: int = long(
        "strandline.retention.lock.max.ms",
        365 * 24 * 3_600_000,
        at_least(0),
        "The longest `strandline.retention.lock.ms` of a topic. Longer ones count as this; with 0 no topic is locked.",
    )


def check_storage(settings: StorageSettings) -> None:
    """Raise InvalidConfig for settings of the cleaner that contradict one another."""
    each = settings.log_cleaner_dedupe_buffer_size // max(1, settings.log_cleaner_threads)
    if each <= DEDUPE_BYTES_PER_THREAD:
        raise InvalidConfig(
            f"log.cleaner.dedupe.buffer.size={settings.log_cleaner_dedupe_buffer_size} is not allowed with "
            f"log.cleaner.threads={settings.log_cleaner_threads}; expected more than 1 MiB for each"
        )
    if not 0 < settings.log_cleaner_io_buffer_load_factor <= 1:
        raise InvalidConfig(
            f"log.cleaner.io.buffer.load.factor={settings.log_cleaner_io_buffer_load_factor} is not allowed; "
            "expected more than 0 and at most 1"
        )

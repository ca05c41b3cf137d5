"""The settings that every task obeys, whatever its connector is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from strandline.connect.config import Config, Long, option

TASK_CLASS: Final = "task.class"
"""What Connect adds to the config of each task."""


MESSAGE_BYTES_MAX: Final = 10_000_000
"""What producers of tasks send at most; the topic decides what it takes."""


class ConnectTaskSettings(Config):
    """Converters and error handling. `connect/validation` declares them for users; here are their values."""

    errors_tolerance: Literal["none", "all"] = option("Whether bad records are left out.", default="none")
    errors_retry_delay_max_ms: Long = option("The longest pause between two attempts.", default=60_000)
    errors_log_enable: bool = option("Whether bad records are logged.", default=False)
    errors_log_include_messages: bool = option("Whether their content is logged.", default=False)
    dead_letters: str = option("Topic of bad records.", default="", name="errors.deadletterqueue.topic.name")
    dead_letter_headers: bool = option(
        "Whether headers tell why.", default=False, name="errors.deadletterqueue.context.headers.enable"
    )
    rate_records: float = option("Records a second, at most.", default=0, name="rate.limit.records", low=0)
    rate_bytes: float = option("Bytes a second, at most.", default=0, name="rate.limit.bytes", low=0)
    topics: list[str] = option("Topics of a sink.", default=[])
    topics_regex: str = option("Pattern of a sink's topics.", default="")
    topic: str = option("Topic of a source.", default="")


def client_overrides(properties: Mapping[str, str], kind: str) -> dict[str, str]:
    """Return settings of librdkafka that a config has for one of its clients, as `producer.override.linger.ms`."""
    prefix = f"{kind}.override."
    return {name.removeprefix(prefix): value for name, value in properties.items() if name.startswith(prefix)}

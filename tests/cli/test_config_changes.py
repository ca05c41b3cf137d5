"""What a change of settings costs, and numbers as people say them."""

from __future__ import annotations

import pytest

from strandline.cli.common.plain_words import duration, setting_value, size
from strandline.cli.config.changes import SettingChange, cost


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (SettingChange("retention.ms", "86400000", "3600000"), "older than 1 hour"),
        (SettingChange("retention.ms", "-1", "3600000"), "older than 1 hour"),
        (SettingChange("retention.ms", None, "3600000"), "older than 1 hour"),
        (SettingChange("retention.ms", "3600000", "86400000"), ""),
        (SettingChange("retention.ms", "3600000", "-1"), ""),
        (SettingChange("log.retention.hours", "168", "24"), "older than 1 day"),
        (SettingChange("log.retention.minutes", "10", "20"), ""),
        (SettingChange("retention.bytes", "-1", "1048576"), "beyond 1 MiB"),
        (SettingChange("log.retention.bytes", "2048", "1024"), "beyond 1 KiB"),
        (SettingChange("cleanup.policy", "delete", "compact"), "only the newest record"),
        (SettingChange("cleanup.policy", "compact", "compact,delete"), "retention.ms"),
        (SettingChange("cleanup.policy", "delete,compact", "delete"), ""),
        (SettingChange("flush.mode", "auto", "async"), "power cut"),
        (SettingChange("flush.mode", "async", "ack"), ""),
        (SettingChange("min.insync.replicas", "2", "1"), "as few as 1"),
        (SettingChange("min.insync.replicas", "1", "2"), ""),
        (SettingChange("unclean.leader.election.enable", "false", "true"), "acknowledged records"),
        (SettingChange("unclean.leader.election.enable", "true", "false"), ""),
        (SettingChange("segment.bytes", "1073741824", "1048576"), ""),
        (SettingChange("retention.ms", "1", None), "log.retention"),
        (SettingChange("retention.ms", "-1", None, ("log.retention.hours", "168")), "older than 1 week"),
        (SettingChange("retention.ms", "1000", None, ("log.retention.hours", "168")), ""),
        (SettingChange("cleanup.policy", "delete", None, ("log.cleanup.policy", "compact")), "only the newest record"),
        (SettingChange("segment.bytes", "1048576", None), ""),
    ],
)
def test_cost(change: SettingChange, words: str) -> None:
    told = cost(change)
    assert words in told
    assert bool(told) == bool(words)


def test_a_change_in_words() -> None:
    assert str(SettingChange("retention.ms", None, "5")) == "retention.ms: unset -> 5"
    assert str(SettingChange("retention.ms", "5", None)) == "retention.ms: 5 -> the default"
    fallback = ("log.retention.hours", "168")
    assert (
        str(SettingChange("retention.ms", "5", None, fallback))
        == "retention.ms: 5 -> the default (log.retention.hours=168)"
    )


@pytest.mark.parametrize(
    ("name", "value", "meaning"),
    [
        ("retention.ms", "604800000", "1 week"),
        ("retention.ms", "90000", "90 seconds"),
        ("retention.ms", "1001", "1,001 ms"),
        ("retention.ms", "-1", "no limit"),
        ("flush.messages", str(2**63 - 1), "never"),
        ("max.compaction.lag.ms", str(2**63 - 1), "no limit"),
        ("segment.bytes", "1073741824", "1 GiB"),
        ("max.message.bytes", "1048588", "1 MiB"),
        ("num.partitions", "12", ""),
        ("cleanup.policy", "delete", ""),
        ("advertised.listeners", None, ""),
    ],
)
def test_what_a_value_means(name: str, value: str | None, meaning: str) -> None:
    assert setting_value(name, value) == meaning


def test_sizes_and_times() -> None:
    assert [size(n) for n in (0, 1023, 1536, 1 << 20, 5 << 40)] == ["0 B", "1,023 B", "1.5 KiB", "1 MiB", "5 TiB"]
    assert [duration(n) for n in (0, 999, 1000, 3_600_000, 5_400_000)] == [
        "0 ms",
        "999 ms",
        "1 second",
        "1 hour",
        "90 minutes",
    ]

"""Settings of groups: what they must be together, and what a single group may have of its own."""

from __future__ import annotations

import pytest

from strandline.broker.coordinating.group_driver import group_config
from strandline.config.node_config import BrokerConfig
from strandline.coordinators.groups.group_config import ConsumerSettings, GroupConfig, MigrationPolicy
from strandline.errors import InvalidConfig


def test_a_node_without_settings_has_the_defaults_of_groups() -> None:
    assert group_config(BrokerConfig.load("")) == GroupConfig()


def test_each_setting_reaches_the_groups() -> None:
    config = group_config(
        BrokerConfig.load(
            "group.consumer.session.timeout.ms=9000\ngroup.consumer.min.session.timeout.ms=8000\n"
            "group.consumer.max.session.timeout.ms=10000\ngroup.consumer.heartbeat.interval.ms=900\n"
            "group.consumer.min.heartbeat.interval.ms=800\ngroup.consumer.max.heartbeat.interval.ms=1000\n"
            "group.consumer.assignment.interval.ms=90\ngroup.consumer.min.assignment.interval.ms=80\n"
            "group.consumer.max.assignment.interval.ms=100\ngroup.consumer.max.size=7\n"
            "group.consumer.assignors=range\ngroup.consumer.migration.policy=UPGRADE\n"
            "group.coordinator.rebalance.protocols=classic\noffsets.retention.minutes=3\n"
            "offsets.retention.check.interval.ms=5\n"
            "group.share.session.timeout.ms=9001\ngroup.share.min.session.timeout.ms=8001\n"
            "group.share.max.session.timeout.ms=10001\ngroup.share.heartbeat.interval.ms=901\n"
            "group.share.min.heartbeat.interval.ms=801\ngroup.share.max.heartbeat.interval.ms=1001\n"
            "group.share.assignment.interval.ms=91\ngroup.share.min.assignment.interval.ms=81\n"
            "group.share.max.assignment.interval.ms=101\ngroup.share.max.size=8"
        )
    )
    assert config.consumer == ConsumerSettings(9_000, 900, 90)
    assert config.consumer_min == ConsumerSettings(8_000, 800, 80)
    assert config.consumer_max == ConsumerSettings(10_000, 1_000, 100)
    assert config.consumer_group_size_max == 7
    assert config.share == ConsumerSettings(9_001, 901, 91)
    assert config.share_min == ConsumerSettings(8_001, 801, 81)
    assert config.share_max == ConsumerSettings(10_001, 1_001, 101)
    assert config.share_group_size_max == 8
    assert config.consumer_assignors == ("range",)
    assert config.consumer_migration_policy is MigrationPolicy.UPGRADE
    assert not config.is_consumer_protocol_enabled
    assert (config.offsets_retention_ms, config.offsets_retention_check_interval_ms) == (180_000, 5)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("group.consumer.session.timeout.ms=1000", "greater than or equal to group.consumer.min.session.timeout.ms"),
        ("group.consumer.session.timeout.ms=70000", "group.consumer.max.session.timeout.ms=60000 must be"),
        ("group.consumer.heartbeat.interval.ms=20000", "group.consumer.max.heartbeat.interval.ms=15000 must be"),
        ("group.consumer.min.session.timeout.ms=70000", "group.consumer.max.session.timeout.ms=60000 must be"),
        ("group.consumer.assignment.interval.ms=15001", "group.consumer.max.assignment.interval.ms=15000 must be"),
        (
            "group.consumer.max.heartbeat.interval.ms=50000\ngroup.consumer.heartbeat.interval.ms=45000",
            "must be less than group.consumer.session.timeout.ms=45000",
        ),
        ("group.coordinator.rebalance.protocols=consumer", "disabling 'classic' is not supported"),
        ("group.consumer.assignors=", "expected each name once"),
        ("group.consumer.assignors=range,range", "expected each name once"),
        ("group.consumer.assignors=org.example.Mine", "expected a list of: uniform, range"),
        ("group.consumer.migration.policy=sometimes", "expected bidirectional, upgrade, downgrade, disabled"),
        ("group.share.session.timeout.ms=1000", "greater than or equal to group.share.min.session.timeout.ms=45000"),
        ("group.share.heartbeat.interval.ms=20000", "group.share.max.heartbeat.interval.ms=15000 must be"),
        ("group.share.max.assignment.interval.ms=999", "group.share.max.assignment.interval.ms=999 must be"),
        ("group.share.record.lock.duration.ms=14000", "greater than or equal to group.share.min.record.lock.duration"),
        ("group.share.delivery.count.limit=11", "expected int, 2 to 10"),
        ("group.share.max.delivery.count.limit=5\ngroup.share.delivery.count.limit=6", "limit=5 must be greater"),
        ("group.share.partition.max.record.locks=5000", "group.share.max.partition.max.record.locks=4000 must be"),
        ("group.share.max.share.sessions=100", "group.share.max.share.sessions=100 must be"),
        (
            "group.share.max.heartbeat.interval.ms=50000\ngroup.share.heartbeat.interval.ms=45000",
            "must be less than group.share.session.timeout.ms=45000",
        ),
        ("group.share.assignors=", "expected one name"),
        ("group.share.assignors=range", "expected a list of: simple"),
    ],
)
def test_what_contradicts_is_refused(content: str, reason: str) -> None:
    with pytest.raises(InvalidConfig, match=reason):
        BrokerConfig.load(content)


@pytest.mark.parametrize("value", ["-1", "15001"])
def test_a_running_node_refuses_what_it_would_not_start_with(value: str) -> None:
    with pytest.raises(InvalidConfig):
        BrokerConfig.load("").with_dynamic({"group.consumer.assignment.interval.ms": value}, {})


def test_a_policy_says_which_ways_are_open() -> None:
    ways = {policy: (policy.allows_upgrade, policy.allows_downgrade) for policy in MigrationPolicy}
    assert ways == {
        MigrationPolicy.BIDIRECTIONAL: (True, True),
        MigrationPolicy.UPGRADE: (True, False),
        MigrationPolicy.DOWNGRADE: (False, True),
        MigrationPolicy.DISABLED: (False, False),
    }


def test_a_group_goes_by_its_own_settings_within_the_limits_of_the_node() -> None:
    own = {
        "mine": {"consumer.session.timeout.ms": "50000", "consumer.assignment.interval.ms": "0"},
        # Allowed when they were set, by a node with other limits.
        "wild": {"consumer.session.timeout.ms": "99000", "consumer.heartbeat.interval.ms": "1"},
        "odd": {"consumer.session.timeout.ms": "long", "consumer.heartbeat.interval.ms": "6000"},
    }
    config = GroupConfig(overrides=lambda group_id: own.get(group_id, {}))
    assert config.consumer_settings("other") is config.consumer
    assert config.consumer_settings("mine") == ConsumerSettings(50_000, 5_000, 0)
    assert config.consumer_settings("wild") == ConsumerSettings(60_000, 5_000, 1_000)
    assert config.consumer_settings("odd") == ConsumerSettings(45_000, 6_000, 1_000)


def test_a_share_group_goes_by_its_own_settings_within_the_limits_of_the_node() -> None:
    own = {"mine": {"share.session.timeout.ms": "99000", "share.heartbeat.interval.ms": "6000"}}
    config = GroupConfig(overrides=lambda group_id: own.get(group_id, {}))
    assert config.share_settings("other") is config.share
    assert config.share_settings("mine") == ConsumerSettings(60_000, 6_000, 1_000)

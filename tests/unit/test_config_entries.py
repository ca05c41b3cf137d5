"""The entries of DescribeConfigs: the value in force, its source, and the values it would fall back to."""

from __future__ import annotations

from strandline.config.entries import (
    ConfigEntry,
    broker_entries,
    default_broker_entries,
    group_entries,
    logger_entries,
    topic_entries,
)
from strandline.config.node_config import BrokerConfig
from strandline.config.node_settings import NODE_SETTINGS, REFUSED_SETTINGS

CONFIG = BrokerConfig.load("message.max.bytes=1000\nlog.retention.hours=1\nlog.preallocate=TRUE").with_dynamic(
    {"message.max.bytes": "+2000", "of.a.plugin": "secret"}, {"message.max.bytes": "3000", "log.retention.ms": "5"}
)


def of_broker(name: str) -> ConfigEntry:
    return next(entry for entry in broker_entries(CONFIG) if entry.name == name)


def test_synonyms_stand_in_the_order_in_which_they_would_hold() -> None:
    entry = of_broker("message.max.bytes")
    assert (entry.value, entry.source, entry.read_only, entry.config_type) == ("3000", 2, False, 3)
    assert entry.synonyms == (
        ("message.max.bytes", "3000", 2),
        ("message.max.bytes", "+2000", 3),
        ("message.max.bytes", "1000", 4),
        ("message.max.bytes", "1048588", 5),
    )


def test_other_names_of_a_setting_are_its_synonyms_from_its_own_name_on() -> None:
    assert of_broker("log.retention.ms").synonyms == (
        ("log.retention.ms", "5", 2),
        ("log.retention.hours", "1", 4),
        ("log.retention.hours", "168", 5),
    )
    hours = of_broker("log.retention.hours")
    assert hours.synonyms == (("log.retention.hours", "1", 4), ("log.retention.hours", "168", 5))
    assert (hours.value, hours.config_type, hours.read_only) == ("1", 3, True)
    minutes = of_broker("log.retention.minutes")
    assert (minutes.value, minutes.source, minutes.synonyms) == (None, 5, ())


def test_a_value_is_told_as_it_was_understood() -> None:
    assert of_broker("log.preallocate").value == "true"
    (described,) = [entry for entry in default_broker_entries(CONFIG) if entry.name == "message.max.bytes"]
    assert (described.value, described.source, described.synonyms) == ("2000", 3, (("message.max.bytes", "+2000", 3),))


def test_what_nobody_knows_may_be_a_secret() -> None:
    for entry in (of_broker("of.a.plugin"), next(e for e in default_broker_entries(CONFIG) if e.name == "of.a.plugin")):
        assert (entry.value, entry.is_sensitive, entry.read_only, entry.config_type) == (None, True, True, 0)
        assert entry.synonyms == (("of.a.plugin", None, 3),)


def test_the_clusters_defaults_are_nothing_but_what_was_set() -> None:
    assert {entry.name for entry in default_broker_entries(CONFIG)} == {"message.max.bytes", "of.a.plugin"}
    assert list(default_broker_entries(BrokerConfig())) == []


def test_a_broker_tells_all_it_takes_and_nothing_that_it_refuses() -> None:
    described = {entry.name for entry in broker_entries(BrokerConfig())}
    hidden = {name for name, each in NODE_SETTINGS.items() if each.setting.hidden}
    assert described == set(NODE_SETTINGS) - hidden
    assert not described & set(REFUSED_SETTINGS)


def test_a_topic_falls_back_to_the_node() -> None:
    entries = {entry.name: entry for entry in topic_entries(CONFIG, {"max.message.bytes": "500", "of.tomorrow": "x"})}
    mine, other = entries["max.message.bytes"], entries["retention.ms"]
    assert (mine.value, mine.source, mine.synonyms[:2]) == (
        "500",
        1,
        (("max.message.bytes", "500", 1), ("message.max.bytes", "3000", 2)),
    )
    assert (other.value, other.source, other.synonyms[0]) == ("5", 2, ("log.retention.ms", "5", 2))
    assert not any(entry.read_only for entry in entries.values())
    assert "of.tomorrow" not in entries


def test_a_group_falls_back_to_the_node() -> None:
    config = BrokerConfig.load("group.consumer.session.timeout.ms=50000")
    entries = {entry.name: entry for entry in group_entries(config, {"share.isolation.level": "read_committed"})}
    session, isolation = entries["consumer.session.timeout.ms"], entries["share.isolation.level"]
    assert (session.value, session.source) == ("50000", 4)
    assert isolation.synonyms == (
        ("share.isolation.level", "read_committed", 8),
        ("share.isolation.level", "read_uncommitted", 5),
    )


def test_levels_of_loggers() -> None:
    (entry,) = logger_entries({"root": "INFO"})
    assert (entry.value, entry.source, entry.read_only, entry.synonyms) == ("INFO", 6, False, ())

"""Settings of several listeners: names, protocols, the one between brokers, and settings of one listener alone."""

from __future__ import annotations

import pytest

from strandline.config.entries import broker_entries
from strandline.config.node_config import BrokerConfig
from strandline.errors import InvalidConfig

TWO = "listeners=INSIDE://:9092,OUTSIDE://:9094\n"


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("", ("INSIDE", 0)),
        ("inter.broker.listener.name=outside", ("OUTSIDE", 0)),
        ("security.inter.broker.protocol=PLAINTEXT", ("INSIDE", 0)),
        ("listeners=OUTSIDE://:1,PLAINTEXT://:2", ("PLAINTEXT", 0)),
        ("listeners=C://:1,FIRST://:2,SECOND://:3\ncontroller.listener.names=C", ("FIRST", 0)),
    ],
)
def test_the_listener_between_brokers(more: str, expected: tuple[str, int]) -> None:
    assert BrokerConfig.load(TWO + more).inter_broker_listener() == expected


def test_a_controller_needs_no_listener_of_brokers() -> None:
    config = BrokerConfig.load(
        "process.roles=controller\nlisteners=C://:1\ncontroller.listener.names=C\n"
        "controller.quorum.voters=1@localhost:1"
    )
    assert config.inter_broker_listener() == (None, 0)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (TWO + "inter.broker.listener.name=MIDDLE", "inter.broker.listener.name=MIDDLE is none of listeners"),
        (
            TWO + "inter.broker.listener.name=INSIDE\nsecurity.inter.broker.protocol=PLAINTEXT",
            "both inter.broker.listener.name and security.inter.broker.protocol",
        ),
        (TWO + "advertised.listeners=INSIDE://a:1,ELSEWHERE://b:2", "advertised.listeners has ELSEWHERE"),
        (TWO + "listener.security.protocol.map=INSIDE:TELNET", "has 'INSIDE:TELNET'; expected NAME:PROTOCOL"),
        (TWO + "listener.security.protocol.map=INSIDE", "expected NAME:PROTOCOL"),
        ("listeners=A://:1,A://:2", "a name of its own"),
        ("listeners=A://127.0.0.1:1,B://0.0.0.0:2", "expected advertised.listeners=B://HOST:2"),
        (TWO + "security.inter.broker.protocol=TELNET", "security.inter.broker.protocol='TELNET' is not allowed"),
        (TWO + "listener.name.inside.max.connections=many", "max.connections='many' is not allowed"),
    ],
)
def test_contradictions_are_refused_in_a_sentence(settings: str, why: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        BrokerConfig.load(settings)
    assert why in str(refused.value)


def test_a_listener_has_settings_of_its_own() -> None:
    config = BrokerConfig.load(TWO + "listener.name.inside.max.connections=7\nmax.connections=9")
    assert not config.warnings
    assert config.listener_text("INSIDE", "max.connections") == "7"
    assert config.listener_text("OUTSIDE", "max.connections") == "9"
    assert config.listener_text("OUTSIDE", "max.connections.per.ip.overrides") == ""
    assert config.listener_number("INSIDE", "max.connections") == 7
    assert config.listener_number("OUTSIDE", "max.connections") is None
    changed = config.with_dynamic({}, {"listener.name.inside.max.connections": "8"})
    assert changed.listener_text("inside", "max.connections") == "8"
    with pytest.raises(InvalidConfig):
        config.with_dynamic({}, {"listener.name.inside.max.connections": "many"})


def test_the_setting_of_a_mechanism_wins_over_that_of_its_listener() -> None:
    config = BrokerConfig.load(
        TWO + "listener.name.inside.plain.max.connections=1\nlistener.name.inside.max.connections=2"
    )
    assert config.listener_text("INSIDE", "max.connections", "PLAIN") == "1"
    assert config.listener_text("INSIDE", "max.connections", "SCRAM-SHA-256") == "2"
    assert config.listener_text("OUTSIDE", "max.connections", "PLAIN") == "16384"


def test_settings_of_a_listener_are_described() -> None:
    config = BrokerConfig.load(TWO + "listener.name.inside.max.connections=7")
    config = config.with_dynamic({}, {"listener.name.inside.max.connections": "8"})
    (entry,) = [each for each in broker_entries(config) if each.name == "listener.name.inside.max.connections"]
    assert (entry.value, entry.is_sensitive) == ("8", False)
    assert [each.value for each in entry.synonyms] == ["8", "7"]


def test_what_no_listener_has_of_its_own_is_ignored_with_a_warning() -> None:
    config = BrokerConfig.load(TWO + "listener.name.inside.num.partitions=7")
    assert config.num_partitions == 1
    assert "listener.name.inside.num.partitions is unknown and was ignored" in config.warnings[0]


@pytest.mark.parametrize(
    ("settings", "exposed"),
    [
        ("", 0),
        ("listeners=PLAINTEXT://localhost:9092", 0),
        ("listeners=PLAINTEXT://[::1]:9092", 0),
        ("listeners=PLAINTEXT://:9092", 1),
        ("listeners=PLAINTEXT://10.0.0.1:9092", 1),
        ("listeners=A://broker-1:9092,B://127.0.0.1:9093,C://broker-1:9094\ncontroller.listener.names=C", 2),
        ("listeners=SSL://broker-1:9092", 1),
        ("listeners=SSL://broker-1:9092\nssl.client.auth=requested", 1),
        ("listeners=SSL://broker-1:9092\nssl.client.auth=required", 0),
        ("listeners=A://broker-1:1\nlistener.security.protocol.map=A:SSL\nlistener.name.a.ssl.client.auth=required", 0),
    ],
)
def test_listeners_that_serve_other_machines_without_authentication(settings: str, exposed: int) -> None:
    assert len(BrokerConfig.load(settings).exposed_listeners()) == exposed


def test_the_http_door_has_a_name_of_its_own() -> None:
    config = BrokerConfig.load("http.security.protocol=SSL")
    assert config.tls_listeners() == {"HTTP": True}
    with pytest.raises(InvalidConfig, match="has the name HTTP"):
        BrokerConfig.load("http.security.protocol=SSL\nlisteners=HTTP://:1")

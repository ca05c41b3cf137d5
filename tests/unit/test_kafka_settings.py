"""Every setting of Apache Kafka is declared here or stands in the table of others, with a verdict and a reason."""

from __future__ import annotations

from typing import Any

import pytest
from bench.brokers import Broker
from tests.clients.kafka_server import kafka as kafka  # the fixture
from tests.hostile.peer import Peer, raw_request

from strandline.codec.message_codec import decode_exact, encode
from strandline.codec.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from strandline.codec.messages.describe_configs_response import DescribeConfigsResponse
from strandline.config.kafka_settings import NO_EFFECT, OTHER_SETTINGS, REFUSED, OtherSetting
from strandline.config.node_config import BrokerConfig
from strandline.config.settings import settings_of, text_of
from strandline.config.topic_config import TopicConfig

DESCRIBE_CONFIGS = 32
VERSION = 3
TOPIC, BROKER = 2, 4
SOURCE_DEFAULT = 5
KINDS = ("", "boolean", "string", "int", "short", "long", "double", "list", "class", "password")

HIDDEN = {
    "internal.segment.bytes",
    "producer.id.expiration.check.interval.ms",
    # Settings of its authorizer, which Kafka hands on unread.
    "super.users",
    "allow.everyone.if.no.acl.found",
}
"""Settings that Kafka does not show."""

DIFFERENT: dict[str, str] = {
    "node.id": "Kafka has none: every node must be given one. A first node is simply 1.",
    "broker.id": "an older name of node.id; in Kafka it is -1 where it is not set.",
    "process.roles": "Kafka has none; one node is broker and controller.",
    "log.dirs": "Kafka has none, and log.dir is /tmp/kafka-logs, which the system may clean away.",
    "log.dir": "likewise.",
    "listeners": "Kafka listens on every interface; without TLS and authentication we stay on loopback.",
    "queued.max.request.bytes": "Kafka has no limit; our memory is bounded unless you ask otherwise.",
    "socket.send.buffer.bytes": "102400 in Kafka, which stops the system from fitting buffers to the connection.",
    "socket.receive.buffer.bytes": "likewise.",
    "socket.listen.backlog.size": "50 in Kafka; many clients that come back at once would be turned away.",
    "max.connections": "Kafka has no limit; here there is a cap unless you ask otherwise.",
    "controller.listener.names": "empty in Kafka's words is null, and in ours an empty list.",
    "listener.security.protocol.map": "Kafka maps names of protocols to themselves; here every listener is PLAINTEXT.",
}
"""Where our default is meant to be another, and why."""


def declared() -> dict[tuple[int, str], tuple[str, str | None]]:
    """(kind, default) of every setting that is declared, by whose it is and its name."""
    found: dict[tuple[int, str], tuple[str, str | None]] = {}
    for _, setting in settings_of(BrokerConfig):
        found[BROKER, setting.name] = setting.kind, text_of(setting.default)
        for synonym in setting.synonyms:
            found[BROKER, synonym.name] = setting.kind, text_of(setting.default)
    for _, setting in settings_of(TopicConfig):
        found[TOPIC, setting.name] = setting.kind, text_of(setting.default)
        for synonym in setting.synonyms:
            # Of several names the last holds the default; those before it override it once they are set.
            default: Any = setting.default if synonym is setting.synonyms[-1] else None
            if synonym.factor > 1 and default is not None:
                default //= synonym.factor
            found[BROKER, synonym.name] = "int" if synonym.factor > 1 else setting.kind, text_of(default)
    return found


def others() -> dict[tuple[int, str], OtherSetting]:
    return {(TOPIC if other.is_topic else BROKER, other.name): other for other in OTHER_SETTINGS}


def test_a_setting_stands_in_one_place() -> None:
    assert len(others()) == len(OTHER_SETTINGS), "a name twice"
    both = declared().keys() & others().keys()
    assert not both, f"declared now, so take them out of kafka_settings.txt: {sorted(name for _, name in both)}"


def test_every_other_setting_says_what_becomes_of_it_and_why() -> None:
    for other in OTHER_SETTINGS:
        assert other.verdict in (REFUSED, NO_EFFECT)
        assert other.kind in KINDS[1:]
        assert other.reason.endswith(".")


@pytest.mark.parametrize(
    ("name", "raw", "asks"),
    [
        ("ssl.provider", "BC", True),
        ("ssl.provider", "", False),
        ("ssl.keymanager.algorithm", "SunX509", False),
        ("ssl.keymanager.algorithm", "PKIX", True),
        ("create.topic.policy.class.name", "", False),
        ("create.topic.policy.class.name", "com.example.Policy", True),
        ("transaction.two.phase.commit.enable", "False", False),
        ("transaction.two.phase.commit.enable", "true", True),
        ("config.providers", "file", True),
    ],
)
def test_only_what_asks_for_more_is_refused(name: str, raw: str, asks: bool) -> None:
    other = others()[BROKER, name]
    assert other.verdict == REFUSED
    assert other.asks_for_more(raw) == asks


def described(kafka: Broker, resource_type: int, name: str) -> dict[tuple[int, str], tuple[str, str | None]]:
    """What Kafka says of itself: kind and default by name."""
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=resource_type, resource_name=name, configuration_keys=None)],
        include_synonyms=True,
    )
    with Peer(kafka.port) as peer:
        content = peer.ask_raw(raw_request(DESCRIBE_CONFIGS, VERSION, encode(request, VERSION)))
    assert content is not None
    (result,) = decode_exact(DescribeConfigsResponse, VERSION, content, 4).results
    assert result.error_code == 0
    found = {}
    for config in result.configs:
        if resource_type == TOPIC:
            # Its default comes from the broker, perhaps in hours and under another name; nothing was set there.
            default = config.value
        else:
            default = next((synonym.value for synonym in config.synonyms if synonym.source == SOURCE_DEFAULT), None)
        found[resource_type, config.name] = KINDS[config.config_type], default
    return found


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_table_is_kafkas(kafka: Broker) -> None:
    kafka.create_topic("table-of-settings", 1, {})
    theirs = described(kafka, BROKER, "1") | described(kafka, TOPIC, "table-of-settings")
    ours = declared()
    ours |= {where: (other.kind, other.default) for where, other in others().items()}
    our_own = {
        setting.name
        for config_class in (BrokerConfig, TopicConfig)
        for _, setting in settings_of(config_class)
        if setting.doc.startswith("Strandline's own.")
    }
    ours = {where: what for where, what in ours.items() if where[1] not in our_own | HIDDEN}

    missing = theirs.keys() - ours.keys()
    assert not missing, f"settings of Kafka that stand nowhere: {sorted(missing)}"
    unlike = {
        name: f"we say {ours[whose, name]}, Kafka says {what}"
        for (whose, name), what in theirs.items()
        if name not in DIFFERENT and ours[whose, name] != what
    }
    assert not unlike, "\n".join(f"{name}: {how}" for name, how in unlike.items())
    alike = {name for (whose, name), what in theirs.items() if name in DIFFERENT and ours[whose, name] == what}
    assert not alike, f"no longer different: {sorted(alike)}"
    assert not (unknown := ours.keys() - theirs.keys()), f"Kafka has no {sorted(unknown)}"

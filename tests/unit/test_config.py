"""Settings: where they come from, which values are refused and in which words, and that the docs say all of it."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.config.docs import configuration_page
from strandline.config.listeners import ListenerAddress, parse_listeners
from strandline.config.node_config import BrokerConfig, TopicConfig
from strandline.config.node_settings import refusal_of_change
from strandline.config.properties import format_properties, parse_properties
from strandline.config.settings import LONG_MAX, environment_name, settings_of, text_of
from strandline.config.topic_config import TOPIC_SETTINGS, other_topic_settings
from strandline.errors import InvalidConfig

REPOSITORY = Path(__file__).parents[2]

# A server.properties as Apache Kafka ships it, without its comments.
STOCK = """
############################# Server Basics #############################
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=2
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def test_a_stock_server_properties_is_understood_without_a_warning() -> None:
    config = BrokerConfig.load(STOCK)
    assert config.warnings == ()
    assert config.client_listeners() == [ListenerAddress("PLAINTEXT", "", 9092)]
    assert config.advertised()[0] == ListenerAddress("PLAINTEXT", "localhost", 9092)
    assert config.log_dirs == ("/tmp/kraft-combined-logs",)
    assert config.topic_defaults == TopicConfig()


def test_nothing_set_is_the_default() -> None:
    config = BrokerConfig.load()
    assert config == BrokerConfig()
    for config_class, instance in ((BrokerConfig, config), (TopicConfig, config.topic_defaults)):
        for attribute, setting in settings_of(config_class):
            assert getattr(instance, attribute) == setting.default


@pytest.mark.parametrize("config_class", [BrokerConfig, TopicConfig])
def test_every_default_is_itself_allowed(config_class: type) -> None:
    for _, setting in settings_of(config_class):
        shown = text_of(setting.default)
        if shown is not None:
            assert setting.parse(shown) == setting.default, setting.name


def test_later_sources_win() -> None:
    environ = {"STRANDLINE_NUM_PARTITIONS": "2", "STRANDLINE_NODE_ID": "2", "HOME": "/", "STRANDLINE_BOOTSTRAP": "x:1"}
    config = BrokerConfig.load("num.partitions=1\nnode.id=1\nlog.dirs=a", {"num.partitions": "3"}, environ)
    assert (config.num_partitions, config.node_id, config.log_dirs) == (3, 2, ("a",))
    assert config.warnings == ()
    assert environment_name("log.segment.bytes") == "STRANDLINE_LOG_SEGMENT_BYTES"


def test_topic_wins_over_broker_wins_over_default() -> None:
    config = BrokerConfig.load("log.segment.bytes=2000000\nflush.mode=ack")
    assert TopicConfig().segment_bytes == 1 << 30
    assert config.topic_config({}).segment_bytes == 2_000_000
    assert config.topic_config({"segment.bytes": "3000000"}).segment_bytes == 3_000_000
    assert config.topic_config({"flush.mode": "async"}).flush_mode == "async"
    assert config.topic_config({}) is config.topic_defaults


@pytest.mark.parametrize(
    ("text", "attribute", "value"),
    [
        ("log.retention.ms=5", "retention_ms", 5),
        ("log.retention.minutes=2", "retention_ms", 120_000),
        ("log.retention.hours=1", "retention_ms", 3_600_000),
        ("log.retention.hours=-5", "retention_ms", -1),
        ("log.retention.hours=1\nlog.retention.minutes=2", "retention_ms", 120_000),
        ("log.retention.hours=1\nlog.retention.minutes=2\nlog.retention.ms=5", "retention_ms", 5),
        ("log.roll.hours=2", "segment_ms", 7_200_000),
        ("log.roll.hours=2\nlog.roll.ms=9", "segment_ms", 9),
        ("log.flush.scheduler.interval.ms=7", "flush_ms", 7),
        ("log.flush.scheduler.interval.ms=7\nlog.flush.interval.ms=6", "flush_ms", 6),
        ("message.max.bytes=77", "max_message_bytes", 77),
        ("log.cleanup.policy=compact, delete", "cleanup_policy", ("compact", "delete")),
        ("compression.type=zstd", "compression_type", "zstd"),
        ("internal.segment.bytes=1000", "segment_bytes", 1000),
    ],
)
def test_the_brokers_names_for_topic_settings(text: str, attribute: str, value: object) -> None:
    assert getattr(BrokerConfig.load(text).topic_defaults, attribute) == value


def test_what_the_data_path_reads_is_derived() -> None:
    plain = TopicConfig()
    assert (plain.compact, plain.compression_codec, plain.log_append_time) == (False, -1, False)
    config = plain.with_overrides(
        {"cleanup.policy": "compact", "compression.type": "lz4", "message.timestamp.type": "LogAppendTime"}
    )
    assert (config.compact, config.compression_codec, config.log_append_time) == (True, 3, True)
    assert TopicConfig(compression_type="uncompressed").compression_codec == 0


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("num.partitions", "0"),
        ("num.partitions", "many"),
        ("num.partitions", "1.5"),
        ("num.partitions", "1_000"),
        ("num.partitions", "٣"),
        ("num.partitions", ""),
        ("num.partitions", str(2**31)),
        ("log.retention.ms", str(2**63)),
        ("log.retention.ms", "-2"),
        ("log.segment.bytes", "1000"),
        ("auto.create.topics.enable", "yes"),
        ("flush.mode", "sometimes"),
        ("compression.type", "LZ4"),
        ("log.cleanup.policy", "shred"),
        ("log.cleaner.min.cleanable.ratio", "1.5"),
        ("log.cleaner.min.cleanable.ratio", "nan"),
        ("log.roll.hours", "0"),
        ("listeners", "localhost:9092"),
        ("listeners", "PLAINTEXT://localhost"),
        ("listeners", "PLAINTEXT://localhost:70000"),
        ("listeners", "A://h:1,A://h:2"),
        ("advertised.listeners", "PLAINTEXT://a b:1"),
        ("log.dirs", "a,b"),
        ("log.dirs", ""),
        ("process.roles", "king"),
        ("node.id", "-1"),
    ],
)
def test_a_value_that_is_not_allowed_is_named_with_its_file_and_what_is_allowed(name: str, raw: str) -> None:
    with pytest.raises(InvalidConfig) as refusal:
        BrokerConfig.load(f"{name}={raw}", file_name="my.properties")
    said = str(refusal.value)
    assert name in said
    assert "expected" in said or "needs" in said
    if name != "log.dirs":
        assert "my.properties" in said
    with pytest.raises(InvalidConfig, match="environment" if name != "log.dirs" else name):
        BrokerConfig.load("", {}, {environment_name(name): raw})


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"segment.byte": "1"}, "Unknown topic config name: segment.byte"),
        ({"log.segment.bytes": "1048576"}, "Unknown topic config name"),
        ({"segment.bytes": "1"}, "at least 1048576"),
        ({"segment.bytes": None}, "no value"),
        ({"max.compaction.lag.ms": "1", "min.compaction.lag.ms": "2"}, "above"),
        ({"cleanup.policy": "compact;delete"}, "delete, compact"),
    ],
)
def test_topic_overrides_that_are_refused(overrides: dict[str, str | None], said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        BrokerConfig().topic_config(overrides)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("num.partitons", "is unknown; did you mean num.partitions?"),
        ("log.segment.byte", "is unknown; did you mean log.segment.bytes?"),
        ("segment.bytes", "is a setting of topics, not of nodes; the default of all topics is log.segment.bytes"),
    ],
)
def test_a_name_that_was_mistyped_is_refused(name: str, said: str) -> None:
    with pytest.raises(InvalidConfig, match=re.escape(f"my.properties: {name} {said}")):
        BrokerConfig.load(f"{name}=1", file_name="my.properties")


def test_a_name_of_something_else_is_a_warning_in_a_file_and_refused_on_the_command_line() -> None:
    (warning,) = BrokerConfig.load("zookeeper.connect=1", file_name="my.properties").warnings
    assert warning == "my.properties: zookeeper.connect is unknown and was ignored"
    with pytest.raises(InvalidConfig, match=r"-X: zookeeper\.connect is unknown; docs/configuration\.md has all"):
        BrokerConfig.load(overrides={"zookeeper.connect": "1"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", {"a": "1"}),
        ("a = 1 ", {"a": "1 "}),
        ("a:1", {"a": "1"}),
        ("a 1", {"a": "1"}),
        ("a", {"a": ""}),
        ("  a=1\n\n# c=2\n! d=3\n\tb=2", {"a": "1", "b": "2"}),
        ("a=1\\\n   2", {"a": "12"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a\\ b\\=c=1", {"a b=c": "1"}),
        ("a=\\u00e4\\t\\x", {"a": "ä\tx"}),
        ("a=b=c", {"a": "b=c"}),
        ("a=#no comment", {"a": "#no comment"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=\u2028x", {"a": "\u2028x"}),
        ("a=1\\", {"a": "1"}),
        ("", {}),
    ],
)
def test_properties_syntax(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_properties_both_ways(properties: dict[str, str]) -> None:
    assert parse_properties(format_properties(properties)) == properties


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("PLAINTEXT://127.0.0.1:0", [ListenerAddress("PLAINTEXT", "127.0.0.1", 0)]),
        ("plaintext://:9092", [ListenerAddress("PLAINTEXT", "", 9092)]),
        ("A://[::1]:1, B://host.example:2", [ListenerAddress("A", "::1", 1), ListenerAddress("B", "host.example", 2)]),
    ],
)
def test_listeners(raw: str, expected: list[ListenerAddress]) -> None:
    assert parse_listeners(raw) == expected


def test_listeners_of_controllers_are_not_for_clients() -> None:
    config = BrokerConfig.load("listeners=INSIDE://:9092,C://:9093\ncontroller.listener.names=C")
    assert config.client_listeners() == [ListenerAddress("INSIDE", "", 9092)]


def test_a_node_needs_a_listener_for_clients() -> None:
    with pytest.raises(InvalidConfig, match="no listener for clients"):
        BrokerConfig.load("listeners=C://:1\ncontroller.listener.names=C")


def test_a_config_cannot_change_under_its_readers() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        BrokerConfig().num_partitions = 2  # type: ignore[misc]


def test_dynamic_settings_stand_over_the_file_and_the_broker_over_the_cluster() -> None:
    config = BrokerConfig.load("message.max.bytes=1000\nlog.retention.hours=1\nnum.partitions=7")
    cluster = config.with_dynamic({"message.max.bytes": "2000", "log.retention.ms": "5"}, {})
    broker = config.with_dynamic({"message.max.bytes": "2000"}, {"message.max.bytes": "3000", "of.a.plugin": "x"})
    assert [each.topic_defaults.max_message_bytes for each in (config, cluster, broker)] == [1000, 2000, 3000]
    assert [each.topic_defaults.retention_ms for each in (config, cluster, broker)] == [3_600_000, 5, 3_600_000]
    assert {each.num_partitions for each in (config, cluster, broker)} == {7}
    assert broker.with_dynamic({}, {}) == config
    assert broker.text("message.max.bytes") == "3000"
    sources = {entry.name: entry.source for entry in cluster.topic_config_entries({})}
    assert (sources["max.message.bytes"], sources["retention.ms"], sources["flush.ms"]) == (3, 3, 5)


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("message.max.bytes", "many"),
        ("max.connections", "0"),
        ("max.connections.per.ip", "0"),
        ("max.connections.per.ip.overrides", "127.0.0.1"),
        ("log.cleaner.threads", "many"),
    ],
)
def test_a_dynamic_value_that_is_not_allowed(name: str, raw: str) -> None:
    for levels in (({name: raw}, {}), ({}, {name: raw})):
        with pytest.raises(InvalidConfig, match=re.escape(name)):
            BrokerConfig().with_dynamic(*levels)


@pytest.mark.parametrize(
    ("name", "for_one_broker", "may_change"),
    [
        ("message.max.bytes", True, True),
        ("message.max.bytes", False, True),
        ("num.partitions", True, False),
        ("log.retention.ms", False, True),
        ("log.retention.hours", False, False),
        ("listener.security.protocol.map", True, True),
        ("listener.security.protocol.map", False, False),
        ("ssl.keystore.password", True, False),
        ("listener.name.outside.ssl.keystore.password", True, True),
        ("listener.name.outside.ssl.keystore.password", False, False),
        ("ssl.client.auth", True, False),
        ("listener.name.outside.ssl.client.auth", True, False),
        ("log.cleaner.threads", False, True),
        ("replica.fetch.min.bytes", False, False),
        ("of.a.plugin", False, True),
    ],
)
def test_what_may_change_while_a_node_runs(name: str, for_one_broker: bool, may_change: bool) -> None:
    assert (refusal_of_change(name, for_one_broker=for_one_broker) is None) == may_change


def test_a_running_node_is_not_told_to_look_secure() -> None:
    for mapped in ("PLAINTEXT:SSL", "PLAINTEXT:SASL_PLAINTEXT"):
        with pytest.raises(InvalidConfig, match="which is of PLAINTEXT until the node is started again"):
            BrokerConfig().with_dynamic({}, {"listener.security.protocol.map": mapped})
    BrokerConfig().with_dynamic({}, {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"})


def test_a_refused_setting_stops_the_start_unless_it_asks_for_nothing() -> None:
    with pytest.raises(InvalidConfig, match=r"my.properties: ssl\.provider is refused\. Names a class"):
        BrokerConfig.load("ssl.provider=BC", file_name="my.properties")
    with pytest.raises(InvalidConfig, match="environment"):
        BrokerConfig.load("", {}, {"STRANDLINE_SSL_PROVIDER": "BC"})
    assert BrokerConfig.load("ssl.client.auth=none").warnings == ()


def test_settings_without_effect_are_named_in_one_warning() -> None:
    config = BrokerConfig.load("background.threads=2\nnum.replica.fetchers=3\nnum.io.threads=9")
    assert len(config.warnings) == 1
    assert "without effect here: background.threads, num.replica.fetchers;" in config.warnings[0]
    with pytest.raises(InvalidConfig, match=r"background\.threads='many' is not allowed"):
        BrokerConfig.load("background.threads=many")


def test_a_stored_override_that_is_not_understood_is_passed_over() -> None:
    stored = {"flush.ms": "7", "segment.bytes": "1", "of.tomorrow": "x"}
    assert TopicConfig().with_stored(stored) == TopicConfig(flush_ms=7)
    with pytest.raises(InvalidConfig):
        TopicConfig().with_overrides(stored)


def test_entries_of_a_topic_tell_value_and_source() -> None:
    entries = {
        entry.name: entry for entry in BrokerConfig.load("log.roll.hours=1").topic_config_entries({"flush.ms": "9"})
    }
    assert (entries["flush.ms"].value, entries["flush.ms"].source) == ("9", 1)
    assert (entries["segment.ms"].value, entries["segment.ms"].source) == ("3600000", 4)
    assert (entries["flush.messages"].value, entries["flush.messages"].source) == (str(LONG_MAX), 5)
    assert "internal.segment.bytes" not in entries
    assert set(entries) | {"internal.segment.bytes"} == set(TOPIC_SETTINGS) | set(other_topic_settings())
    assert (entries["local.retention.ms"].value, entries["local.retention.ms"].source) == ("-2", 5)


@pytest.mark.parametrize("config_class", [BrokerConfig, TopicConfig])
def test_a_setting_without_a_reader_says_that_it_has_no_effect(config_class: type) -> None:
    sources = (path for path in (REPOSITORY / "src").rglob("*.py") if path.parent.name != "config")
    text = "\n".join(path.read_text() for path in sources)
    read = set(re.findall(r"\.([a-z0-9_]+)\b", text))
    through = {
        "listeners": "client_listeners",
        "controller_listener_names": "client_listeners",
        "process_roles": "is_controller",
        "default_replication_factor": "replication_factor_of_new_topics",
        "advertised_listeners": "advertised",
        "listener_security_protocol_map": "client_listeners",
        "inter_broker_listener_name": "inter_broker_listener",
        "security_inter_broker_protocol": "inter_broker_listener",
        "internal_segment_bytes": "segment_bytes",
        "delay_max_ms": "timestamp_after_max_ms",
        "cleanup_policy": "compact",
        "compression_type": "compression_codec",
        "message_timestamp_type": "log_append_time",
        "max_connections_per_ip_overrides": "per_host_overrides",
        "super_users": "super_user_names",
        "strandline_audit_enable": "is_audited",
        "sasl_enabled_mechanisms": "listener_text",
        "sasl_oauthbearer_jwks_endpoint_url": "listener_text",
        "sasl_oauthbearer_jwks_endpoint_refresh_ms": "listener_text",
        "sasl_oauthbearer_jwks_endpoint_retry_backoff_ms": "listener_text",
        "sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms": "listener_text",
        "sasl_oauthbearer_clock_skew_seconds": "listener_text",
        "sasl_oauthbearer_expected_audience": "listener_text",
        "sasl_oauthbearer_expected_issuer": "listener_text",
        "sasl_oauthbearer_scope_claim_name": "listener_text",
        "sasl_oauthbearer_sub_claim_name": "listener_text",
        "sasl_jaas_config": "listener_text",
        "sasl_server_max_receive_size": "listener_text",
        "connections_max_reauth_ms": "listener_text",
        "strandline_sasl_plain_credentials": "listener_text",
        "strandline_sasl_plain_without_tls": "listener_text",
    }
    for attribute, setting in settings_of(config_class):
        if setting.effect:
            # Those of a listener are read by their names.
            is_read = through.get(attribute, attribute) in read or f'"{setting.name}"' in text
            assert is_read, f"{setting.name}: honour it, or declare effect=False"


def test_the_documentation_is_the_table() -> None:
    page = (REPOSITORY / "docs" / "configuration.md").read_text()
    assert page == configuration_page(), "run: python -m strandline.config.docs > docs/configuration.md"


@pytest.mark.parametrize(
    "content",
    [
        "listeners=sasl_plaintext://127.0.0.1:9093",
        "listeners=EXTERNAL://:9093\nlistener.security.protocol.map=EXTERNAL:SASL_SSL",
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\ncontroller.listener.names=CONTROLLER\n"
        "listener.security.protocol.map=CONTROLLER:SASL_SSL,PLAINTEXT:PLAINTEXT",
    ],
)
def test_nothing_pretends_to_be_secure(content: str) -> None:
    with pytest.raises(InvalidConfig, match=r"GSSAPI"):
        BrokerConfig.load(content)


SASL = "listeners=SASL_PLAINTEXT://127.0.0.1:9092\n"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (SASL, "GSSAPI"),
        (SASL + "sasl.enabled.mechanisms=SCRAM-SHA-512,GSSAPI", "GSSAPI"),
        (SASL + "sasl.enabled.mechanisms=", "no mechanism"),
        (SASL + "sasl.enabled.mechanisms=SCRAM-SHA-1", "SCRAM-SHA-1;"),
        (SASL + "sasl.enabled.mechanisms=PLAIN\nlistener.name.sasl_plaintext.sasl.enabled.mechanisms=GSSAPI", "GSSAPI"),
        ("listeners=SASL_PLAINTEXT://10.0.0.1:9092\nsasl.enabled.mechanisms=PLAIN", "in the clear"),
        (SASL + "listener.name.sasl_plaintext.connections.max.reauth.ms=soon", "connections.max.reauth.ms"),
        ("sasl.kerberos.service.name=kafka", "sasl.kerberos.service.name is refused"),
        ("listener.name.x.oauthbearer.sasl.server.callback.handler.class=Some", "is not allowed"),
    ],
)
def test_a_listener_that_could_not_authenticate_its_clients(content: str, says: str) -> None:
    with pytest.raises(InvalidConfig, match=says):
        BrokerConfig.load(content)


def test_a_listener_with_sasl() -> None:
    jaas = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="a" password="hunter2";'
    config = BrokerConfig.load(
        f"""{SASL}sasl.enabled.mechanisms=SCRAM-SHA-256
        listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config={jaas}
        listener.name.sasl_plaintext.connections.max.reauth.ms=1000
        sasl.jaas.config=of all
        """
    )
    assert config.listener_text("SASL_PLAINTEXT", "sasl.jaas.config", "SCRAM-SHA-256") == jaas
    assert config.listener_text("SASL_PLAINTEXT", "sasl.jaas.config", "PLAIN") == "of all"
    assert config.listener_text("SASL_PLAINTEXT", "connections.max.reauth.ms", "PLAIN") == "1000"
    assert config.listener_text("OTHER", "connections.max.reauth.ms") == "0"
    assert config.warnings == ()
    assert "hunter2" not in repr(config)
    assert "of all" not in repr(config)


def test_plain_in_the_clear_must_be_wanted() -> None:
    wanted = "listeners=SASL_PLAINTEXT://10.0.0.1:9092\nsasl.enabled.mechanisms=PLAIN\nstrandline.sasl.plain.without.tls=true"
    assert "in the clear" in BrokerConfig.load(wanted).warnings[0]
    assert BrokerConfig.load(SASL + "sasl.enabled.mechanisms=PLAIN").warnings == ()


@pytest.mark.parametrize(
    "content",
    [
        "listeners=INSIDE://127.0.0.1:9092",
        "listeners=INSIDE://:9092\nlistener.security.protocol.map=INSIDE:plaintext,SSL:SSL",
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\ncontroller.listener.names=CONTROLLER\n"
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "listener.name.external.ssl.client.auth=none",
    ],
)
def test_what_is_plain_starts(content: str) -> None:
    BrokerConfig.load(content)


THREE = "controller.quorum.voters=1@a:9093,2@b:9093,3@[::1]:9093"
COMBINED = f"listeners=PLAINTEXT://:9092,CONTROLLER://:9093\ncontroller.listener.names=CONTROLLER\n{THREE}\n"


def test_a_node_of_a_cluster() -> None:
    config = BrokerConfig.load(COMBINED + "node.id=2\nadvertised.listeners=PLAINTEXT://b:9092,CONTROLLER://b:9093")
    assert (config.is_broker, config.is_controller) == (True, True)
    assert config.quorum_voters() == {1: ("a", 9093), 2: ("b", 9093), 3: ("::1", 9093)}
    assert config.names_other_voters()
    assert config.client_listeners() == [ListenerAddress("PLAINTEXT", "", 9092)]
    assert config.controller_listeners() == [ListenerAddress("CONTROLLER", "", 9093)]
    assert config.advertised() == [ListenerAddress("PLAINTEXT", "b", 9092)]
    assert config.advertised_controllers() == [ListenerAddress("CONTROLLER", "b", 9093)]


def test_a_broker_alone_and_a_controller_alone() -> None:
    broker = BrokerConfig.load(
        "node.id=7\nprocess.roles=broker\ncontroller.quorum.bootstrap.servers=a:9093,b:9093\n"
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\ncontroller.listener.names=CONTROLLER"
    )
    assert (broker.is_broker, broker.is_controller) == (True, False)
    assert broker.quorum_bootstrap_servers() == [("a", 9093), ("b", 9093)]
    assert broker.controller_listeners() == []
    controller = BrokerConfig.load(
        f"node.id=1\nprocess.roles=controller\nlisteners=C://:9093\ncontroller.listener.names=c\n{THREE}"
    )
    assert (controller.is_broker, controller.is_controller) == (False, True)
    assert controller.client_listeners() == []
    assert controller.controller_listeners() == [ListenerAddress("C", "", 9093)]


@pytest.mark.parametrize(
    ("content", "others"),
    [
        ("", False),
        (STOCK, False),
        (STOCK.replace("localhost:9093", "localhost:9093,localhost:9094", 1), True),
        (STOCK.replace("controller.quorum.bootstrap.servers=localhost", "controller.quorum.bootstrap.servers=b"), True),
        ("controller.quorum.voters=1@localhost:9093", False),
        (COMBINED, True),
    ],
)
def test_whether_the_quorum_has_others(content: str, others: bool) -> None:
    assert BrokerConfig.load(content).names_other_voters() == others


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("process.roles=", "process.roles is empty"),
        ("process.roles=broker", "is no controller and knows none"),
        (THREE, "has no listener for them"),
        ("controller.quorum.bootstrap.servers=a:9093", "has no listener for them"),
        ("controller.listener.names=CONTROLLER", "has none of controller.listener.names"),
        ("process.roles=controller", "has none of controller.listener.names"),
        ("process.roles=controller\n" + COMBINED, "has a listener for clients"),
        ("listeners=A://0.0.0.0:9092", r"expected advertised.listeners=A://HOST:9092"),
        ("listeners=A://[::]:9092\nadvertised.listeners=A://[::]:9092", r"has ::, which is no address to connect to"),
        (COMBINED + "node.id=4", "not among controller.quorum.voters"),
        (COMBINED + "process.roles=broker", "is among controller.quorum.voters"),
        ("controller.quorum.voters=1@a:1,1@b:1", "twice"),
        ("controller.quorum.voters=1@a:0", "port from 1 to 65535"),
        ("controller.quorum.voters=a:1", "id@host:port"),
        ("controller.quorum.bootstrap.servers=a", "host:port"),
        ("broker.session.timeout.ms=2000", "fenced between two heartbeats"),
        ("replica.lag.time.max.ms=500", "leave the in-sync set"),
    ],
)
def test_settings_that_contradict_one_another(content: str, said: str) -> None:
    with pytest.raises(InvalidConfig, match=re.escape(said)):
        BrokerConfig.load(content)


def test_three_brokers_keep_three_replicas_unless_somebody_said_otherwise() -> None:
    config = BrokerConfig.load()
    assert [config.replication_factor_of_new_topics(count) for count in (1, 2, 3, 9)] == [1, 1, 3, 3]
    assert [config.in_sync_min_of_new_topic(count) for count in (1, 2, 3, 5)] == [None, None, 2, 2]
    assert BrokerConfig.load("default.replication.factor=1").replication_factor_of_new_topics(3) == 1
    assert BrokerConfig.load("default.replication.factor=4").replication_factor_of_new_topics(2) == 4
    assert BrokerConfig.load("min.insync.replicas=1").in_sync_min_of_new_topic(3) is None
    assert config.with_dynamic({"min.insync.replicas": "1"}, {}).in_sync_min_of_new_topic(3) is None


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (
            {"remote.storage.enable": "true", "cleanup.policy": "compact,delete", "local.retention.ms": "-1"},
            "Value must not be -1 as retention.ms",
        ),
        (
            {
                "remote.storage.enable": "true",
                "cleanup.policy": "compact",
                "remote.log.copy.disable": "true",
                "local.retention.ms": "5",
            },
            "identical",
        ),
        ({"remote.storage.enable": "true", "local.retention.ms": "-1"}, "Value must not be -1 as retention.ms"),
        ({"remote.storage.enable": "true", "retention.ms": "9", "local.retention.ms": "10"}, "Value must not be more"),
        ({"remote.storage.enable": "true", "retention.bytes": "9", "local.retention.bytes": "10"}, "not be more than"),
        ({"remote.storage.enable": "true", "remote.log.copy.disable": "true", "local.retention.ms": "5"}, "identical"),
        ({"remote.storage.enable": "true", "strandline.audit.chain": "true"}, "the chain reads local segments only"),
        ({"local.retention.ms": "-3"}, "is not allowed"),
    ],
)
def test_settings_of_a_tiered_topic_that_contradict_one_another(overrides: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidConfig, match=reason):
        TopicConfig().with_overrides(overrides)


@pytest.mark.parametrize(
    "overrides",
    [
        {"remote.storage.enable": "true", "cleanup.policy": "compact", "local.retention.ms": "-1"},
        {"remote.storage.enable": "true", "cleanup.policy": "compact,delete", "local.retention.ms": "5"},
        {"remote.storage.enable": "true"},
        {"remote.storage.enable": "true", "local.retention.ms": "5", "local.retention.bytes": "7"},
        {"remote.storage.enable": "true", "retention.ms": "-1", "local.retention.ms": "-1"},
        {"remote.storage.enable": "true", "remote.log.copy.disable": "true"},
        {"remote.storage.enable": "true", "retention.ms": "5", "local.retention.ms": "5"},
    ],
)
def test_settings_of_a_tiered_topic(overrides: dict[str, str]) -> None:
    assert TopicConfig().with_overrides(overrides).is_tiered


def test_tiered_storage_needs_a_store() -> None:
    with pytest.raises(InvalidConfig, match=r"needs strandline\.remote\.store\.url; expected for example file:"):
        BrokerConfig.load("remote.log.storage.system.enable=true")
    config = BrokerConfig.load("remote.log.storage.system.enable=true\nstrandline.remote.store.url=file:///x")
    assert config.remote_log_storage_system_enable
    assert not BrokerConfig.load("").remote_log_storage_system_enable

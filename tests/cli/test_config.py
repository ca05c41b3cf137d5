"""`strandline config ...` against a broker, and without one."""

from __future__ import annotations

import pytest
from tests.cli.conftest import CommandLine

from strandline.cli.config import access as config_access
from strandline.cli.config import explain as config_explain
from strandline.cli.config.known_settings import explanations, setting_names


def own_settings(cli: CommandLine, *whose: str) -> dict[str, str]:
    """What was set dynamically, not what a file says."""
    entries = cli.ok("config", "get", *whose, "--json").objects
    layers = ("DYNAMIC_TOPIC_CONFIG", "DYNAMIC_BROKER_CONFIG", "DYNAMIC_DEFAULT_BROKER_CONFIG")
    layer = layers[0] if "--topic" in whose else layers[2] if "--all-brokers" in whose else layers[1]
    return {entry["name"]: entry["value"] for entry in entries if entry["source"] == layer}


def test_a_topics_settings_are_set_shown_and_taken_back(cli: CommandLine, topic: str) -> None:
    own = ("--topic", topic)
    (change,) = cli.ok("config", "set", *own, "max.message.bytes=2000000", "--json").objects
    assert (change["name"], change["before"], change["after"]) == ("max.message.bytes", "1048588", "2000000")
    assert (change["resource"], change["resource_name"], change["cost"]) == ("topic", topic, None)
    entries = {entry["name"]: entry for entry in cli.ok("config", "get", *own, "--json").objects}
    assert entries["max.message.bytes"]["value"] == "2000000"
    assert entries["max.message.bytes"]["source"] == "DYNAMIC_TOPIC_CONFIG"
    assert "cleanup.policy" not in entries
    synonyms = entries["max.message.bytes"]["synonyms"]
    assert [(synonym["name"], synonym["value"]) for synonym in synonyms][:2] == [
        ("max.message.bytes", "2000000"),
        ("message.max.bytes", "1048588"),
    ]
    shown = cli.ok("config", "get", *own, "max.message.bytes", "cleanup.policy").lines
    assert [line.split()[0] for line in shown[1:]] == ["cleanup.policy", "max.message.bytes"]
    assert "1.91 MiB" in shown[2]
    assert len(cli.ok("config", "get", *own, "--all", "--json").objects) > 20
    cli.ok("config", "unset", *own, "max.message.bytes")
    (entry,) = cli.ok("config", "get", *own, "max.message.bytes", "--json").objects
    assert (entry["value"], entry["source"]) == ("1048588", "DEFAULT_CONFIG")
    assert own_settings(cli, "--topic", topic) == {}


def test_what_costs_records_needs_a_yes(cli: CommandLine, topic: str) -> None:
    wanted = ("config", "set", "--topic", topic, "retention.ms=1000")
    refused = cli.run(*wanted)
    assert refused.status == 2
    assert "records older than 1 second will be deleted" in refused.stderr
    assert "--yes" in refused.stderr
    (dry,) = cli.ok(*wanted, "--dry-run", "--json").objects
    assert (dry["dry_run"], dry["cost"]) == (True, "records older than 1 second will be deleted")
    assert own_settings(cli, "--topic", topic) == {}
    declined = cli.on_terminal(wanted, typed=b"n\n")
    assert (declined.status, b"nothing was changed" in declined.stdout) == (1, True)
    cli.ok(*wanted, "--yes")
    assert own_settings(cli, "--topic", topic) == {"retention.ms": "1000"}
    # Nobody tells which value lies behind it (neither does Apache Kafka), so going back is asked for, too.
    assert cli.run("config", "unset", "--topic", topic, "retention.ms").status == 2
    back = cli.ok("config", "unset", "--topic", topic, "retention.ms", "--yes")
    assert "-> the default" in back.lines[0]
    assert own_settings(cli, "--topic", topic) == {}


def test_settings_of_brokers(cli: CommandLine) -> None:
    (broker,) = {b["broker"] for b in cli.ok("cluster", "info", "--json").objects[0]["brokers"]}
    own = ("--broker", str(broker))
    assert any(entry["name"] == "listeners" for entry in cli.ok("config", "get", "--json").objects)
    cli.ok("config", "set", "--all-brokers", "message.max.bytes=1500000")
    (both,) = cli.ok("config", "get", "--all-brokers", "message.max.bytes", "--json").objects
    assert (both["value"], both["resource"]) == ("1500000", "brokers")
    cli.ok("config", "set", *own, "message.max.bytes=1600000")
    (entry,) = cli.ok("config", "get", *own, "message.max.bytes", "--json").objects
    assert (entry["value"], entry["source"]) == ("1600000", "DYNAMIC_BROKER_CONFIG")
    values = [(synonym["value"], synonym["source"]) for synonym in entry["synonyms"]]
    assert values == [
        ("1600000", "DYNAMIC_BROKER_CONFIG"),
        ("1500000", "DYNAMIC_DEFAULT_BROKER_CONFIG"),
        ("1048588", "DEFAULT_CONFIG"),
    ]
    back = cli.ok("config", "unset", *own, "message.max.bytes").lines
    assert back == [f"broker {broker}: message.max.bytes: 1600000 -> the default (message.max.bytes=1500000)"]
    cli.ok("config", "unset", "--all-brokers", "message.max.bytes")
    assert "message.max.bytes" not in own_settings(cli, "--all-brokers")


def test_refusals_say_what_to_do(cli: CommandLine, topic: str) -> None:
    typo = cli.run("config", "set", "--topic", topic, "retention.mss=1")
    assert (typo.status, "did you mean 'retention.ms'?" in typo.stderr) == (3, True)
    typo = cli.run("config", "get", "--topic", topic, "clean.policy")
    assert (typo.status, "did you mean 'cleanup.policy'?" in typo.stderr) == (3, True)
    wrong = cli.run("config", "set", "--topic", topic, "retention.ms=soon", "--yes")
    assert (wrong.status, "config explain" in wrong.stderr) == (1, True)
    frozen = cli.run("config", "set", "--broker", "1", "node.id=7")
    assert (frozen.status, "read-only" in frozen.stderr) == (1, True)
    typo = cli.run("config", "set", "--all-brokers", "message.max.byte=1")
    assert (typo.status, "did you mean 'message.max.bytes'?" in typo.stderr) == (3, True)
    frozen = cli.run("config", "set", "--all-brokers", "node.id=7")
    assert (frozen.status, "read-only" in frozen.stderr) == (1, True)
    wrong = cli.run("config", "set", "--all-brokers", "message.max.bytes=many")
    assert (wrong.status, "message.max.bytes" in wrong.stderr) == (1, True)
    missing = cli.run("config", "get", "--topic", f"{topic}x")
    assert (missing.status, f"did you mean '{topic}'?" in missing.stderr) == (3, True)
    assert cli.run("config", "get", "--broker", "99").status == 3
    assert cli.run("config", "set", "retention.ms=1").status == 2
    assert cli.run("config", "get", "--topic", topic, "--broker", "1").status == 2
    assert cli.run("config", "set", "--topic", topic, "retention.ms").status == 2


def test_over_a_listener_that_is_not_plain_librdkafka_asks(
    cli: CommandLine, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config_access, "is_spoken", lambda cluster: False)
    cli.ok("config", "set", "--topic", topic, "max.message.bytes=2000000")
    assert own_settings(cli, "--topic", topic) == {"max.message.bytes": "2000000"}
    assert cli.run("config", "get", "--topic", f"{topic}x").status == 3
    assert "with this sasl.mechanism" in cli.run("config", "get", "--all-brokers").stderr


def test_explaining_needs_no_cluster(lonely_cli: CommandLine) -> None:
    lines = lonely_cli.ok("config", "explain", "retention.ms", "flush.mode", "--offline").lines
    assert lines[0] == "retention.ms"
    assert "  default   604800000 (1 week)" in lines
    assert any("log.retention.hours" in line for line in lines)
    assert any(line.startswith("  survives") and "power cut" in line for line in lines)
    (refused,) = lonely_cli.ok("config", "explain", "ssl.provider", "--offline", "--json").objects
    assert refused["declared"][0]["verdict"].startswith("refused")
    assert refused["in_force"] is None
    typo = lonely_cli.run("config", "explain", "retenton.ms", "--offline")
    assert (typo.status, "did you mean 'retention.ms'?" in typo.stderr) == (3, True)


def test_explaining_adds_what_is_in_force(cli: CommandLine, topic: str) -> None:
    cli.ok("config", "set", "--topic", topic, "segment.bytes=2097152")
    lines = cli.ok("config", "explain", "segment.bytes", "--topic", topic).lines
    assert "  in force  2097152 (2 MiB), set by: topic" in lines
    (broker,) = cli.ok("config", "explain", "retention.ms", "--json").objects
    assert broker["in_force"]["name"].startswith("log.retention")
    assert cli.run("config", "explain", "retention.ms", "--topic", f"{topic}x").status == 3


def test_every_setting_is_explained() -> None:
    for name in setting_names():
        for explained in explanations(name):
            assert config_explain._rows(explained)
            assert explained.verdict
        assert explanations(name), name

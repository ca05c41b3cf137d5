"""`strandline doctor`: what it finds on real and on broken things."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.cli.conftest import CommandLine
from tests.clients.positions import commit, write

from strandline.cli.common.client import Cluster
from strandline.cli.doctor import disk as doctor_disk
from strandline.cli.doctor.cluster import (
    access_findings,
    address_findings,
    data_findings,
    partition_findings,
    reach_findings,
)
from strandline.cli.doctor.disk import Mount, flush_findings, measure_flushes, mount_findings, mount_of, room_findings
from strandline.cli.doctor.findings import Finding
from strandline.cli.doctor.machine import is_this_machine, kernel_findings, listening_pid


def levels(findings: Any) -> list[str]:
    return [str(finding.level) for finding in findings]


def by_check(cli: CommandLine, *arguments: str) -> dict[str, list[dict[str, Any]]]:
    ended = cli.run("doctor", *arguments, "--json")
    found: dict[str, list[dict[str, Any]]] = {}
    for finding in ended.objects:
        found.setdefault(finding["check"], []).append(finding)
    problems = [finding for finding in ended.objects if finding["level"] == "problem"]
    assert ended.status == (5 if problems else 0), problems
    return found


def test_a_node_that_is_well(cli: CommandLine, topic: str, tmp_path: Path) -> None:
    found = by_check(cli, "--data", str(tmp_path))
    for check in ("reach", "protocol", "advertised", "partitions"):
        assert {finding["level"] for finding in found[check]} == {"ok"}, found[check]
    assert found["flush"][0]["text"].startswith("a flush takes ")
    assert list(tmp_path.iterdir()) == []
    kept = next(finding["text"] for finding in found["topic"] if "flush.mode=auto" in finding["text"])
    assert "survives kill -9 and a power cut of the machine; does not survive the loss of the disk" in kept


def test_a_topic_that_a_power_cut_hurts_is_named(cli: CommandLine, topic: str) -> None:
    cli.ok("config", "set", "--topic", topic, "flush.mode=async", "--yes")
    warned = [finding for finding in by_check(cli)["topic"] if finding["level"] == "warning"]
    told = next(finding for finding in warned if finding["text"].startswith(f"{topic}:"))
    assert "does not survive a power cut" in told["text"]
    assert told["advice"] == f"strandline config set --topic {topic} flush.mode=auto"
    strict = cli.run("doctor", "--strict")
    assert (strict.status, "warning" in strict.stderr) == (5, True)
    cli.ok("topic", "delete", topic, "--yes")


def test_people_read_it_too(cli: CommandLine, topic: str) -> None:
    ended = cli.run("doctor")
    assert "the way to the cluster" in ended.lines
    assert f"  ok       {cli.bootstrap} accepts connections" in ended.stdout.decode()
    shown = cli.on_terminal(["doctor", "--no-cluster"])
    assert b"this machine" in shown.stdout
    assert b"\x1b[32mok" in shown.stdout
    assert b"the way to the cluster" not in shown.stdout


def test_nobody_there_is_a_problem_with_advice(lonely_cli: CommandLine) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        server = f"127.0.0.1:{bound.getsockname()[1]}"
        ended = lonely_cli.run("doctor", "-b", server)
    assert ended.status == 5
    assert f"{server} refuses connections" in ended.stdout.decode()
    assert "strandline serve" in ended.stdout.decode()
    assert "1 problem and" in ended.stderr


def test_a_port_that_is_no_broker_is_told_and_the_rest_goes_on(lonely_cli: CommandLine, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = f"127.0.0.1:{silent.getsockname()[1]}"
        ended = lonely_cli.run("doctor", "-b", server, "--timeout", "0.5", "--data", str(tmp_path), "--json")
    assert ended.status == 5
    checks = {finding["check"]: finding["level"] for finding in ended.objects}
    assert (checks["reach"], checks["cluster"], checks["disk-room"]) == ("ok", "problem", "ok")


class Broker:
    def __init__(self, host: str, port: int) -> None:
        self.id, self.host, self.port = 1, host, port


class Metadata:
    def __init__(self, *brokers: Broker) -> None:
        self.brokers = {broker.id: broker for broker in brokers}
        self.topics: dict[str, Any] = {}


def test_an_address_that_clients_cannot_use_is_a_problem(bootstrap: str) -> None:
    host, port = bootstrap.split(":")
    metadata = Metadata(Broker(host, int(port)))
    assert levels(address_findings(Cluster(bootstrap, {}), metadata)) == ["ok"]
    # From another machine, loopback is that machine itself.
    (afar,) = address_findings(Cluster(f"log.example:{port}", {}), metadata)
    assert afar.level == "problem"
    assert "advertised.listeners" in afar.advice
    (nowhere,) = address_findings(Cluster(bootstrap, {}), Metadata(Broker("0.0.0.0", int(port))))
    assert (nowhere.level, "no address to connect to" in nowhere.text) == ("problem", True)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        metadata = Metadata(Broker("127.0.0.1", mute.getsockname()[1]))
        # It takes connections, but is no broker.
        assert levels(address_findings(Cluster(bootstrap, {}, timeout_s=0.3), metadata)) == ["problem"]
    assert levels(address_findings(Cluster(bootstrap, {}), metadata)) == ["problem"]


def test_a_name_that_is_none_is_told() -> None:
    (found,) = reach_findings("no-such-host.invalid:9092")
    assert found.level == "problem"
    assert "cannot be reached" in found.text


def test_records_from_the_future_are_told(cli: CommandLine, topic: str) -> None:
    cli.ok(
        "produce",
        topic,
        "--from-json",
        stdin=b'{"value": "x", "timestamp": %d}' % (time.time_ns() // 1_000_000 + 1_800_000),
    )
    told = [finding for finding in by_check(cli)["clock"] if topic in finding["text"]]
    assert [finding["level"] for finding in told] == ["warning"]
    assert "ahead of this machine's clock" in told[0]["text"]
    cli.ok("topic", "delete", topic, "--yes")


@pytest.mark.parametrize(
    ("mount", "expected"),
    [
        (Mount("/data", "ext4", ("rw", "relatime")), ["ok"]),
        (Mount("/data", "xfs", ("ro",)), ["ok", "problem"]),
        (Mount("/data", "ext4", ("rw", "nobarrier")), ["ok", "problem"]),
        (Mount("/tmp", "tmpfs", ("rw",)), ["problem"]),
        (Mount("/mnt", "nfs4", ("rw",)), ["problem"]),
        (Mount("/", "overlay", ("rw",)), ["warning"]),
        (Mount("/", "btrfs", ("rw",)), ["note"]),
        (Mount("/", "somefs", ("rw",)), ["note"]),
    ],
)
def test_filesystems(mount: Mount, expected: list[str]) -> None:
    assert levels(mount_findings(mount)) == expected


def test_the_deepest_mount_counts_and_of_those_the_last(tmp_path: Path) -> None:
    inside = tmp_path / "with space" / "data"
    inside.mkdir(parents=True)
    mounts = tmp_path / "mounts"
    escaped = str(tmp_path / "with space").replace(" ", "\\040")
    mounts.write_text(
        f"a / ext4 rw 0 0\nb {tmp_path} xfs rw 0 0\nc {escaped} tmpfs rw 0 0\nd {escaped} btrfs rw,noatime 0 0\n"
        f"e {tmp_path}/with nfs rw 0 0\n"
    )
    assert mount_of(inside, mounts) == Mount(str(tmp_path / "with space"), "btrfs", ("rw", "noatime"))
    assert mount_of(tmp_path, mounts) == Mount(str(tmp_path), "xfs", ("rw",))


@pytest.mark.parametrize(
    ("taken", "level"), [([0.5] * 9, "ok"), ([30.0] * 9, "warning"), ([150.0], "problem"), ([0.001] * 9, "note")]
)
def test_flushes(taken: list[float], level: str) -> None:
    assert levels(flush_findings(taken)) == [level]


def test_the_probe_is_bounded_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert 1 <= len(measure_flushes(tmp_path)) <= doctor_disk.PROBES
    monkeypatch.setattr(doctor_disk, "PROBE_TIME_S", 0.0)
    assert len(measure_flushes(tmp_path)) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("free", "level"), [(50, "ok"), (7, "warning"), (2, "problem")])
def test_room(free: int, level: str) -> None:
    assert levels(room_findings(free, 100, "here")) == [level]


def test_kernel_settings(tmp_path: Path) -> None:
    (tmp_path / "vm").mkdir()
    (tmp_path / "net" / "core").mkdir(parents=True)
    for name, number in {"vm/dirty_ratio": 5, "vm/dirty_background_ratio": 40, "net/core/somaxconn": 128}.items():
        (tmp_path / name).write_text(f"{number}\n")
    found = {finding.check: str(finding.level) for finding in kernel_findings(tmp_path)}
    assert found == {"vm.dirty_ratio": "warning", "vm.dirty_background_ratio": "note", "net.core.somaxconn": "warning"}


def test_a_data_directory_of_another_cluster(tmp_path: Path) -> None:
    assert list(data_findings(tmp_path / "missing", "x")) == []
    (tmp_path / "meta.properties").write_text("cluster.id=abc\nnode.id=1\n")
    assert levels(data_findings(tmp_path, "abc")) == ["ok"]
    assert levels(data_findings(tmp_path, None)) == ["ok"]
    assert levels(data_findings(tmp_path, "other")) == ["warning"]
    (tmp_path / "meta.properties").rename(tmp_path / "notes.txt")
    assert levels(data_findings(tmp_path, None)) == ["warning"]


def test_who_listens_here() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        assert listening_pid(listening.getsockname()[1]) == os.getpid()
    assert is_this_machine("127.0.0.1")
    assert not is_this_machine("192.0.2.1")
    assert not is_this_machine("no-such-host.invalid")


def test_partitions_without_leaders_are_a_problem() -> None:
    metadata = Metadata()
    offline = SimpleNamespace(leader=-1, replicas=[1], isrs=[])
    metadata.topics = {"orders": SimpleNamespace(partitions={0: offline})}
    found: list[Finding] = list(partition_findings(metadata))
    assert levels(found) == ["problem", "warning"]
    assert "log dump" in found[0].advice


@pytest.mark.parametrize(
    ("host", "authorizer", "expected"),
    [
        ("10.0.0.5", "", ["warning"]),
        ("10.0.0.5", "org.apache.kafka.metadata.authorizer.StandardAuthorizer", ["ok"]),
        # A broker that only this machine reaches needs none.
        ("127.0.0.1", "", []),
    ],
)
def test_a_broker_without_access_rules(host: str, authorizer: str, expected: list[str]) -> None:
    assert levels(access_findings(1, host, authorizer)) == expected


def test_the_rules_of_a_well_run_estate(cli: CommandLine, bootstrap: str, topic: str) -> None:
    group = f"late-{topic}"
    write(bootstrap, topic, 5, age_ms=3_600_000)
    commit(bootstrap, group, topic, 1)
    settings = ["strandline.owner=shop", f"strandline.lag.objectives={group}=60000ms"]
    cli.ok("config", "set", "--topic", topic, *settings)
    found = {(each["check"], each["level"]): each for each in cli.run("doctor", "--json").objects}
    assert {"rule-2", "rule-4", "rule-6"} <= {check for check, _ in found}
    missed = found["rule-3", "warning"]
    assert missed["text"] == f"group {group} misses its objective in {topic}-0: at most 1 min behind"
    assert topic not in found.get(("rule-1", "note"), {"text": ""})["text"]
    cli.ok("config", "set", "--topic", topic, f"strandline.lag.objectives={group}=4")
    again = [each["text"] for each in cli.run("doctor", "--json").objects if each["check"] == "rule-3"]
    assert not any("misses" in text for text in again)
    refused = cli.run("config", "set", "--topic", topic, "strandline.lag.objectives=soon")
    assert refused.status == 1
    assert "group=60000ms" in refused.stderr

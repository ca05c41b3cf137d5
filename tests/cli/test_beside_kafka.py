"""The command line is a Kafka client and nothing more: its tests pass against Apache Kafka as well."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from bench.brokers import Broker
from tests.cli.conftest import CommandLine
from tests.clients.kafka_server import kafka
from tests.clients.positions import commit

__all__ = ["kafka"]

HERE = Path(__file__).parent
# `test_doctor` knows flush.mode, which is Strandline's own; what it says of Kafka stands below.
SETS = (
    "test_topics",
    "test_topic_changes",
    "test_config",
    "test_cluster",
    "test_records",
    "test_completion",
    "test_groups",
    "test_group_lag",
    "test_quotas",
)
SUITE_TIMEOUT_S = 280


@pytest.mark.slow
@pytest.mark.java
def test_every_command_works_against_apache_kafka(kafka: Broker) -> None:
    environ = os.environ | {"STRANDLINE_TEST_BOOTSTRAP": kafka.bootstrap}
    files = [str(HERE / f"{name}.py") for name in SETS]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *files]
    ended = subprocess.run(
        command, env=environ, cwd=HERE.parents[1], capture_output=True, text=True, timeout=SUITE_TIMEOUT_S, check=False
    )
    assert ended.returncode == 0, ended.stdout[-5000:] + ended.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.java
def test_the_doctor_knows_that_kafka_leaves_flushing_to_the_system(kafka: Broker) -> None:
    cli = CommandLine(kafka.bootstrap)
    cli.ok("topic", "create", "careless", "--if-not-exists")
    cli.ok("topic", "create", "careful", "-c", "flush.messages=1", "--if-not-exists")
    told = {finding["text"].split(":")[0]: finding for finding in cli.run("doctor", "--json").objects}
    assert told["careless"]["level"] == "warning"
    assert told["careless"]["advice"] == "strandline config set --topic careless flush.messages=1"
    assert "power cut of the machine; does not survive the loss of the disk" in told["careful"]["text"]
    assert any(finding["check"] == "flush-mode" for finding in told.values())


@pytest.mark.slow
@pytest.mark.java
def test_kafka_remembers_no_history_of_groups_and_is_told_so(kafka: Broker) -> None:
    cli = CommandLine(kafka.bootstrap)
    cli.ok("topic", "create", "remembered", "--if-not-exists")
    cli.ok("group", "reset", "forgetful", "--topic", "remembered", "--to-latest", "--yes")
    ended = cli.run("group", "history", "forgetful")
    assert ended.status == 1
    assert "this cluster does not remember why its groups rebalanced" in ended.stderr
    assert "log of the group's coordinator" in ended.stderr


@pytest.mark.slow
@pytest.mark.java
def test_lag_in_a_topic_with_transactions_is_not_exact(kafka: Broker) -> None:
    """Each commit leaves a marker, which has an offset and is no record."""
    from confluent_kafka import Producer

    cli = CommandLine(kafka.bootstrap)
    cli.ok("topic", "create", "atomic", "--if-not-exists")
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "lag"})
    producer.init_transactions(60)
    for _ in range(3):
        producer.begin_transaction()
        producer.produce("atomic", b"x")
        producer.commit_transaction(60)
    commit(kafka.bootstrap, "atomic-readers", "atomic", 0)
    (found,) = cli.ok("group", "lag", "atomic-readers", "--window", "0", "--json").objects
    assert (found["lag"], found["lag_is_exact"]) == (6, False)
    commit(kafka.bootstrap, "atomic-readers", "atomic", 5)
    (found,) = cli.ok("group", "lag", "atomic-readers", "--window", "0", "--json").objects
    assert (found["committed_offset"], found["high_watermark"]) == (5, 6)
    assert (found["lag"], found["lag_seconds"], found["verdict"]) == (0, 0, "ok"), "the marker of the last one is left"


@pytest.mark.slow
@pytest.mark.java
def test_kafka_does_not_tell_of_its_files_and_people_are_told_what_it_tells(kafka: Broker) -> None:
    cli = CommandLine(kafka.bootstrap)
    cli.ok("topic", "create", "filed", "--if-not-exists")
    lines = cli.ok("topic", "describe", "filed", "--storage").lines
    assert any(line.startswith("storage   this cluster does not tell of its segments") for line in lines)
    assert "  deletion    a segment goes when its newest record is 1 week old (retention.ms)" in lines
    (told,) = cli.ok("topic", "describe", "filed", "--storage", "--json").objects
    assert told["storage"] is None
    for verb in ("compact", "scrub"):
        ended = cli.run("topic", verb, "filed", "--now")
        assert (ended.status, "this cluster does not" in ended.stderr) == (1, True)


@pytest.mark.slow
@pytest.mark.java
def test_contracts_and_advice_on_kafka(kafka: Broker, tmp_path: Path) -> None:
    cli = CommandLine(kafka.bootstrap)
    file = tmp_path / "contract.yaml"
    topic = {"name": "contracted", "owner": "shop", "partitions": 2, "retention": "1d", "lag": {"billing": "1s"}}
    file.write_text(json.dumps({"topics": [topic], "quotas": [{"user": "u", "fetch": "10 MB/s"}]}))
    applied = cli.ok("contract", "apply", str(file), "--yes").stdout.decode()
    assert "owners and lag objectives stay in the files" in applied
    assert cli.ok("contract", "plan", str(file)).lines[-1].startswith("nothing to do")
    exported = tmp_path / "exported.yaml"
    cli.ok("contract", "export", str(exported), "--topic", "contracted")
    assert "retention: 1d" in exported.read_text()
    assert cli.ok("contract", "plan", str(exported)).lines[-1].startswith("nothing to do")
    file.write_text(json.dumps({"topics": [{**topic, "retention": "1h", "partitions": 3}]}))
    assert cli.run("contract", "apply", str(file), "--yes").status == 2
    cli.ok("contract", "apply", str(file), "--yes", "--allow-destroy")
    cli.ok("produce", "contracted", stdin=b"one\n")
    for _ in range(4):
        commit(kafka.bootstrap, "scan", "contracted", 9)
        commit(kafka.bootstrap, "scan", "contracted", 0)
    found = cli.run("advise", "--topic", "contracted", "--json").objects
    assert [each["found"] for each in found if each.get("anti_pattern") == "log as a database"] == [True]
    file.write_text(json.dumps({"topics": [{"name": "contracted", "state": "absent"}], "quotas": [{"user": "u"}]}))
    cli.ok("contract", "apply", str(file), "--yes", "--allow-destroy")

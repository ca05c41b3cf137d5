"""Kafka's own tools that make topics and move records, with what they print.

Tools of groups are in test_kafka_group_tools.py, those of transactions in test_kafka_transaction_tools.py, that of ACLs
in tests/scenarios/test_acls.py.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.clients.broker import existing_bootstrap
from tests.interop.kafka_tools import Tools

from strandline.broker.network.routes import OWN_APIS_FROM, TELEMETRY_APIS, routes

pytestmark = [pytest.mark.slow, pytest.mark.java]


def test_topics_are_created_grown_and_deleted(tools: Tools, topic: str) -> None:
    create = ("--create", "--topic", topic, "--partitions", "2", "--config", "retention.ms=3600000")
    assert f"Created topic {topic}." in tools.topics(*create)
    assert topic in tools.topics("--list").splitlines()
    described = tools.topics("--describe", "--topic", topic)
    head = re.search(
        rf"Topic: {topic}\tTopicId: (\S{{22}})\tPartitionCount: 2\tReplicationFactor: 1\tConfigs: (.*)", described
    )
    assert head, described
    assert "retention.ms=3600000" in head[2].split(",")
    partitions = re.findall(r"\tPartition: (\d+)\tLeader: (\d+)\tReplicas: (\d+)\tIsr: (\d+)\t", described)
    assert [int(index) for index, *_ in partitions] == [0, 1]
    assert all(leader == replicas == in_sync for _, leader, replicas, in_sync in partitions)
    tools.topics("--alter", "--topic", topic, "--partitions", "5")
    assert "PartitionCount: 5" in tools.topics("--describe", "--topic", topic)
    tools.topics("--delete", "--topic", topic)
    assert topic not in tools.topics("--list").splitlines()


def test_topics_are_described_by_their_health(tools: Tools, topic: str) -> None:
    tools.create(topic, partitions=2)
    assert tools.topics("--describe", "--topic", topic, "--under-replicated-partitions") == ""
    assert tools.topics("--describe", "--topic", topic, "--unavailable-partitions") == ""
    assert tools.topics("--describe", "--topic", topic, "--at-min-isr-partitions").count("Partition: ") == 2


def test_refused_topics_are_explained(tools: Tools, topic: str) -> None:
    tools.create(topic, partitions=3)
    assert "already exists" in tools.refused("TopicCommand", "--create", "--topic", topic)
    assert "would not be an increase" in tools.refused("TopicCommand", "--alter", "--topic", topic, "--partitions", "2")
    assert "retention.ms" in tools.refused(
        "TopicCommand", "--create", "--topic", f"{topic}-2", "--config", "retention.ms=-7"
    )
    assert "does not exist" in tools.refused("TopicCommand", "--delete", "--topic", f"{topic}-unknown")
    tools.topics("--create", "--topic", topic, "--if-not-exists")


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_console_producer_and_consumer(tools: Tools, topic: str, codec: str) -> None:
    tools.create(topic)
    lines = [f"trace:{n},kind:é\tkey-{n}\tvalue {n}" for n in range(20)]
    parse = ("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true")
    tools.run("ConsoleProducer", "--topic", topic, "--compression-codec", codec, *parse, stdin="\n".join(lines) + "\n")
    shown = ("print.key", "print.headers", "print.offset", "print.partition")
    properties = [word for name in shown for word in ("--formatter-property", f"{name}=true")]
    options = ("--topic", topic, "--from-beginning", "--max-messages", "20", "--timeout-ms", "30000")
    output = tools.run("consumer.ConsoleConsumer", *options, *properties)
    assert output.splitlines() == [f"Partition:0\tOffset:{n}\t{line}" for n, line in enumerate(lines)]


def test_console_consumer_goes_on_in_its_group(tools: Tools, topic: str) -> None:
    tools.create(topic)
    tools.run("ConsoleProducer", "--topic", topic, stdin="one\ntwo\nthree\n")
    group = ("--topic", topic, "--group", f"{topic}-group", "--from-beginning", "--timeout-ms", "30000")
    assert tools.run("consumer.ConsoleConsumer", *group, "--max-messages", "2").splitlines() == ["one", "two"]
    assert tools.run("consumer.ConsoleConsumer", *group, "--max-messages", "1").splitlines() == ["three"]


def test_offsets_and_deleted_records(tools: Tools, topic: str, tmp_path: Path) -> None:
    tools.create(topic, partitions=2)
    tools.run("ConsoleProducer", "--topic", topic, "--sync", stdin="".join(f"{n}\n" for n in range(10)))
    latest = _offsets(tools, topic, "latest")
    assert sum(latest.values()) == 10
    assert _offsets(tools, topic, "earliest") == {0: 0, 1: 0}
    wanted = tmp_path / "delete.json"
    partitions = [{"topic": topic, "partition": index, "offset": -1} for index in (0, 1)]
    wanted.write_text(json.dumps({"partitions": partitions, "version": 1}))
    said = tools.run("DeleteRecordsCommand", "--offset-json-file", wanted)
    assert "Records delete operation completed" in said
    assert dict(re.findall(rf"partition: {topic}-(\d)\tlow_watermark: (\d+)", said)) == {
        str(index): str(offset) for index, offset in latest.items()
    }
    assert _offsets(tools, topic, "earliest") == _offsets(tools, topic, "earliest-local") == latest
    # Nothing is tiered, nothing waits for it, and nothing is left to be found by its time.
    for time in ("latest-tiered", "earliest-pending-upload", "1"):
        assert _offsets(tools, topic, time) == {}


def test_offsets_by_time(tools: Tools, topic: str) -> None:
    tools.create(topic)
    tools.run("ConsoleProducer", "--topic", topic, "--sync", stdin="one\ntwo\nthree\n")
    assert _offsets(tools, topic, "1") == {0: 0}
    assert _offsets(tools, topic, "max-timestamp") == {0: 2}


def test_log_dirs(tools: Tools, topic: str) -> None:
    tools.create(topic, partitions=2)
    tools.run("ConsoleProducer", "--topic", topic, stdin="x" * 5000 + "\n")
    output = tools.run("LogDirsCommand", "--describe", "--topic-list", topic)
    (broker,) = json.loads(output.splitlines()[-1])["brokers"]
    (directory,) = broker["logDirs"]
    assert directory["error"] is None
    sizes = {each["partition"]: each["size"] for each in directory["partitions"]}
    assert set(sizes) == {f"{topic}-0", f"{topic}-1"}
    assert 5000 < sum(sizes.values()) < 5500
    assert all(each["offsetLag"] == 0 and not each["isFuture"] for each in directory["partitions"])


def test_api_versions_are_usable(tools: Tools) -> None:
    """The tool knows every API by name and can use the newest version of each."""
    output = tools.run("BrokerApiVersionsCommand")
    told = {
        int(key): (name, int(first), int(last or first), int(usable))
        for name, key, first, last, usable in re.findall(
            r"(\w+)\((\d+)\): (\d+)(?: to (\d+))? \[usable: (\d+)\]", output
        )
    }
    for route in routes().values():
        if existing_bootstrap() and route.api_key in TELEMETRY_APIS:
            # Kafka shows these only with a plugin that takes what clients push.
            continue
        if route.api_key >= OWN_APIS_FROM:
            assert f"UNKNOWN({route.api_key})" in output
            continue
        assert told[route.api_key] == (route.name, route.advertised_min, route.version_max, route.version_max)


def test_performance_tools(tools: Tools, topic: str) -> None:
    tools.create(topic, partitions=3)
    records = ("--topic", topic, "--num-records", "5000")
    produced = tools.run("ProducerPerformance", *records, "--record-size", "100", "--throughput", "-1")
    assert "5000 records sent" in produced
    consumed = tools.run("ConsumerPerformance", *records, "--hide-header")
    assert int(consumed.split(", ")[4]) == 5000


def test_end_to_end_latency(tools: Tools, topic: str) -> None:
    sizes = ("--num-records", "20", "--producer-acks", "all", "--record-size", "64")
    assert "Avg latency" in tools.run("EndToEndLatency", "--topic", topic, *sizes)


def test_verifiable_clients(tools: Tools, topic: str) -> None:
    tools.create(topic, partitions=2)
    sent = _events(tools.run("VerifiableProducer", "--topic", topic, "--max-messages", "50", "--acks", "-1"))
    assert sorted(int(each["value"]) for each in sent["producer_send_success"]) == list(range(50))
    assert (sent["tool_data"][0]["sent"], sent["tool_data"][0]["acked"]) == (50, 50)
    read = _events(
        tools.run("VerifiableConsumer", "--topic", topic, "--group-id", f"{topic}-group", "--max-messages", "50")
    )
    (assigned,) = read["partitions_assigned"]
    assert {each["partition"] for each in assigned["partitions"]} == {0, 1}
    assert sum(part["count"] for each in read["records_consumed"] for part in each["partitions"]) == 50
    assert all(each["success"] for each in read["offsets_committed"])


def test_replica_verification(tools: Tools, topic: str) -> None:
    tools.create(topic, partitions=2)
    tools.run("ConsoleProducer", "--topic", topic, stdin="one\ntwo\n")
    options = ("--broker-list", tools.bootstrap, "--topics-include", topic, "--time", "-2")
    with tools.started("ReplicaVerificationTool", *options, "--report-interval-ms", "500") as output:
        report = next(line for line in output if "max lag" in line)
    assert f"max lag is 0 for partition {topic}" in report
    assert "among 2 partitions" in report


def test_client_compatibility(tools: Tools, topic: str) -> None:
    """Kafka's own judge of brokers for the Java clients. ACLs come later, so it is told not to expect them."""
    yes = ("offsets-for-times", "cluster-id", "create-topics", "describe-configs", "idempotent-producer")
    options = [word for name in yes for word in (f"--{name}-supported", "true")]
    options += ["--describe-acls-supported", "true" if existing_bootstrap() or 29 in routes() else "false"]
    options += ["--expect-record-too-large-exception", "false", "--num-cluster-nodes", "1", "--topic", topic]
    # It makes a topic of this name, and leaves it.
    tools.topics("--delete", "--if-exists", "--topic", "newtopic")
    assert "SUCCESS" in tools.run("ClientCompatibilityTest", *options)


def test_producers_of_a_partition(tools: Tools, topic: str) -> None:
    tools.create(topic)
    tools.run("ConsoleProducer", "--topic", topic, stdin="one\ntwo\nthree\n")
    output = tools.run("TransactionsCommand", "describe-producers", "--topic", topic, "--partition", "0")
    head, row = (line.split() for line in output.splitlines())
    told = dict(zip(head, row, strict=True))
    assert (told["ProducerEpoch"], told["LastSequence"]) == ("0", "2")
    assert told["CurrentTransactionStartOffset"] == "None"


def _offsets(tools: Tools, topic: str, time: str) -> dict[int, int]:
    output = tools.run("GetOffsetShell", "--topic", topic, "--time", time)
    return {int(index): int(offset) for index, offset in re.findall(rf"^{topic}:(\d+):(\d+)$", output, re.MULTILINE)}


def _events(output: str) -> dict[str, list[dict[str, Any]]]:
    events: dict[str, list[dict[str, Any]]] = {}
    for line in output.splitlines():
        event = json.loads(line)
        events.setdefault(event["name"], []).append(event)
    return events

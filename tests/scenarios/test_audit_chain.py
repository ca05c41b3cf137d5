"""Chained topics through the front door: `topic verify` proves what is unchanged, and names what is not."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from crc32c import crc32c
from tests.cli.conftest import CommandLine

import strandline
from strandline.codec.record_batch import CRC_POSITION, CRC_START, BatchHeader
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.log.segment.header_walk import headers_in

AUDIT = "__strandline_audit"
AUDITED = {"strandline.audit.enable": "true", "strandline.audit.chain.interval.ms": "100"}
WAIT_S_MAX = 120.0
"""Each look reads two topics, on a machine that may be busy."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    properties = AUDITED | {"log.retention.check.interval.ms": "50"}
    with strandline.embedded(data=tmp_path / "data", properties=properties) as running:
        yield running
        assert "Traceback" not in running.stderr_text()


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S_MAX
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {WAIT_S_MAX:.0f} s"


def write(bootstrap: str, topic: str, count: int) -> None:
    """Write records, each a batch of its own."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "batch.num.messages": 1, "acks": "all"})
    failures: list[object] = []
    for number in range(count):
        producer.produce(topic, b"%04d" % number, on_delivery=lambda error, _: error and failures.append(error))
    assert producer.flush(60) == 0
    assert not failures


def verify(bootstrap: str, topic: str) -> tuple[int, dict[str, Any]]:
    """Return the exit code and what is said of the only partition; nothing before the first anchor."""
    # On a busy machine the time of a command is over before an answer comes.
    ended = CommandLine(bootstrap).run("topic", "verify", topic, "--json", "--timeout", "60")
    return ended.status, next(iter(ended.objects), {})


def await_proven(bootstrap: str, topic: str, end: int) -> dict[str, Any]:
    said: dict[str, Any] = {}

    def is_proven() -> bool:
        nonlocal said
        status, said = verify(bootstrap, topic)
        assert status != 5, said
        return bool(said.get("verified")) and said["verified"][-1]["to"] == end

    until(is_proven, f"{topic} is anchored up to {end}")
    return said


def anchors(bootstrap: str, topic: str) -> list[dict[str, Any]]:
    """Return what the lines of the audit topic say of a topic's chain."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(AUDIT, 0), timeout=30)
        consumer.assign([TopicPartition(AUDIT, 0, 0)])
        lines: list[dict[str, Any]] = []
        while len(lines) < end:
            message = consumer.poll(30)
            assert message is not None
            lines.append(json.loads(message.value() or b""))
    finally:
        consumer.close()
    return [line["details"] for line in lines if line["type"] == "anchor" and line["resource"] == topic]


def change_record(segment: Path, offset: int) -> None:
    """Change a byte of a stored record, and repair the CRC of its batch."""
    content = bytearray(segment.read_bytes())
    header, at = next(each for each in headers_in(segment, bytes(content), 0) if each[0].base_offset == offset)
    assert isinstance(header, BatchHeader)
    end = at + header.size_bytes
    content[end - 2] ^= 1
    checksum = crc32c(memoryview(content)[at + CRC_START : end])
    content[at + CRC_POSITION : at + CRC_POSITION + 4] = checksum.to_bytes(4, "big")
    segment.write_bytes(content)


@pytest.mark.slow
def test_a_changed_record_is_named(broker: EmbeddedBroker) -> None:
    broker.create_topic("ledger", strandline_audit_chain="true")
    write(broker.bootstrap, "ledger", 12)
    said = await_proven(broker.bootstrap, "ledger", 12)
    assert (said["verified"], said["problems"]) == ([{"from": 0, "to": 12}], [])
    broker.stop()
    change_record(broker.data / "ledger-0" / f"{0:020d}.log", 7)
    broker.start()
    read = CommandLine(broker.bootstrap).ok("consume", "ledger", "--from", "earliest", "--json").objects
    assert len(read) == 12, "no other check notices"
    status, said = verify(broker.bootstrap, "ledger")
    assert status == 5
    assert said["problems"] == [{"kind": "changed", "from": 7, "to": 8, "what": "not what was anchored"}]
    ended = CommandLine(broker.bootstrap).run("topic", "verify", "ledger")
    assert "problem: offset 7: not what was anchored" in ended.stdout.decode()

    write(broker.bootstrap, "ledger", 5)

    def goes_on() -> bool:
        return bool(verify(broker.bootstrap, "ledger")[1]["verified"][-1]["to"] == 17)

    until(goes_on, "what comes later is anchored, and proven")
    assert [each["from"] for each in verify(broker.bootstrap, "ledger")[1]["problems"]] == [7]


@pytest.mark.slow
def test_a_killed_node_goes_on_with_its_chain(broker: EmbeddedBroker) -> None:
    broker.create_topic("ledger", strandline_audit_chain="true")
    write(broker.bootstrap, "ledger", 5)
    await_proven(broker.bootstrap, "ledger", 5)
    for end in (10, 15):
        write(broker.bootstrap, "ledger", 5)
        broker.kill()
        broker.start()
        assert await_proven(broker.bootstrap, "ledger", end)["verified"] == [{"from": 0, "to": end}]
    assert [each["offset"] for each in anchors(broker.bootstrap, "ledger") if each.get("begins")] == [0]


@pytest.mark.slow
def test_retention_moves_the_start_and_the_chain_stays(broker: EmbeddedBroker) -> None:
    broker.create_topic("ledger", strandline_audit_chain="true", internal_segment_bytes=1024, retention_bytes=2048)
    write(broker.bootstrap, "ledger", 10)
    await_proven(broker.bootstrap, "ledger", 10)

    def is_trimmed() -> bool:
        write(broker.bootstrap, "ledger", 10)
        status, said = verify(broker.bootstrap, "ledger")
        assert (status, said["problems"]) == (0, [])
        return bool(said["verified"] and said["verified"][0]["from"] > 0)

    until(is_trimmed, "old segments are deleted")
    assert [each["offset"] for each in anchors(broker.bootstrap, "ledger") if each.get("begins")] == [0]


@pytest.mark.slow
def test_records_that_were_deleted_before_they_were_anchored_are_a_gap(tmp_path: Path) -> None:
    properties = AUDITED | {"strandline.audit.chain.interval.ms": "3600000"}
    with strandline.embedded(data=tmp_path / "data", properties=AUDITED) as broker:
        broker.create_topic("ledger", strandline_audit_chain="true")
        write(broker.bootstrap, "ledger", 5)
        await_proven(broker.bootstrap, "ledger", 5)
        broker.properties.update(properties)
        broker.restart()
        write(broker.bootstrap, "ledger", 10)
        CommandLine(broker.bootstrap).ok("topic", "trim", "ledger", "--before", "9", "--yes")
        broker.properties.update(AUDITED)
        broker.restart()
        said = await_proven(broker.bootstrap, "ledger", 15)
        assert said["verified"] == [{"from": 9, "to": 15}]
        assert "offsets 5 to 8 were deleted before they were anchored" in said["notes"]


@pytest.mark.slow
def test_what_is_refused(broker: EmbeddedBroker, tmp_path: Path) -> None:
    cli = CommandLine(broker.bootstrap)
    compacted = ("-c", "strandline.audit.chain=true", "-c", "cleanup.policy=compact")
    assert "cannot be used with cleanup.policy=compact" in cli.run("topic", "create", "table", *compacted).stderr
    cli.ok("topic", "create", "ledger", "-c", "strandline.audit.chain=true")
    ended = cli.run("topic", "alter", "ledger", "-c", "cleanup.policy=compact", "--yes")
    assert "cannot be used with cleanup.policy=compact" in ended.stderr
    cli.ok("topic", "create", "plain")
    ended = cli.run("topic", "verify", "plain")
    assert ended.status in (1, 3)
    with strandline.embedded(data=tmp_path / "plain") as other:
        ended = CommandLine(other.bootstrap).run("topic", "create", "ledger", "-c", "strandline.audit.chain=true")
        assert "needs an audit" in ended.stderr


@pytest.mark.slow
def test_a_new_leader_goes_on_with_the_chain(tmp_path: Path) -> None:
    with strandline.embedded(nodes=3, data=tmp_path / "cluster", properties=AUDITED) as cluster:
        cluster.create_topic("ledger", replication_factor=3, strandline_audit_chain="true")
        bootstrap = cluster.bootstrap_servers
        write(bootstrap, "ledger", 10)
        await_proven(bootstrap, "ledger", 10)
        for end in (20, 30):
            leader = cluster.leader_of("ledger")
            write(bootstrap, "ledger", 10)
            cluster.kill(leader)
            alive = ",".join(address for node, address in enumerate(bootstrap.split(","), 1) if node != leader)
            said = await_proven(alive, "ledger", end)
            assert (said["verified"], said["problems"]) == ([{"from": 0, "to": end}], [])
            cluster.start(leader)
            cluster.wait_in_sync("ledger")
            cluster.wait_in_sync(AUDIT)
        assert [each["offset"] for each in anchors(bootstrap, "ledger") if each.get("begins")] == [0]
        assert len({each["leader_epoch"] for each in anchors(bootstrap, "ledger")}) >= 3

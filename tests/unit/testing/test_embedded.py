"""The embedded broker: ready to use, killed and restarted at will, and never silent about its own end."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from strandline.testing import BrokerFailed, EmbeddedBroker, embedded

pytestmark = pytest.mark.lengthy("each test starts a broker as a process, and waits for it")


def produce(log: EmbeddedBroker, topic: str, value: bytes) -> int:
    """Sends one record and returns the offset the broker gave it."""
    told: list[Message] = []
    producer = Producer({"bootstrap.servers": log.bootstrap, "enable.idempotence": True})
    producer.produce(topic, value, on_delivery=lambda error, message: told.append(message))
    assert producer.flush(30) == 0
    assert told[0].error() is None
    offset = told[0].offset()
    assert offset is not None
    return offset


def read_at(log: EmbeddedBroker, topic: str, offset: int) -> bytes | None:
    consumer = Consumer({"bootstrap.servers": log.bootstrap, "group.id": "test", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, offset)])
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        return message.value()
    finally:
        consumer.close()


def test_a_client_writes_and_reads() -> None:
    with embedded() as log:
        log.create_topic("orders")
        assert produce(log, "orders", b"paid") == 0
        assert read_at(log, "orders", 0) == b"paid"
        data = log.data
        assert data.is_dir()
    assert not data.exists(), "the temporary directory outlived the block"
    assert not log.running


def test_records_and_address_survive_a_kill(tmp_path: Path) -> None:
    with embedded(data=tmp_path / "data") as log:
        log.create_topic("orders")
        produce(log, "orders", b"paid")
        before = (log.bootstrap, log.pid)
        log.kill()
        assert not log.running
        log.kill()
        log.restart()
        assert log.bootstrap == before[0]
        assert log.pid != before[1]
        assert read_at(log, "orders", 0) == b"paid"


def test_a_paused_broker_answers_nobody_until_it_is_resumed() -> None:
    with embedded() as log:
        log.create_topic("orders")
        log.pause()
        with socket.create_connection((log.host, log.port)) as connection:
            # ApiVersions, version 0, correlation id 7, no client id.
            connection.sendall(struct.pack(">ihhih", 10, 18, 0, 7, -1))
            state = Path(f"/proc/{log.pid}/stat").read_text().rpartition(")")[2].split()[0]
            assert state == "T"
            log.resume()
            assert struct.unpack(">ii", connection.recv(8, socket.MSG_WAITALL))[1] == 7
        assert produce(log, "orders", b"paid") == 0
        log.pause()
        log.kill()
        log.restart()
        assert read_at(log, "orders", 0) == b"paid"


def test_records_survive_a_clean_stop_and_another_block(tmp_path: Path) -> None:
    with embedded(data=tmp_path) as log:
        log.create_topic("orders")
        produce(log, "orders", b"paid")
    with embedded(data=tmp_path) as log:
        assert read_at(log, "orders", 0) == b"paid"


def test_two_brokers_side_by_side_are_two_clusters() -> None:
    with embedded() as one, embedded() as other:
        one.create_topic("orders")
        other.create_topic("orders")
        assert produce(one, "orders", b"one") == 0
        assert produce(other, "orders", b"other") == 0
        assert read_at(one, "orders", 0) == b"one"
        assert read_at(other, "orders", 0) == b"other"


def test_properties_and_topic_configs_reach_the_broker() -> None:
    from confluent_kafka.admin import AdminClient

    with embedded(properties={"num.partitions": "3"}) as log:
        produce(log, "made-by-itself", b"x")
        log.create_topic("made-by-hand", 2, retention_ms=1000)
        topics = AdminClient({"bootstrap.servers": log.bootstrap}).list_topics(timeout=30).topics
        assert len(topics["made-by-itself"].partitions) == 3
        assert len(topics["made-by-hand"].partitions) == 2


def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    occupied = tmp_path / "file"
    occupied.write_text("not a directory")
    with (
        pytest.raises(BrokerFailed, match=r"before it was ready; its standard error:\n(.|\n)*file"),
        embedded(data=occupied),
    ):
        pytest.fail("the broker started in a file")


def test_a_broker_that_dies_by_itself_fails_the_block() -> None:
    with pytest.raises(BrokerFailed, match="status -9"), embedded() as log:
        os.kill(log.pid, signal.SIGKILL)


def test_an_exception_of_the_block_stays_itself_and_ends_the_broker() -> None:
    with pytest.raises(ZeroDivisionError), embedded() as log:
        raise ZeroDivisionError
    assert not log.running


def test_starting_one_loads_no_client_library_and_no_terminal_library() -> None:
    program = """
import sys
import strandline
with strandline.embedded() as log:
    print(sorted({"confluent_kafka", "typer", "rich", "click"} & set(sys.modules)))
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


USERS_TESTS = """
import pytest

@pytest.fixture(scope="session")
def strandline_properties():
    return {"num.partitions": "2"}

def test_fresh(strandline_broker):
    strandline_broker.create_topic("orders")

def test_fresh_again(strandline_broker):
    strandline_broker.create_topic("orders")
    assert strandline_broker.properties == {"num.partitions": "2"}

pids = set()

def test_session(strandline_session_broker):
    strandline_session_broker.create_topic("once")
    pids.add(strandline_session_broker.pid)

def test_same_session(strandline_session_broker):
    assert pids == {strandline_session_broker.pid}
"""


def test_users_get_the_fixtures(tmp_path: Path) -> None:
    (tmp_path / "test_users.py").write_text(USERS_TESTS)
    installed = any(point.name == "strandline" for point in entry_points(group="pytest11"))
    plugin = [] if installed else ["-p", "strandline.testing.pytest_plugin"]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-W",
        "error",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:asyncio",
        *plugin,
    ]
    result = subprocess.run(
        [*command, "--rootdir", str(tmp_path), str(tmp_path)], cwd=tmp_path, capture_output=True, text=True
    )
    assert "4 passed" in result.stdout, result.stdout + result.stderr

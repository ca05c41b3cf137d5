"""Settings of a node that its sockets, its checkpoints and its own log obey."""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.crash.sync_fault import sync_fault, why_not_available
from tests.hostile.batches import batch, produce
from tests.hostile.peer import Peer, request
from tests.unit.log.manual_runtime import ManualRuntime

import strandline
from strandline.broker.kraft.metadata_quorum import MetadataQuorum, QuorumSettings
from strandline.broker.main import node_on, stop
from strandline.codec.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from strandline.codec.messages.topic_record import TopicRecord
from strandline.config.node_config import BrokerConfig
from strandline.local.node_process import BrokerFailed
from strandline.log.checkpoints import HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS, parse_offsets
from strandline.log.disk import RealDisk
from strandline.log.flusher import Flusher
from strandline.log.log_directory import LogDirectory
from strandline.log.trimming import trim_now

NO_SHIM = why_not_available()
WAIT_S_MAX = 60.0


class RunningNode:
    """A node in this process, whose loop turns while the test waits for something."""

    def __init__(self, data: Path, settings: dict[str, str]) -> None:
        self.loop = asyncio.new_event_loop()
        given = {"listeners": "PLAINTEXT://127.0.0.1:0", "http.listener": "off", **settings}
        self.node = node_on(self.loop, data, BrokerConfig.load("", given))
        self.port = self.node.start()[1]

    def until(self, condition: Callable[[], object]) -> None:
        async def wait() -> None:
            deadline = time.monotonic() + WAIT_S_MAX
            while not condition():
                assert time.monotonic() < deadline
                await asyncio.sleep(0.001)

        self.loop.run_until_complete(wait())

    def ask(self, message: Any, version: int) -> None:
        """Send a request and wait for its answer, which waits for the loop."""
        with Peer(self.port) as peer:
            peer.send(request(message, version))
            self.until(lambda: select.select([peer.socket], [], [], 0)[0])

    def produce(self, topic: str, records: bytes) -> None:
        if self.node.partition(topic, 0) is None:
            self.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 4)
            self.until(lambda: self.node.partition(topic, 0))
        self.ask(produce(topic, records), 9)


@contextlib.contextmanager
def running(data: Path, **settings: str) -> Iterator[RunningNode]:
    running_node = RunningNode(data, {name.replace("_", "."): value for name, value in settings.items()})
    try:
        yield running_node
    finally:
        running_node.loop.run_until_complete(stop(running_node.node))
        running_node.loop.close()


def test_buffers_of_client_sockets(tmp_path: Path) -> None:
    settings = {"socket_send_buffer_bytes": "20000", "socket_receive_buffer_bytes": "30000"}
    with running(tmp_path, **settings) as it, Peer(it.port):
        it.until(lambda: it.node.dispatcher.limits.connections)
        (connection,) = it.node.dispatcher.limits.connections
        accepted: Any = connection.transport
        # Linux gives twice what it is asked for, for its own needs.
        assert accepted._socket.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) in (20_000, 40_000)
        assert accepted._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) in (30_000, 60_000)


def test_buffers_are_left_to_the_system_unless_asked_for(tmp_path: Path) -> None:
    with running(tmp_path) as it, Peer(it.port) as peer:
        it.until(lambda: it.node.dispatcher.limits.connections)
        (connection,) = it.node.dispatcher.limits.connections
        accepted: Any = connection.transport
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            ours = accepted._socket.getsockopt(socket.SOL_SOCKET, option)
            assert ours >= peer.socket.getsockopt(socket.SOL_SOCKET, option) // 4
            assert ours not in (102_400, 204_800), "what Apache Kafka would have set"


@pytest.mark.parametrize("backlog", [1, 4])
def test_connections_that_may_wait_to_be_accepted(tmp_path: Path, backlog: int) -> None:
    with running(tmp_path, socket_listen_backlog_size=str(backlog)) as it:
        # The loop does not turn, so nobody accepts.
        waiting = [socket.socket() for _ in range(backlog + 8)]
        poll = select.poll()
        try:
            for each in waiting:
                each.setblocking(False)
                each.connect_ex(("127.0.0.1", it.port))
                poll.register(each, select.POLLOUT)
            # Linux lets one more in than the number says; the others are not answered.
            assert len(poll.poll(200)) == backlog + 1
        finally:
            for each in waiting:
                each.close()


def test_each_checkpoint_has_its_interval(tmp_path: Path) -> None:
    settings = {
        "log_flush_offset_checkpoint_interval_ms": "60000",
        "log_flush_start_offset_checkpoint_interval_ms": "30000",
        "replica_high_watermark_checkpoint_interval_ms": "5000",
    }

    def on_disk(name: str) -> int | None:
        written = parse_offsets((tmp_path / name).read_bytes())
        return next((offset for partition, offset in written.items() if partition.topic == "orders"), None)

    with running(tmp_path, **settings) as it:
        it.until(lambda: it.node.checkpoints.is_idle)
        began = it.node.runtime.monotonic()
        it.produce("orders", batch([b"a", b"b", b"c"]))
        partition = it.node.partition("orders", 0)
        assert partition is not None
        trim_now(partition.log, 1)
        seen = []
        for later_s in (1, 6, 31, 62):
            it.node.checkpoints.write_due(began + later_s)
            it.until(lambda: it.node.checkpoints.is_idle)
            seen.append((on_disk(HIGH_WATERMARKS), on_disk(LOG_START_OFFSETS), on_disk(RECOVERY_POINTS)))
        assert seen == [(None, None, None), (3, None, None), (3, 1, None), (3, 1, 3)]


def test_silent_producers_are_looked_for_when_the_setting_says(tmp_path: Path) -> None:
    settings = {"producer_id_expiration_ms": "1", "producer_id_expiration_check_interval_ms": "1"}
    with running(tmp_path, **settings) as it:
        it.produce("orders", batch([b"a"], producer_id=5, producer_epoch=0, base_sequence=0, timestamp_ms=1_000))
        partition = it.node.partition("orders", 0)
        assert partition is not None
        it.until(lambda: not partition.producers.entries)


def test_the_metadata_log_rolls(tmp_path: Path) -> None:
    def open_metadata() -> MetadataQuorum:
        runtime = ManualRuntime()
        directory = LogDirectory(tmp_path, disk=RealDisk(), open_files_max=100)
        settings = QuorumSettings(node_id=1, directory_id=UUID(int=1), cluster_id="here", segment_bytes=2_000)
        metadata = MetadataQuorum(directory, runtime, Flusher(runtime), settings=settings)
        metadata.start()
        return metadata

    metadata = open_metadata()
    for number in range(50):
        metadata.write_now([TopicRecord(name=f"topic-{number}", topic_id=UUID(int=number))])
    topics = {name: topic.id for name, topic in metadata.image.topics.items()}
    assert all(segment.size_bytes <= 2_000 for segment in metadata.log.segments)
    assert len(metadata.log.segments) > 1
    metadata.close()
    metadata._directory.close(clean=False)
    again = open_metadata()
    assert {name: topic.id for name, topic in again.image.topics.items()} == topics
    again.close()
    again._directory.close(clean=True)


@pytest.mark.slow
@pytest.mark.skipif(bool(NO_SHIM), reason=NO_SHIM)
def test_a_node_without_its_metadata_log_ends(tmp_path: Path) -> None:
    with (
        sync_fault(tmp_path) as fault,
        strandline.embedded(
            data=tmp_path / "data", environ=fault.environ, properties={"log.dir.failure.timeout.ms": "1"}
        ) as log,
    ):
        log.create_topic("before")
        fault.arm("__cluster_metadata")
        with Peer(log.port) as peer:
            peer.send(request(MetadataRequest(topics=[MetadataRequestTopic(name="made-by-asking")]), 4))
            fault.wait_refused(timeout_s=WAIT_S_MAX)
        deadline = time.monotonic() + WAIT_S_MAX
        while log.running:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with pytest.raises(BrokerFailed, match="status 1"):
            log.stop()
        assert "log.dir.failure.timeout.ms" in log.stderr_text()
        assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()
        fault.disarm()
        log.start()
        log.create_topic("after")

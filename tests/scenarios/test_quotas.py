"""Quotas as stock clients meet them: they are throttled, they are told, and nothing is lost."""

from __future__ import annotations

import asyncio
import contextlib
import re
import select
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from tests.hostile.batches import batch, produce
from tests.hostile.peer import Peer, request

from strandline.broker.main import node_on, stop
from strandline.client.connection import BrokerConnection
from strandline.codec.messages import alter_client_quotas_request as alter
from strandline.codec.messages.alter_client_quotas_response import AlterClientQuotasResponse
from strandline.codec.messages.client_quota_record import ClientQuotaRecord, EntityData
from strandline.codec.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from strandline.codec.messages.create_topics_response import CreateTopicsResponse
from strandline.codec.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from strandline.codec.messages.fetch_response import FetchResponse
from strandline.codec.messages.metadata_request import MetadataRequest
from strandline.codec.messages.metadata_response import MetadataResponse
from strandline.config.node_config import BrokerConfig
from strandline.errors import Disconnected, ErrorCode
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.local.embedded_cluster import EmbeddedCluster
from strandline.testing import embedded

KB = 1000
WAIT_S_MAX = 60.0
# Windows of which an idle client may take one at once, so that a small load is soon throttled.
WINDOWS = {"quota.window.num": "2", "group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}
PRODUCED, CONSUMED, TIME = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
MUTATIONS = "controller_mutation_rate"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with embedded(properties=WINDOWS) as started:
        yield started


def set_quotas(bootstrap: str, values: dict[str, float | None], **entity: str | None) -> None:
    host, port = bootstrap.split(",")[0].rsplit(":", 1)
    with contextlib.closing(BrokerConnection(host, int(port), client_id="admin", timeout_s=WAIT_S_MAX)) as connection:
        entry = alter.EntryData(
            entity=[
                alter.EntityData(entity_type=kind.replace("_", "-"), entity_name=name) for kind, name in entity.items()
            ],
            ops=[alter.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
        )
        answer = connection.ask(alter.AlterClientQuotasRequest(entries=[entry]), AlterClientQuotasResponse)
        assert [each.error_message for each in answer.entries] == [None]


@contextlib.contextmanager
def quotas(bootstrap: str, values: dict[str, float], **entity: str | None) -> Iterator[None]:
    set_quotas(bootstrap, dict(values), **entity)
    try:
        yield
    finally:
        set_quotas(bootstrap, dict.fromkeys(values), **entity)


class Told:
    """The throttle times that a client was told, in seconds."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def __call__(self, event: Any) -> None:
        self.seconds.append(event.throttle_time)


def sender(bootstrap: str, client_id: str, told: Told, **settings: Any) -> Producer:
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "throttle_cb": told,
            "batch.size": 20 * KB,
            "linger.ms": 0,
            **settings,
        }
    )


def send(producer: Producer, topic: str, count: int) -> None:
    failures: list[Any] = []

    def on_delivery(error: Any, _: Any) -> None:
        if error is not None:
            failures.append(error)

    for number in range(count):
        producer.produce(topic, b"%08d" % number + bytes(10 * KB), on_delivery=on_delivery)
        producer.poll(0)
    assert producer.flush(WAIT_S_MAX) == 0
    assert not failures


def test_producer_is_throttled_and_told(broker: EmbeddedBroker) -> None:
    broker.create_topic("slow")
    throttled, free = Told(), Told()
    with quotas(broker.bootstrap, {PRODUCED: 100 * KB}, client_id="slow"):
        began = time.monotonic()
        send(sender(broker.bootstrap, "slow", throttled), "slow", 40)
        took_s = time.monotonic() - began
        send(sender(broker.bootstrap, "other", free), "slow", 40)
    # One second's worth passes at once; the rest, 300 KB, takes its time.
    assert took_s > 2.0
    assert max(throttled.seconds) > 0
    assert not any(free.seconds)


def test_quota_that_is_lifted_ends_the_wait_of_later_requests(broker: EmbeddedBroker) -> None:
    broker.create_topic("lifted")
    told = Told()
    producer = sender(broker.bootstrap, "lifted", told)
    set_quotas(broker.bootstrap, {PRODUCED: 100 * KB}, client_id="lifted")
    timer = threading.Timer(1.0, set_quotas, (broker.bootstrap, {PRODUCED: None}), {"client_id": "lifted"})
    timer.start()
    send(producer, "lifted", 200)
    timer.join()
    count = len(told.seconds)
    send(producer, "lifted", 50)
    assert any(told.seconds)
    assert not any(told.seconds[count:])


def test_consumer_is_throttled_and_misses_nothing(broker: EmbeddedBroker) -> None:
    broker.create_topic("read")
    send(sender(broker.bootstrap, "writer", Told()), "read", 40)
    told = Told()
    with quotas(broker.bootstrap, {CONSUMED: 100 * KB}, client_id="reader"):
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "client.id": "reader",
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "throttle_cb": told,
                "fetch.wait.max.ms": 100,
            }
        )
        consumer.subscribe(["read"])
        seen: list[int] = []
        until = time.monotonic() + WAIT_S_MAX
        while len(seen) < 40 and time.monotonic() < until:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                seen.append(int(message.value()[:8]))
        consumer.close()
    assert seen == list(range(40))
    assert max(told.seconds) > 0


def test_throttled_fetch_keeps_its_session(broker: EmbeddedBroker) -> None:
    broker.create_topic("sessions")
    send(sender(broker.bootstrap, "writer", Told()), "sessions", 30)
    host, port = broker.bootstrap.rsplit(":", 1)
    with (
        quotas(broker.bootstrap, {CONSUMED: 100 * KB}, client_id="follower-on"),
        contextlib.closing(BrokerConnection(host, int(port), client_id="follower-on", timeout_s=WAIT_S_MAX)) as reader,
    ):

        def fetch(session_id: int, epoch: int, offset: int | None) -> tuple[FetchResponse, int]:
            partitions = [FetchPartition(partition=0, fetch_offset=offset or 0, partition_max_bytes=80 * KB)]
            request = FetchRequest(
                max_wait_ms=100,
                min_bytes=1,
                max_bytes=80 * KB,
                session_id=session_id,
                session_epoch=epoch,
                topics=[] if offset is None else [FetchTopic(topic="sessions", partitions=partitions)],
            )
            answer = reader.ask(request, FetchResponse, version_max=12)
            found = [each for topic in answer.responses for each in topic.partitions if each.records]
            return answer, sum(len(each.records or b"") for each in found)

        first, size = fetch(0, 0, 0)
        assert first.session_id > 0
        assert size > 0
        throttled, nothing = fetch(first.session_id, 1, 7)
        assert (throttled.session_id, nothing) == (first.session_id, 0)
        assert throttled.throttle_time_ms > 0
        # The position of the session is the one that was asked for, and it is read from there when the wait is over.
        epoch, seen = 2, 0
        until = time.monotonic() + WAIT_S_MAX
        while not seen and time.monotonic() < until:
            again, seen = fetch(first.session_id, epoch, None)
            assert again.error_code == 0
            epoch += 1
        assert seen > 0
        # A full fetch that is throttled gets no session: its client begins with another one.
        whole, nothing = fetch(0, 0, 0)
        assert (whole.session_id, nothing) == (0, 0)
        assert whole.throttle_time_ms > 0


def test_request_time_is_throttled(broker: EmbeddedBroker) -> None:
    host, port = broker.bootstrap.rsplit(":", 1)
    broker.create_topic("asked", 50)
    with (
        quotas(broker.bootstrap, {TIME: 0.5}, client_id="eager"),
        contextlib.closing(BrokerConnection(host, int(port), client_id="eager", timeout_s=WAIT_S_MAX)) as connection,
    ):
        until = time.monotonic() + WAIT_S_MAX
        told_ms = 0
        while not told_ms and time.monotonic() < until:
            told_ms = connection.ask(MetadataRequest(topics=None), MetadataResponse).throttle_time_ms
        assert 0 < told_ms <= 1000
        began = time.monotonic()
        connection.ask(MetadataRequest(topics=[]), MetadataResponse)
        assert time.monotonic() - began > told_ms / 1000 * 0.9


def resident_bytes(broker: EmbeddedBroker) -> int:
    text = Path(f"/proc/{broker.pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) * 1024


def test_client_that_ignores_the_throttle_is_held_back_by_its_socket(broker: EmbeddedBroker) -> None:
    broker.create_topic("stubborn")
    port = int(broker.bootstrap.rsplit(":", 1)[1])
    before = resident_bytes(broker)
    with quotas(broker.bootstrap, {PRODUCED: KB}, user="ANONYMOUS"), Peer(port) as peer:
        content = request(produce("stubborn", batch([bytes(50 * KB)])), 9)
        sent = 0
        peer.socket.setblocking(False)
        # It takes nothing more once the buffers between us are full.
        while select.select([], [peer.socket], [], 1.0)[1]:
            with contextlib.suppress(BlockingIOError):
                sent += peer.socket.send(content)
            assert sent < 64_000 * KB, "it is read although it should wait"
        assert resident_bytes(broker) - before < 32_000_000
    with Peer(port) as other:
        assert other.is_served()


def is_served(port: int) -> bool:
    """Whether a new connection gets an answer, and is not just closed."""
    with Peer(port) as peer:
        return peer.is_served()


def test_address_that_connects_too_fast_is_closed_without_an_answer(broker: EmbeddedBroker) -> None:
    port = int(broker.bootstrap.rsplit(":", 1)[1])
    set_quotas(broker.bootstrap, {"connection_creation_rate": 2.0}, ip="127.0.0.1")
    try:
        served = [is_served(port) for _ in range(6)]
    finally:
        until = time.monotonic() + WAIT_S_MAX
        while time.monotonic() < until:
            with contextlib.suppress(Disconnected, OSError):
                set_quotas(broker.bootstrap, {"connection_creation_rate": None}, ip="127.0.0.1")
                break
    assert not all(served)
    assert all(is_served(port) for _ in range(10))


def test_metrics_show_who_is_above_a_quota() -> None:
    with embedded(properties={**WINDOWS, "http.listener": "127.0.0.1:0"}) as broker:
        broker.create_topic("watched")
        set_quotas(broker.bootstrap, {PRODUCED: 10 * KB}, client_id="watched")
        send(sender(broker.bootstrap, "watched", Told()), "watched", 3)
        (url,) = re.findall(r"metrics at (http://\S+)/metrics", broker.stderr_text())
        with urllib.request.urlopen(f"{url}/metrics", timeout=WAIT_S_MAX) as answer:
            page = answer.read().decode()
        labels = 'quota="producer_byte_rate",user="",client_id="watched",ip=""'
        shown = dict(re.findall(r"(strandline_quota_\w+)\{" + labels + r"\} (\S+)", page))
        assert float(shown["strandline_quota_limit"]) == 10 * KB
        assert float(shown["strandline_quota_throttle_seconds_total"]) > 0
        assert "throttling client id 'watched': above producer_byte_rate=10000" in broker.stderr_text()


def test_muted_connection_does_not_hold_up_a_stop() -> None:
    with embedded(properties=WINDOWS) as broker:
        broker.create_topic("stopped")
        set_quotas(broker.bootstrap, {PRODUCED: 1.0}, user="ANONYMOUS")
        port = int(broker.bootstrap.rsplit(":", 1)[1])
        with Peer(port) as peer:
            content = request(produce("stopped", batch([bytes(10 * KB)])), 9)
            peer.send(content)
            peer.receive_answer()
            peer.send(content)
            began = time.monotonic()
            broker.stop(timeout_s=120)
            assert time.monotonic() - began < 60.0, "the throttle of hours was waited for"


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with embedded(nodes=3, properties=WINDOWS) as started:
        yield started


def test_replication_is_not_starved(cluster: EmbeddedCluster) -> None:
    bootstrap = cluster.bootstrap_servers
    # Clients without a quota of their own, as the replicas are, may read next to nothing.
    with (
        quotas(bootstrap, {CONSUMED: 1.0, TIME: 0.01}, client_id=None),
        quotas(bootstrap, {TIME: 1000.0, CONSUMED: 1e9}, client_id="writer"),
        quotas(bootstrap, {TIME: 1000.0, CONSUMED: 1e9}, client_id="admin"),
    ):
        cluster.create_topic("copied", partitions=3)
        send(sender(bootstrap, "writer", Told(), acks="all"), "copied", 300)


def test_changes_of_topics_are_throttled_at_every_broker(cluster: EmbeddedCluster) -> None:
    def topic(name: str) -> CreateTopicsRequest:
        return CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=15, replication_factor=1)])

    with quotas(cluster.bootstrap_servers, {MUTATIONS: 1.0}, client_id="builder"), contextlib.ExitStack() as stack:
        told = []
        for number, server in enumerate(cluster.bootstrap_servers.split(",")):
            host, port = server.rsplit(":", 1)
            connection = BrokerConnection(host, int(port), client_id="builder", timeout_s=WAIT_S_MAX)
            stack.callback(connection.close)
            answer = connection.ask(topic(f"built-{number}"), CreateTopicsResponse)
            told.append((answer.topics[0].error_code, answer.throttle_time_ms > 0))
        # Eleven tokens let the first pass, and the second finds them owed, whichever broker it is asked at.
        assert told == [(0, False), *[(ErrorCode.THROTTLING_QUOTA_EXCEEDED, True)] * 2]
        began = time.monotonic()
        connection.ask(MetadataRequest(topics=[]), MetadataResponse)
        assert time.monotonic() - began > answer.throttle_time_ms / 1000 * 0.9


def test_quotas_hold_on_every_listener_of_clients(tmp_path: Path) -> None:
    loop = asyncio.new_event_loop()
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SECOND://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECOND:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "http.listener": "off",
    }
    node = node_on(loop, tmp_path, BrokerConfig.load("", settings))
    node.start()
    record = ClientQuotaRecord(entity=[EntityData(entity_type="user", entity_name=None)], key=PRODUCED, value=1.0)
    done = asyncio.Event()
    try:
        loop.call_soon(lambda: node.metadata.write(node.controller._state.decided([record]), lambda _: done.set()))
        loop.run_until_complete(asyncio.wait_for(done.wait(), WAIT_S_MAX))
        dispatchers = node.client_server.dispatchers
        assert [dispatcher.quotas for dispatcher in dispatchers] == [node.throttling] * 2
        assert [dispatcher.quotas for dispatcher in node.controller_server.dispatchers] == [None]
    finally:
        loop.run_until_complete(stop(node))
        loop.close()

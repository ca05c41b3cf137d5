"""Peers that say nothing, vanish in the middle, or come in thousands."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest
from tests.hostile.batches import batch, produce
from tests.hostile.limited_broker import limited_broker
from tests.hostile.neighbour import TOPIC, Neighbour
from tests.hostile.peer import Closed, Peer, header, request
from tests.hostile.process import MIB, descriptors, resident_bytes, settled_descriptors, until
from tests.hostile.stage import check_standard_error, stage

from strandline.codec.messages.api_versions_request import ApiVersionsRequest
from strandline.codec.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from strandline.codec.messages.metadata_request import MetadataRequest
from strandline.local.embedded_broker import EmbeddedBroker

SEED = 7_001
IDLE_CONNECTIONS = 2000


def fetch_of(topic: str, *, wait_ms: int = 0, min_bytes: int = 0, max_bytes: int = 50 * MIB) -> FetchRequest:
    partition = FetchPartition(partition=0, partition_max_bytes=max_bytes)
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
    )


@pytest.mark.slow
def test_half_open_connections_are_left_alone_and_cost_little(broker: EmbeddedBroker) -> None:
    """Thousands that connect and say nothing, as a scanner or a load balancer does."""
    pid = broker.pid
    descriptors_before, before = settled_descriptors(pid), resident_bytes(pid)
    peers = [Peer(broker.port) for _ in range(IDLE_CONNECTIONS)]
    try:
        until(lambda: descriptors(pid) >= descriptors_before + IDLE_CONNECTIONS - 10, "all connections accepted")
        grown = resident_bytes(pid) - before
        print(f"{grown / IDLE_CONNECTIONS:.0f} bytes of memory for each of {IDLE_CONNECTIONS} connections")
        assert grown < IDLE_CONNECTIONS * 8 * 1024
        assert peers[0].is_served()
        assert peers[-1].is_served()
    finally:
        for peer in peers:
            peer.close()
    until(lambda: descriptors(pid) <= descriptors_before + 10, "descriptors of closed connections are freed")


def test_a_thousand_waiting_fetches_are_let_go(broker: EmbeddedBroker) -> None:
    """Each waits for data that never comes, and its peer vanishes with RST."""
    pid = broker.pid
    descriptors_before = settled_descriptors(pid)
    peers = [Peer(broker.port) for _ in range(1000)]
    for peer in peers:
        peer.send(request(fetch_of("target", wait_ms=2**31 - 1, min_bytes=1 << 30), 11))
    with Peer(broker.port) as peer:
        assert peer.is_served()
    for peer in peers:
        peer.reset()
    until(lambda: descriptors(pid) <= descriptors_before + 10, "descriptors of lost connections are freed")


def test_reset_in_the_middle_of_a_request(broker: EmbeddedBroker) -> None:
    rng = random.Random(SEED)
    print(f"seed {SEED}")
    pid = broker.pid
    descriptors_before = settled_descriptors(pid)
    whole = request(produce("target", batch([b"half" * 20_000])), 9)
    for _ in range(200):
        peer = Peer(broker.port)
        peer.send(whole[: rng.randrange(1, len(whole))])
        peer.reset()
    until(lambda: descriptors(pid) <= descriptors_before + 10, "descriptors of lost connections are freed")


def test_reset_in_the_middle_of_an_answer(broker: EmbeddedBroker) -> None:
    rng = random.Random(SEED)
    print(f"seed {SEED}")
    pid = broker.pid
    with Peer(broker.port) as peer:
        for _ in range(20):
            peer.ask(produce("target", batch([rng.randbytes(500_000)]), partition=1), 9)
    descriptors_before = settled_descriptors(pid)
    fetch = fetch_of("target")
    fetch.topics[0].partitions[0].partition = 1
    for _ in range(60):
        peer = Peer(broker.port, receive_buffer_bytes=4096)
        # Sometimes a second request waits behind the first, so that nobody reads from the connection any more.
        peer.send(request(fetch, 11) + request(ApiVersionsRequest(), 0) * rng.randrange(2))
        peer.receive(rng.randrange(1, 5000))
        peer.reset()
    until(lambda: descriptors(pid) <= descriptors_before + 10, "descriptors of lost connections are freed")


def test_answers_nobody_takes_stop_the_reading_of_requests(broker: EmbeddedBroker) -> None:
    """A peer that only asks: its requests wait in its own buffers, not in our memory."""
    pid = broker.pid
    before = resident_bytes(pid)
    ask = request(MetadataRequest(topics=None), 9)
    with Peer(broker.port, timeout_s=1.0, receive_buffer_bytes=4096) as peer:
        sent = 0
        try:
            while sent < 200 * MIB:
                peer.socket.send(ask * 1000)
                sent += len(ask) * 1000
        except TimeoutError:
            pass
        print(f"{sent} bytes of requests were taken")
        assert sent < 32 * MIB
        assert resident_bytes(pid) - before < 16 * MIB


def test_a_produce_pipeline_that_takes_no_answers(broker: EmbeddedBroker) -> None:
    pid = broker.pid
    before = resident_bytes(pid)
    sent = request(produce("target", batch([b"x" * 100])), 9)
    with Peer(broker.port, timeout_s=1.0, receive_buffer_bytes=4096) as peer:
        taken = 0
        try:
            while taken < 100 * MIB:
                taken += peer.socket.send(sent * 500)
        except TimeoutError:
            pass
        grown = resident_bytes(pid) - before
        print(f"{taken / MIB:.0f} MiB of requests were taken, memory grew by {grown / MIB:.0f} MiB")
        assert grown < 32 * MIB


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["max.connections", "max.connections.per.ip"])
def test_the_limit_on_connections(setting: str) -> None:
    with stage({}, properties={setting: "30"}) as log:
        peers = []
        refused = 0
        for _ in range(60):
            peer = Peer(log.port)
            if peer_is_served(peer):
                peers.append(peer)
            else:
                refused += 1
                peer.close()
        assert 10 <= len(peers) <= 30
        assert refused == 60 - len(peers)
        for peer in peers:
            assert peer.is_served(), "a connection that was let in is shut out"
            peer.close()

        def room_again() -> bool:
            with Peer(log.port) as again:
                return peer_is_served(again)

        until(room_again, "room for others after some have left")


def peer_is_served(peer: Peer) -> bool:
    try:
        return peer.is_served()
    except (Closed, OSError):
        return False


def test_idle_connections_are_closed_and_slow_ones_are_not() -> None:
    with (
        stage({"target": 1}, properties={"connections.max.idle.ms": "2000"}) as log,
        Peer(log.port) as silent,
        Peer(log.port) as half,
    ):
        half.send(struct.pack(">i", 1000) + header(0, 9, flexible=True))
        stuck = Peer(log.port)
        # One request waits for ever, and behind it another: nobody reads from this connection any more.
        stuck.send(request(fetch_of("target", wait_ms=2**31 - 1, min_bytes=1), 11) * 2)
        assert silent.is_closed()
        assert half.is_closed()
        assert stuck.is_closed()
        stuck.close()


def run_out_of_descriptors(limit: int, tmp_path: Path) -> None:
    with limited_broker(tmp_path, open_files=limit) as log:
        log.create_topic(TOPIC)
        log.create_topic("busy", 3, internal_segment_bytes=16_384)
        with Neighbour(log.bootstrap), Peer(log.port) as served:
            assert served.is_served()
            peers = []
            try:
                for _ in range(limit + 50):
                    peers.append(Peer(log.port, timeout_s=0.2))
                # Segments roll all the while: files must be opened although connections would take every descriptor.
                for number in range(60):
                    answer = served.ask(produce("busy", batch([b"x" * 10_000]), partition=number % 3), 9)
                    assert answer.responses[0].partition_responses[0].error_code == 0
            finally:
                for peer in peers:
                    peer.close()

            def served_again() -> bool:
                with Peer(log.port) as again:
                    return peer_is_served(again)

            until(served_again, "new connections after others have left")
        check_standard_error(log.pid)


@pytest.mark.slow
def test_out_of_descriptors(tmp_path: Path) -> None:
    run_out_of_descriptors(256, tmp_path)


def test_a_flood_of_connections_that_hang_up_at_once(broker: EmbeddedBroker) -> None:
    pid = broker.pid
    descriptors_before = settled_descriptors(pid)
    for _ in range(2000):
        Peer(broker.port).reset()
    until(lambda: descriptors(pid) <= descriptors_before + 10, "descriptors of lost connections are freed")

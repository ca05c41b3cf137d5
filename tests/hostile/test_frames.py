"""Frames that lie about their length, come in crumbs, or ask for what is not there."""

from __future__ import annotations

import random
import struct

import pytest
from tests.hostile.batches import batch, produce
from tests.hostile.peer import ROUTES, Peer, answer_of, framed, header, raw_request, request
from tests.hostile.process import (
    MIB,
    descriptors,
    forget_peak,
    peak_resident_bytes,
    resident_bytes,
    settled_descriptors,
    until,
)

from strandline.codec.message_codec import decode_exact
from strandline.codec.messages.api_versions_request import ApiVersionsRequest
from strandline.codec.messages.api_versions_response import ApiVersionsResponse
from strandline.codec.messages.metadata_request import MetadataRequest
from strandline.errors import ErrorCode
from strandline.local.embedded_broker import EmbeddedBroker

SEED = 20_231
FRAME_BYTES_MAX = 104_857_600
BAD_LENGTHS = [-(2**31), -2, -1, 0, 1, 9, FRAME_BYTES_MAX + 1, 2**31 - 1]


@pytest.mark.parametrize("size", BAD_LENGTHS)
@pytest.mark.parametrize("followed_by", [b"", header(3, 0, flexible=False) + bytes(64)], ids=["alone", "followed"])
def test_a_length_that_cannot_be_closes_the_connection(broker: EmbeddedBroker, size: int, followed_by: bytes) -> None:
    with Peer(broker.port) as peer:
        peer.send(struct.pack(">i", size) + followed_by)
        assert peer.is_closed()


def test_a_length_that_is_too_short_for_its_message_closes_the_connection(broker: EmbeddedBroker) -> None:
    whole = request(MetadataRequest(topics=[]), 12)
    for cut in range(1, len(whole) - 14):
        with Peer(broker.port) as peer:
            peer.send(struct.pack(">i", len(whole) - 4 - cut) + whole[4:-cut])
            assert peer.is_closed(), f"cut by {cut}"


def test_a_length_that_is_too_long_waits_for_the_rest(broker: EmbeddedBroker) -> None:
    whole = request(ApiVersionsRequest(), 0)
    with Peer(broker.port, timeout_s=0.5) as peer:
        peer.send(struct.pack(">i", len(whole) - 4 + 8) + whole[4:])
        with pytest.raises(TimeoutError):
            peer.socket.recv(1)
        # The eight bytes behind the message are ignored, as Kafka does.
        peer.send(b"12345678")
        peer.socket.settimeout(20)
        assert answer_of(ROUTES[18], 0, peer.receive_answer()).error_code == 0


def test_frames_fed_byte_by_byte(broker: EmbeddedBroker) -> None:
    stream = request(MetadataRequest(topics=[]), 9, correlation_id=1)
    stream += request(produce("target", batch([b"crumbs"])), 9, correlation_id=2)
    stream += request(ApiVersionsRequest(), 0, correlation_id=3)
    with Peer(broker.port) as peer:
        for byte in stream:
            peer.send(bytes((byte,)))
        answers = [peer.receive_answer() for _ in range(3)]
    assert [content[:4] for content in answers] == [struct.pack(">i", n) for n in (1, 2, 3)]
    stored = answer_of(ROUTES[0], 9, answers[1]).responses[0].partition_responses[0]
    assert stored.error_code == 0
    assert stored.base_offset >= 0


def test_good_requests_before_garbage_are_answered_in_order(broker: EmbeddedBroker) -> None:
    with Peer(broker.port) as peer:
        peer.send(
            b"".join(request(ApiVersionsRequest(), 0, correlation_id=number) for number in range(100))
            + framed(b"\xff" * 40)
            + request(ApiVersionsRequest(), 0, correlation_id=100)
        )
        for number in range(100):
            assert peer.receive_answer()[:4] == struct.pack(">i", number)
        # Garbage is no request, so nothing behind it is one either.
        assert peer.is_closed()


def test_pipelined_garbage(broker: EmbeddedBroker) -> None:
    rng = random.Random(SEED)
    print(f"seed {SEED}")
    for _ in range(200):
        with Peer(broker.port) as peer:
            # No answer can come: garbage names a served API only by chance, and then its body must fit as well.
            garbage = b"".join(framed(rng.randbytes(rng.randint(0, 200))) for _ in range(rng.randint(1, 20)))
            peer.send(garbage + rng.randbytes(rng.randint(0, 100)))
            peer.socket.shutdown(1)
            while peer.socket.recv(65536):
                pass


@pytest.mark.parametrize("api_key", [-1, 4, 5, 6, 7, 34, 52, 93, 1000, 20_999, 32_767, -32_768])
def test_an_unknown_api_key_closes_the_connection(broker: EmbeddedBroker, api_key: int) -> None:
    assert api_key not in ROUTES
    with Peer(broker.port) as peer:
        peer.send(framed(header(api_key, 0, flexible=False)))
        assert peer.is_closed()


@pytest.mark.parametrize("route", [route for route in ROUTES.values() if route.api_key != 18], ids=lambda r: r.name)
def test_an_unknown_version_closes_the_connection(broker: EmbeddedBroker, route: object) -> None:
    from strandline.broker.network.routes import Route

    assert isinstance(route, Route)
    for version in (route.version_min - 1, route.version_max + 1, -32_768, 32_767, -1):
        with Peer(broker.port) as peer:
            peer.send(raw_request(route.api_key, version, bytes(64)))
            assert peer.is_closed(), f"version {version}"


@pytest.mark.parametrize("version", [-1, -32_768, 5, 99, 32_767])
def test_an_unknown_version_of_api_versions_is_answered_with_those_there_are(
    broker: EmbeddedBroker, version: int
) -> None:
    with Peer(broker.port) as peer:
        # Nobody can know what the body of an unknown version looks like.
        peer.send(framed(header(18, version, flexible=True, correlation_id=77) + b"\xff" * 30))
        content = peer.receive_answer()
        answer = decode_exact(ApiVersionsResponse, 0, content, 4)
        assert content[:4] == struct.pack(">i", 77)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert [(each.api_key, each.min_version, each.max_version) for each in answer.api_keys] == [(18, 0, 4)]
        assert peer.is_served()


@pytest.mark.parametrize("size", [-2, -32_768, 32_767, 20])
def test_a_client_id_that_lies_about_its_length(broker: EmbeddedBroker, size: int) -> None:
    for api_key, version in ((0, 9), (0, 3), (1, 12), (1, 4), (3, 12), (3, 0), (18, 3), (18, 0)):
        content = struct.pack(">hhih", api_key, version, 1, size) + bytes(8)
        with Peer(broker.port) as peer:
            answer = peer.ask_raw(framed(content))
            assert answer is None or peer.is_served()


def test_a_client_id_that_is_no_text_is_only_a_name(broker: EmbeddedBroker) -> None:
    with Peer(broker.port) as peer:
        peer.send(framed(header(3, 0, flexible=False, client_id=b"\xff\xfe") + struct.pack(">i", 0)))
        assert answer_of(ROUTES[3], 0, peer.receive_answer()).brokers
        assert peer.is_served()


def test_memory_is_not_given_for_promises(broker: EmbeddedBroker) -> None:
    """A thousand connections that each claim a frame of 100 MiB and send the first bytes of it."""
    pid = broker.pid
    descriptors_before, before = settled_descriptors(pid), resident_bytes(pid)
    forget_peak(pid)
    peers = [Peer(broker.port) for _ in range(1000)]
    try:
        for peer in peers:
            peer.send(struct.pack(">i", FRAME_BYTES_MAX) + header(0, 9, flexible=True) + bytes(1000))
        with Peer(broker.port) as served:
            assert served.is_served()
        # A few fewer: descriptors of others, such as the neighbour's connections, come and go meanwhile.
        until(lambda: descriptors(pid) >= descriptors_before + 990, "1,000 connections accepted")
        grown = peak_resident_bytes(pid) - before
        print(f"1,000 claims of 100 MiB: {grown / MIB:.1f} MiB")
        assert grown < 50 * MIB
    finally:
        for peer in peers:
            peer.close()
    until(lambda: descriptors(pid) <= descriptors_before + 10, "descriptors of closed connections are freed")

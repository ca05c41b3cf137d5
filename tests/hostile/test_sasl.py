"""Peers that are not authenticated, at a listener with SASL: whatever they send, others are served."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from tests.crash.harness import new_seed
from tests.hostile.peer import ROUTES, Closed, Peer, answer_of, framed, header, raw_request, request

import strandline
from strandline.codec.messages.api_versions_request import ApiVersionsRequest
from strandline.codec.messages.metadata_request import MetadataRequest
from strandline.codec.messages.sasl_authenticate_request import SaslAuthenticateRequest
from strandline.codec.messages.sasl_handshake_request import SaslHandshakeRequest
from strandline.errors import ErrorCode
from strandline.local.embedded_broker import EmbeddedBroker

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";'
PROPERTIES = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "sasl.jaas.config": JAAS,
    "connection.failed.authentication.delay.ms": "1",
    "sasl.server.max.receive.size": "10000",
}
LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "alice",
    "sasl.password": "secret",
    "log_level": "0",
}
PLAIN = b"\0alice\0secret"
HANDSHAKE, AUTHENTICATE = 17, 36


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with strandline.embedded(properties=PROPERTIES) as running:
        yield running


@pytest.fixture(autouse=True)
def others_are_served(broker: EmbeddedBroker) -> Iterator[None]:
    yield
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": "60000"} | LOGIN)
    failures: list[object] = []
    producer.produce("after", b"x", on_delivery=lambda error, message: error and failures.append(error))
    assert producer.flush(60) == 0
    assert failures == []


def shake(peer: Peer, mechanism: str = "PLAIN", version: int = 1) -> int:
    content = peer.ask_raw(request(SaslHandshakeRequest(mechanism=mechanism), version))
    assert content is not None
    return int(answer_of(ROUTES[HANDSHAKE], version, content).error_code)


def is_closed(peer: Peer, *frames: bytes) -> bool:
    try:
        for each in frames:
            peer.send(each)
        while True:
            peer.receive(1)
    except TimeoutError:
        return False
    except (Closed, OSError):
        return True


@pytest.mark.parametrize("api_key", [key for key in ROUTES if key not in (17, 18)])
def test_no_request_is_served_before_the_login(broker: EmbeddedBroker, api_key: int) -> None:
    with Peer(broker.port) as peer:
        assert is_closed(peer, raw_request(api_key, ROUTES[api_key].version_max, bytes(40)))


@pytest.mark.parametrize(
    "frames",
    [
        (framed(b"\xff" * 5000),),
        (struct.pack(">i", 10_001),),
        (struct.pack(">i", 2**31 - 1),),
        (struct.pack(">i", -1),),
        (struct.pack(">i", 9) + bytes(9),),
        (b"\x16\x03\x01\x02\x00" + bytes(100),),
        (b"GET / HTTP/1.1\r\n\r\n",),
        (request(ApiVersionsRequest("a", "1"), 4), request(ApiVersionsRequest("a", "1"), 4)),
        (request(SaslAuthenticateRequest(auth_bytes=PLAIN), 1),),
        (request(SaslHandshakeRequest(mechanism="PLAIN"), 1), request(MetadataRequest(), 1)),
        (request(SaslHandshakeRequest(mechanism="PLAIN"), 1), request(ApiVersionsRequest("a", "1"), 4)),
        (request(SaslHandshakeRequest(mechanism="PLAIN"), 1), request(SaslHandshakeRequest(mechanism="PLAIN"), 1)),
        (request(SaslHandshakeRequest(mechanism="PLAIN"), 0), struct.pack(">i", 10_001)),
        (request(SaslHandshakeRequest(mechanism="PLAIN"), 0), struct.pack(">i", -5)),
        (request(SaslHandshakeRequest(mechanism="PLAIN"), 0), framed(b"\xff" * 100)),
        (request(SaslHandshakeRequest(mechanism="PLAIN"), 0), framed(b"")),
        (request(SaslHandshakeRequest(mechanism="x" * 5000), 1),),
        (raw_request(HANDSHAKE, 2, bytes(10)),),
        (raw_request(HANDSHAKE, 1, b"\x7f\xff"),),
        (framed(header(18, 4, flexible=False) + b"\xff\xff\xff\xff\x0f" * 20),),
        (request(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1), raw_request(AUTHENTICATE, 2, b"\xff" * 5)),
    ],
    ids=range(21),
)
def test_peers_that_do_not_keep_to_the_protocol_are_closed(broker: EmbeddedBroker, frames: tuple[bytes, ...]) -> None:
    with Peer(broker.port) as peer:
        assert is_closed(peer, *frames)


def test_a_failed_login_is_the_end_of_its_connection(broker: EmbeddedBroker) -> None:
    for mechanism, token in (("PLAIN", b"\0alice\0wrong"), ("PLAIN", b""), ("SCRAM-SHA-256", b"\xff" * 9000)):
        with Peer(broker.port) as peer:
            assert shake(peer, mechanism) == 0
            content = peer.ask_raw(request(SaslAuthenticateRequest(auth_bytes=token), 1))
            assert content is not None
            answer = answer_of(ROUTES[AUTHENTICATE], 1, content)
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert is_closed(peer)


def test_a_replayed_proof_fails(broker: EmbeddedBroker) -> None:
    with Peer(broker.port) as peer:
        shake(peer, "SCRAM-SHA-256")
        peer.ask_raw(request(SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=abc"), 1))
        content = peer.ask_raw(request(SaslAuthenticateRequest(auth_bytes=b"c=biws,r=abc,p=AAAA"), 1))
        assert content is not None
        assert answer_of(ROUTES[AUTHENTICATE], 1, content).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_half_frames_and_silence(broker: EmbeddedBroker) -> None:
    """Hundreds of peers stop in the middle of a login; all of them leave at the end of the test."""
    whole = request(SaslHandshakeRequest(mechanism="PLAIN"), 1) + request(SaslAuthenticateRequest(auth_bytes=PLAIN), 1)
    peers = [Peer(broker.port) for _ in range(300)]
    for number, peer in enumerate(peers):
        peer.send(whole[: number % (len(whole) - 1)])
    with Peer(broker.port) as one:
        assert shake(one) == 0
    for peer in peers:
        peer.close()


def test_random_conversations(broker: EmbeddedBroker) -> None:
    seed = new_seed()
    rng = random.Random(seed)
    parts = [
        request(ApiVersionsRequest("a", "1"), 4),
        request(SaslHandshakeRequest(mechanism="PLAIN"), 0),
        request(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1),
        request(SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=abc"), 2),
        request(SaslAuthenticateRequest(auth_bytes=b"c=biws,r=abc,p=AAAA"), 1),
        request(MetadataRequest(), 1),
        framed(b"\0alice\0wrong"),
        framed(b""),
        bytes(7),
    ]
    for _ in range(150):
        with Peer(broker.port) as peer:
            try:
                for part in rng.choices(parts, k=rng.randrange(1, 6)):
                    spoilt = bytearray(part)
                    if rng.random() < 0.3:
                        spoilt[rng.randrange(len(spoilt))] = rng.randrange(256)
                    peer.send(bytes(spoilt[: rng.randrange(1, len(spoilt) + 1)] if rng.random() < 0.2 else spoilt))
            except (OSError, Closed):
                pass

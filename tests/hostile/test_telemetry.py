"""Metrics that clients push: bombs, garbage and crowds, within memory and without anybody else noticing."""

from __future__ import annotations

import random
import uuid

import pytest
from tests.hostile.peer import Peer, request
from tests.hostile.process import forget_peak, peak_resident_bytes, resident_bytes
from tests.unit.observability.otlp_messages import metric, metrics_data, part

from strandline.codec.compression import compress
from strandline.codec.messages.api_versions_request import ApiVersionsRequest
from strandline.codec.messages.get_telemetry_subscriptions_request import GetTelemetrySubscriptionsRequest
from strandline.codec.messages.push_telemetry_request import PushTelemetryRequest
from strandline.errors import ErrorCode
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.testing import embedded

MIB = 1024 * 1024
TELEMETRY_MAX_BYTES = MIB
BUDGET_BYTES = 64 * MIB
SEED = 20_261_115


def subscribed(peer: Peer) -> PushTelemetryRequest:
    """A push that is due, of a client of its own, without its metrics."""
    asked = peer.ask(GetTelemetrySubscriptionsRequest(), 0)
    assert asked.error_code == 0
    assert asked.telemetry_max_bytes == TELEMETRY_MAX_BYTES
    assert asked.accepted_compression_types == [4, 3, 1, 2]
    return PushTelemetryRequest(client_instance_id=asked.client_instance_id, subscription_id=asked.subscription_id)


def push(broker: EmbeddedBroker, metrics: bytes, codec: int) -> ErrorCode:
    with Peer(broker.port) as peer:
        asked = subscribed(peer)
        asked.compression_type = codec
        asked.metrics = metrics
        return ErrorCode(peer.ask(asked, 0).error_code)


@pytest.mark.slow
@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_bomb_is_refused_within_memory(broker: EmbeddedBroker, codec: int) -> None:
    # What one mebibyte of each codec may become: 32 GB of zstd would take too long to make, 512 MiB tell the same.
    size = {1: 512, 2: 20, 3: 200, 4: 512}[codec] * MIB
    bomb = compress(codec, bytes(size))
    assert len(bomb) <= TELEMETRY_MAX_BYTES
    push(broker, compress(codec, metrics_data(metric("m", 1))), codec)
    before = resident_bytes(broker.pid)
    forget_peak(broker.pid)
    for _ in range(3):
        assert push(broker, bomb, codec) is ErrorCode.TELEMETRY_TOO_LARGE
    assert peak_resident_bytes(broker.pid) - before < BUDGET_BYTES


def test_more_than_telemetry_max_bytes_is_too_large(broker: EmbeddedBroker) -> None:
    assert push(broker, bytes(TELEMETRY_MAX_BYTES + 1), 0) is ErrorCode.TELEMETRY_TOO_LARGE


@pytest.mark.parametrize("codec", range(5))
def test_garbage_is_an_invalid_record(broker: EmbeddedBroker, codec: int) -> None:
    source = random.Random(SEED)
    print("seed", SEED)
    for size in (1, 10, 1_000, 100_000):
        # A field number that is missing, so that garbage is never metrics by chance.
        garbage = b"\x00" + source.randbytes(size)
        assert push(broker, garbage, codec) is ErrorCode.INVALID_RECORD
        assert push(broker, compress(codec, garbage), codec) is ErrorCode.INVALID_RECORD


def test_a_crowd_pushes_at_once(broker: EmbeddedBroker) -> None:
    crowd = [Peer(broker.port) for _ in range(30)]
    pushes = [subscribed(peer) for peer in crowd]
    junk = part(1, part(2, part(3, b"") * 50_000) + part(9, bytes(800_000)))
    assert len(junk) < TELEMETRY_MAX_BYTES
    before = resident_bytes(broker.pid)
    forget_peak(broker.pid)
    for peer, asked in zip(crowd, pushes, strict=True):
        asked.metrics = junk
        peer.send(request(asked, 0))
    codes = [int.from_bytes(peer.receive_answer()[9:11], "big") for peer in crowd]
    for peer in crowd:
        peer.close()
    assert set(codes) <= {0, ErrorCode.THROTTLING_QUOTA_EXCEEDED}
    assert codes.count(0) >= 1
    assert peak_resident_bytes(broker.pid) - before < BUDGET_BYTES


def test_made_up_clients_are_refused_and_forgotten(broker: EmbeddedBroker) -> None:
    source = random.Random(SEED)
    print("seed", SEED)
    with Peer(broker.port) as peer:
        for _ in range(500):
            instance_id = uuid.UUID(int=source.getrandbits(128))
            answer = peer.ask(PushTelemetryRequest(client_instance_id=instance_id, subscription_id=7, metrics=b"x"), 0)
            assert answer.error_code == ErrorCode.UNKNOWN_SUBSCRIPTION_ID


def test_who_hangs_up_during_a_push_leaves_nothing_behind(broker: EmbeddedBroker) -> None:
    payload = compress(4, metrics_data(*(metric(f"m{number}", number) for number in range(4_000))))
    for _ in range(20):
        peer = Peer(broker.port)
        asked = subscribed(peer)
        asked.compression_type, asked.metrics = 4, payload
        peer.send(request(asked, 0))
        peer.reset()
    assert push(broker, payload, 4) in (ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED)


def test_nobody_is_asked_to_push_where_nobody_could_see_it() -> None:
    with embedded() as log:
        with Peer(log.port) as peer:
            keys = {
                each.api_key
                for each in peer.ask(
                    ApiVersionsRequest(client_software_name="x", client_software_version="1"), 4
                ).api_keys
            }
        assert not {71, 72} & keys
        with Peer(log.port) as peer:
            assert peer.ask(GetTelemetrySubscriptionsRequest(), 0).error_code == 0, (
                "whoever asks all the same is answered"
            )

"""Pushes are inflated one at a time, within limits, and read a share per turn."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator

import pytest
from tests.unit.observability.otlp_messages import metric, metrics_data, part

from strandline.broker.metrics.telemetry import INFLATED_FACTOR_MAX, WAITING_BYTES_MAX, Telemetry
from strandline.codec.compression import compress
from strandline.errors import ErrorCode
from strandline.runtime.runtime import LoopRuntime

TELEMETRY_MAX_BYTES = 1024 * 1024
ME = uuid.UUID(int=9)


class Receiver:
    def __init__(self) -> None:
        self.runtime = LoopRuntime(asyncio.get_running_loop())
        self.telemetry = Telemetry(self.runtime)

    def push(self, payload: bytes, codec: int = 0, *, instance_id: uuid.UUID = ME) -> asyncio.Future[ErrorCode]:
        taken: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self.telemetry.take(
            instance_id,
            "app",
            codec,
            payload,
            expires_ms=1,
            size_bytes_max=TELEMETRY_MAX_BYTES,
            on_taken=taken.set_result,
        )
        return taken

    def text(self) -> str:
        return "".join(self.telemetry.store.pieces(0))


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    made = Receiver()
    yield made
    made.runtime.close()


@pytest.mark.parametrize("codec", range(5))
async def test_every_codec_is_read(receiver: Receiver, codec: int) -> None:
    payload = metrics_data(*(metric(f"m{number}", number) for number in range(300)))
    assert await receiver.push(compress(codec, payload), codec) is ErrorCode.NONE
    assert (
        'kafka_client_m299{client_instance_id="00000000-0000-0000-0000-000000000009",client_id="app"} 299'
        in receiver.text()
    )


async def test_nothing_is_pushed(receiver: Receiver) -> None:
    assert await receiver.push(b"") is ErrorCode.NONE


@pytest.mark.parametrize("codec", range(5))
async def test_what_is_no_metrics_is_an_invalid_record(receiver: Receiver, codec: int) -> None:
    assert await receiver.push(b"\xff\xff\xff", codec) is ErrorCode.INVALID_RECORD
    assert await receiver.push(compress(codec, metrics_data(metric("m", 1))), codec) is ErrorCode.NONE


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
async def test_a_bomb_is_too_large(receiver: Receiver, codec: int) -> None:
    bomb = compress(codec, bytes(TELEMETRY_MAX_BYTES * INFLATED_FACTOR_MAX + 1))
    assert len(bomb) < TELEMETRY_MAX_BYTES
    assert await receiver.push(bomb, codec) is ErrorCode.TELEMETRY_TOO_LARGE


async def test_only_so_much_waits_and_all_are_answered(receiver: Receiver) -> None:
    large = part(1, bytes(TELEMETRY_MAX_BYTES - 10))
    pushes = [receiver.push(large, instance_id=uuid.UUID(int=number + 2)) for number in range(30)]
    codes = await asyncio.wait_for(asyncio.gather(*pushes), 60)
    refused = codes.count(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
    assert 30 - WAITING_BYTES_MAX // len(large) - 1 <= refused < 30
    assert await receiver.push(metrics_data(metric("m", 1))) is ErrorCode.NONE


async def test_others_have_their_turn_while_a_push_is_read(receiver: Receiver) -> None:
    payload = metrics_data(*(metric(f"m{number}", number, {"a": "b" * 100}) for number in range(4_000)))
    taken = receiver.push(payload)
    turns = 0
    while not taken.done():  # the turns are what is counted
        turns += 1
        await asyncio.sleep(0)
    assert taken.result() is ErrorCode.NONE
    assert turns > 5

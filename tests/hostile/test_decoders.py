"""What decoders make of spoilt requests: the same by hand and by schema, and no more memory than the bytes deserve."""

from __future__ import annotations

import contextlib
import random
import tracemalloc

import pytest
from tests.fuzz.engine import spoil
from tests.fuzz.targets import BATCH_ERRORS, TARGETS
from tests.hostile.batches import batch
from tests.hostile.odd_requests import every_route_and_version, odd_message
from tests.hostile.peer import request_class

from strandline.broker.network.routes import Route
from strandline.codec import compression
from strandline.codec.message_codec import decode, encode
from strandline.codec.wire import ELEMENTS_MAX
from strandline.errors import MalformedMessage


@pytest.mark.parametrize(
    ("name", "version"),
    [("Produce", v) for v in range(3, 14)]
    + [("Fetch", v) for v in range(4, 19)]
    + [(name, v) for name in ("ShareFetch", "ShareAcknowledge") for v in (1, 2)],
)
def test_parsed_by_hand_or_by_schema_it_is_the_same(name: str, version: int) -> None:
    """What one of the two takes for a request the other does too. Only known tagged fields are passed over by hand."""
    rng = random.Random(f"twins {name} {version}")
    route = next(route for route, _ in every_route_and_version() if route.name == name)
    by_hand = TARGETS[f"{name} {version} by hand"]
    for _ in range(60):
        sound = encode(odd_message(route, version, rng), version)
        for data in (sound, spoil(sound, rng)):
            outcomes = []
            for parse in (by_hand.read, lambda data: decode(request_class(route), version, data)):
                try:
                    parse(data)
                    outcomes.append(True)
                except MalformedMessage:
                    outcomes.append(False)
            assert outcomes[0] or not outcomes[1], f"only by hand refused: {data.hex()}"
            assert outcomes[1] or not outcomes[0] or version >= route.flexible_from, f"only by hand taken: {data.hex()}"


def test_spoilt_requests_take_no_memory() -> None:
    """Whatever a damaged count claims, what is made of a request stays near the size of the request."""
    worst = 0.0
    for route, version in every_route_and_version():
        rng = random.Random(f"memory {route.name} {version}")
        for _ in range(4):
            sound = encode(odd_message(route, version, rng), version)
            # The first message of a kind has its decoder compiled; that is not what the peer's bytes cost.
            decode(request_class(route), version, sound)
            data = spoil(sound, rng)
            tracemalloc.start()
            with contextlib.suppress(MalformedMessage):
                decode(request_class(route), version, data, elements_max=ELEMENTS_MAX)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            worst = max(worst, peak / max(len(data), 100))
    print(f"at most {worst:.0f} bytes for each byte")
    assert worst < 100


@pytest.mark.parametrize("number", [*range(8), 2**31, -1])
def test_only_declared_codecs(number: int) -> None:
    payload = batch()[61:]
    try:
        compression.decompress(number, payload, size_bytes_max=1 << 20)
    except BATCH_ERRORS:
        assert number != 0


@pytest.mark.parametrize(
    ("route", "version"), [pytest.param(r, v, id=f"{r.name}-{v}") for r, v in every_route_and_version()]
)
def test_a_request_cut_at_any_byte_is_none(route: Route, version: int) -> None:
    rng = random.Random(f"cuts {route.name} {version}")
    readers = [TARGETS[f"{route.name} {version}"]]
    if route.hot is not None:
        readers.append(TARGETS[f"{route.name} {version} by hand"])
    for _ in range(3):
        body = encode(odd_message(route, version, rng), version)
        places = range(len(body)) if len(body) < 600 else sorted(rng.sample(range(len(body)), 600))
        for reader in readers:
            reader.read(body)
            for size in places:
                with pytest.raises(MalformedMessage):
                    reader.read(body[:size])

"""Every decoder, fed with anything: a value or its declared error, nothing else, and no more memory than it was given.

Three kinds of input: any bytes; a sound message with bytes changed, cut or added; and texts for the small files.
"""

from __future__ import annotations

import contextlib
import random
import tracemalloc
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.hostile.batches import RECORDS_AT, batch, with_fields
from tests.hostile.odd_requests import every_route_and_version, odd_message
from tests.hostile.peer import request_class
from tests.unit.codec.message_values import every_class_and_version, random_message

from strandline.codec import columns, compression, internal_records, record_batch
from strandline.codec.columns import Record
from strandline.codec.fetch import parse_fetch
from strandline.codec.message import decode, encode
from strandline.codec.produce import parse_produce
from strandline.codec.wire import ELEMENTS_MAX
from strandline.errors import (
    BatchTooLarge,
    CorruptBatch,
    CorruptLog,
    InvalidBatch,
    MalformedMessage,
    PeerError,
    StrandlineError,
    UnsupportedCompression,
    UnsupportedVersion,
)
from strandline.log.checkpoints import parse_offsets
from strandline.log.index import OffsetIndex, TimeIndex
from strandline.log.leader_epochs import LeaderEpochs
from strandline.partition.producers import Producers
from strandline.quorum.quorum_state import MetaProperties, QuorumState
from strandline.settings import parse_properties

SHORT, LONG = 40, 4000
LONG_TIMEOUT_S = 1800


class Decoder(NamedTuple):
    decode: Callable[[bytes], Any]
    errors: tuple[type[StrandlineError], ...]
    sound: Callable[[random.Random], bytes]
    """A sound input, to be spoilt."""


BATCH_ERRORS = (CorruptBatch, InvalidBatch, BatchTooLarge, UnsupportedCompression)


def _some_batch(rng: random.Random) -> bytes:
    records = [
        Record(
            timestamp_ms=rng.randrange(1 << 41),
            key=rng.choice((None, b"", b"key")),
            value=rng.choice((None, b"", rng.randbytes(rng.randrange(200)))),
            headers=tuple(("h", rng.choice((None, b"x"))) for _ in range(rng.randrange(3))),
        )
        for _ in range(rng.randrange(1, 20))
    ]
    return columns.encode_batch(records, compression=rng.randrange(5))


def _walk(data: bytes) -> int:
    """Decode whatever batches are there, and touch every record."""
    return sum(1 for each in columns.columns_of(data) for _ in each)


def _some_metadata_record(rng: random.Random) -> bytes:
    classes = [
        cls for cls, _ in every_class_and_version() if cls.__name__.endswith("Record") and "Group" not in cls.__name__
    ]
    cls = rng.choice(
        [cls for cls in classes if internal_records.INDEX["metadata"].get(cls.API_KEY, ("", ""))[1] == cls.__name__]
    )
    return internal_records.encode_metadata_record(random_message(cls, cls.VERSION_MAX, rng))


def _some_snapshot(rng: random.Random) -> bytes:
    producers = Producers()
    for number in range(rng.randrange(5)):
        producers.note(number, 0, 0, 10, 3, 1000)
    return producers.snapshot()


def _restore(data: bytes) -> None:
    Producers().restore(data)


def _codec(number: int) -> Callable[[bytes], Any]:
    return lambda data: compression.decompress(number, data, size_bytes_max=1 << 20)


def _mended(data: bytes) -> bytes:
    """With length and CRC made right, so that what is spoilt behind them is reached."""
    return with_fields(data, length=len(data) - 12) if len(data) >= RECORDS_AT else data


def _hot(name: str, version: int) -> Decoder:
    """One of the two requests that are parsed by hand."""
    (route,) = {route.api_key: route for route, _ in every_route_and_version() if route.name == name}.values()
    parse: Callable[[memoryview, int, int], Any] = parse_produce if name == "Produce" else parse_fetch
    return Decoder(
        lambda data: parse(memoryview(bytearray(data)), 0, version),
        (MalformedMessage,),
        lambda rng: encode(odd_message(route, version, rng), version),
    )


GROUP_METADATA = b"\x00\x03\x00\x08consumer\x00\x00\x00\x01\xff\xff\xff\xff" + bytes(12)
PROPERTIES = b"a.b = c\\\n  d\n# e\n!f\ng:h"

DECODERS: dict[str, Decoder] = {
    "check_batch": Decoder(record_batch.check_batch, BATCH_ERRORS, _some_batch),
    "columns": Decoder(_walk, BATCH_ERRORS, lambda rng: b"".join(_some_batch(rng) for _ in range(rng.randrange(1, 4)))),
    "columns behind a right CRC": Decoder(lambda data: _walk(_mended(data)), BATCH_ERRORS, _some_batch),
    "metadata record": Decoder(
        internal_records.decode_metadata_record, (MalformedMessage, UnsupportedVersion), _some_metadata_record
    ),
    "coordinator key": Decoder(
        lambda data: internal_records.decode_coordinator_record(data, None),
        (MalformedMessage, UnsupportedVersion),
        lambda rng: b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x00",
    ),
    "coordinator value": Decoder(
        lambda data: internal_records.decode_coordinator_record(b"\x00\x02\x00\x01g", data),
        (MalformedMessage, UnsupportedVersion),
        lambda rng: GROUP_METADATA,
    ),
    "producer snapshot": Decoder(_restore, (CorruptLog,), _some_snapshot),
    "offset index": Decoder(OffsetIndex.parse, (), lambda rng: rng.randbytes(64)),
    "time index": Decoder(TimeIndex.parse, (), lambda rng: rng.randbytes(60)),
    "offset checkpoint": Decoder(parse_offsets, (CorruptLog,), lambda rng: b"0\n1\norders 0 17\n"),
    "leader epochs": Decoder(
        lambda data: LeaderEpochs.parse(data.decode(errors="replace")), (CorruptLog,), lambda rng: b"0\n2\n0 0\n1 17\n"
    ),
    "meta.properties": Decoder(
        lambda data: MetaProperties.parse(data.decode(errors="replace")),
        (CorruptLog,),
        lambda rng: b"version=1\nnode.id=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAg\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAg\n",
    ),
    "quorum-state": Decoder(
        lambda data: QuorumState.parse(data.decode(errors="replace")),
        (CorruptLog,),
        lambda rng: QuorumState(leader_epoch=3, leader_id=1, voted_id=1).text().encode(),
    ),
    "server.properties": Decoder(
        lambda data: parse_properties(data.decode(errors="replace")),
        (PeerError,),
        lambda rng: PROPERTIES,
    ),
    **{
        f"decompress {codec.name.lower()}": Decoder(
            _codec(codec), BATCH_ERRORS, lambda rng, codec=codec: compression.compress(codec, rng.randbytes(50) * 20)
        )
        for codec in compression.Compression
    },
    **{
        f"{name} {version}": _hot(name, version)
        for name, version in (
            ("Produce", 3),
            ("Produce", 9),
            ("Produce", 13),
            ("Fetch", 4),
            ("Fetch", 12),
            ("Fetch", 18),
        )
    },
}


def spoil(sound: bytes, rng: random.Random) -> bytes:
    spoilt = bytearray(sound)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(spoilt) + 1)
        match rng.randrange(5):
            case 0:
                del spoilt[at:]
            case 1:
                spoilt[at:at] = rng.randbytes(rng.randint(1, 8))
            case 2:
                spoilt[at : at + 4] = rng.choice((b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x00\x00\x00\x00"))
            case 3:
                del spoilt[at : at + rng.randint(1, 8)]
            case _:
                spoilt[at : at + 1] = rng.randbytes(1)
    return bytes(spoilt)


def feed(decoder: Decoder, data: bytes) -> None:
    with contextlib.suppress(*decoder.errors):
        decoder.decode(data)


def fuzz_anything(name: str, examples: int) -> None:
    decoder = DECODERS[name]

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.binary(max_size=2000))
    @example(b"")
    def any_bytes(data: bytes) -> None:
        feed(decoder, data)

    any_bytes()


def fuzz_spoilt(name: str, examples: int) -> None:
    decoder = DECODERS[name]

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 2**32 - 1))
    def spoilt(seed: int) -> None:
        rng = random.Random(seed)
        feed(decoder, spoil(decoder.sound(rng), rng))

    spoilt()


@pytest.mark.parametrize("name", DECODERS)
def test_the_sound_input_is_one(name: str) -> None:
    decoder = DECODERS[name]
    for seed in range(5):
        decoder.decode(decoder.sound(random.Random(seed)))


@pytest.mark.parametrize("name", DECODERS)
def test_any_bytes(name: str) -> None:
    fuzz_anything(name, SHORT)


@pytest.mark.parametrize("name", DECODERS)
def test_spoilt_input(name: str) -> None:
    fuzz_spoilt(name, SHORT)


@pytest.mark.slow
@pytest.mark.timeout(LONG_TIMEOUT_S)
@pytest.mark.parametrize("name", DECODERS)
def test_any_bytes_for_long(name: str) -> None:
    fuzz_anything(name, LONG)


@pytest.mark.slow
@pytest.mark.timeout(LONG_TIMEOUT_S)
@pytest.mark.parametrize("name", DECODERS)
def test_spoilt_input_for_long(name: str) -> None:
    fuzz_spoilt(name, LONG)


def fuzz_requests(rounds: int, seed: int) -> None:
    print(f"seed {seed}")
    for route, version in every_route_and_version():
        rng = random.Random(f"{seed} {route.name} {version}")
        for _ in range(rounds):
            data = spoil(encode(odd_message(route, version, rng), version), rng)
            try:
                decode(request_class(route), version, data, elements_max=ELEMENTS_MAX)
            except MalformedMessage:
                continue


def test_spoilt_requests() -> None:
    fuzz_requests(15, 60_013)


@pytest.mark.slow
@pytest.mark.timeout(LONG_TIMEOUT_S)
def test_spoilt_requests_for_long() -> None:
    fuzz_requests(1500, random.SystemRandom().getrandbits(32))


@pytest.mark.parametrize(
    ("name", "version"), [("Produce", v) for v in range(3, 14)] + [("Fetch", v) for v in range(4, 19)]
)
def test_parsed_by_hand_or_by_schema_it_is_the_same(name: str, version: int) -> None:
    """What one of the two takes for a request the other does too. Only known tagged fields are passed over by hand."""
    rng = random.Random(f"twins {name} {version}")
    route = next(route for route, _ in every_route_and_version() if route.name == name)
    by_hand = DECODERS.get(f"{name} {version}") or _hot(name, version)
    for _ in range(60):
        sound = encode(odd_message(route, version, rng), version)
        for data in (sound, spoil(sound, rng)):
            outcomes = []
            for parse in (by_hand.decode, lambda data: decode(request_class(route), version, data)):
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
            data = spoil(encode(odd_message(route, version, rng), version), rng)
            tracemalloc.start()
            with contextlib.suppress(MalformedMessage):
                decode(request_class(route), version, data, elements_max=ELEMENTS_MAX)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            worst = max(worst, (peak - 400_000) / max(len(data), 100))
    print(f"at most {worst:.0f} bytes for each byte")
    assert worst < 400


@pytest.mark.parametrize("number", [*range(8), 2**31, -1])
def test_only_declared_codecs(number: int) -> None:
    payload = batch()[61:]
    try:
        compression.decompress(number, payload, size_bytes_max=1 << 20)
    except BATCH_ERRORS:
        assert number != 0

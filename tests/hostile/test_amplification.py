"""Few bytes that ask for much: elements, tagged fields and fetch sessions by the million."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from tests.hostile.batches import batch, produce
from tests.hostile.floods import (
    ACKS_TIMEOUT,
    FETCH_7,
    FLOODS,
    NO_TRANSACTION,
    ONE_TOPIC,
    TAG_FLOODS,
    array,
    name,
    uvarint,
)
from tests.hostile.neighbour import TOPIC
from tests.hostile.peer import ROUTES, Peer, answer_of, framed, header, raw_request, request, request_class
from tests.hostile.process import MIB, forget_peak, peak_resident_bytes, resident_bytes
from tests.hostile.stage import stage

from strandline.codec.fetch import parse_fetch
from strandline.codec.message_codec import decode
from strandline.codec.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from strandline.codec.produce import parse_produce
from strandline.codec.wire import ELEMENTS_MAX, TAGGED_FIELDS_MAX
from strandline.errors import ErrorCode, MalformedMessage
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.partition.fetch_session import SESSION_PARTITIONS_MAX

MANY = 2_000_000
ALLOWED = (20_000, 19_990, 9_990, 7_990, 6_600, 3_990)
"""A struct is charged for its lists too, so that not every format carries ELEMENTS_MAX of them."""
SESSION = 20_000
GROWTH_BYTES_MAX = 48 * MIB


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with stage({"target": 2}, properties={"group.initial.rebalance.delay.ms": "0"}) as log:
        yield log


def flood(broker: EmbeddedBroker, content: bytes) -> bytes | None:
    """The answer, or None; nothing of the kind may cost more memory than the frame and a little."""
    before = resident_bytes(broker.pid)
    forget_peak(broker.pid)
    with Peer(broker.port) as peer:
        answer = peer.ask_raw(content)
    grown = peak_resident_bytes(broker.pid) - before
    print(f"{len(content)} bytes: memory grew by {grown / MIB:.1f} MiB")
    assert grown < GROWTH_BYTES_MAX + len(content)
    return answer


@pytest.mark.parametrize("flooded", FLOODS)
def test_more_elements_than_allowed_close_the_connection(broker: EmbeddedBroker, flooded: str) -> None:
    api_key, version, body = FLOODS[flooded]
    assert flood(broker, raw_request(api_key, version, body(MANY))) is None


@pytest.mark.parametrize("flooded", FLOODS)
def test_as_many_elements_as_allowed_are_answered(broker: EmbeddedBroker, flooded: str) -> None:
    """The stage says at the end whether any of them kept the loop for too long."""
    api_key, version, body = FLOODS[flooded]
    most = next(count for count in ALLOWED if is_readable(api_key, version, body(count)))
    assert flood(broker, raw_request(api_key, version, body(most))) is not None


def is_readable(api_key: int, version: int, body: bytes) -> bool:
    try:
        if api_key == 0:
            parse_produce(memoryview(body), 0, version)
        elif api_key == 1:
            parse_fetch(memoryview(body), 0, version)
        else:
            decode(request_class(ROUTES[api_key]), version, body, elements_max=ROUTES[api_key].elements_max)
    except MalformedMessage:
        return False
    return True


@pytest.mark.parametrize("flooded", TAG_FLOODS)
def test_tagged_fields_are_counted_too(broker: EmbeddedBroker, flooded: str) -> None:
    api_key, version, body = TAG_FLOODS[flooded]
    assert flood(broker, raw_request(api_key, version, body(ELEMENTS_MAX + 1))) is None
    assert flood(broker, raw_request(api_key, version, body(TAGGED_FIELDS_MAX))) is not None


def test_tagged_fields_of_the_header_are_counted(broker: EmbeddedBroker) -> None:
    plain = header(3, 12, flexible=False)
    body = b"\x01\x00\x00\x00"
    assert flood(broker, framed(plain + b"\x80\x80\x20" + b"\x05\x00" * (1 << 19) + body)) is None
    assert flood(broker, framed(plain + b"\x20" + b"\x05\x00" * 32 + body)) is not None


def session_of_many(topic: bytes) -> bytes:
    head = struct.pack(">iiiibii", -1, 0, 0, 1000, 0, 0, 0)
    partitions = b"".join(struct.pack(">iqqi", number, 0, -1, 1000) for number in range(SESSION))
    body = head + struct.pack(">i", 1) + name(topic) + struct.pack(">i", SESSION) + partitions + bytes(4)
    return raw_request(1, 7, body)


@pytest.mark.slow
def test_fetch_sessions_have_a_budget_of_partitions(broker: EmbeddedBroker) -> None:
    """A session remembers its partitions, known or not, and each is an object of ours."""
    before = resident_bytes(broker.pid)
    forget_peak(broker.pid)
    granted = 0
    turns = SESSION_PARTITIONS_MAX // SESSION + 2
    for turn in range(turns):
        with Peer(broker.port) as peer:
            content = peer.ask_raw(session_of_many(b"nowhere-%d" % turn))
        assert content is not None
        error_code, session_id = struct.unpack_from(">hi", content, 8)
        assert error_code == 0
        granted += session_id != 0
    grown = peak_resident_bytes(broker.pid) - before
    print(f"{granted} of {turns} sessions granted, memory grew by {grown / MIB:.0f} MiB")
    assert granted < turns - 1
    assert grown < 250 * MIB
    # The neighbour's consumer has its session; a new one gets none and is served all the same.
    with Peer(broker.port) as peer:
        fetch = FetchRequest(
            session_epoch=0, max_wait_ms=0, topics=[FetchTopic(topic=TOPIC, partitions=[FetchPartition()])]
        )
        answer = peer.ask(fetch, 11)
        assert answer.error_code == 0
        assert answer.responses[0].partitions[0].error_code == 0


def test_names_of_topics_that_are_not_there_are_not_kept(broker: EmbeddedBroker) -> None:
    before = resident_bytes(broker.pid)
    forget_peak(broker.pid)
    with Peer(broker.port) as peer:
        for number in range(3000):
            answer = peer.ask(produce(f"{number}-" + "x" * 30_000, batch()), 9)
            assert answer.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    grown = peak_resident_bytes(broker.pid) - before
    print(f"3,000 unknown names of 30,000 characters: memory grew by {grown / MIB:.1f} MiB")
    assert grown < GROWTH_BYTES_MAX


@pytest.mark.parametrize(
    ("api_key", "version", "before", "behind"),
    [(0, 9, b"\x00" + ACKS_TIMEOUT + b"\x02", b"\x01\x00\x00"), (1, 12, FETCH_7 + b"\x02", b"\x01\x00\x01\x01\x00")],
    ids=["Produce", "Fetch"],
)
def test_a_name_is_no_longer_than_a_string_may_be(
    broker: EmbeddedBroker, api_key: int, version: int, before: bytes, behind: bytes
) -> None:
    """Compact strings could be as long as the frame; Kafka allows 32,767 bytes in either form."""
    for size, is_answered in ((32_767, True), (32_768, False), (8_000_000, False)):
        body = before + uvarint(size + 1) + b"x" * size + behind
        assert (flood(broker, raw_request(api_key, version, body)) is not None) == is_answered


def test_thousands_of_batches_in_one_request(broker: EmbeddedBroker) -> None:
    """They are appended over several turns, and the next request of the connection does not overtake them."""
    count = 10_000
    records = batch([b"one of many"])
    one = struct.pack(">ii", 1, len(records)) + records
    body = NO_TRANSACTION + struct.pack(">hi", -1, 30_000) + ONE_TOPIC + array(one, count)
    with Peer(broker.port) as peer:
        peer.send(raw_request(0, 3, body) + request(produce("target", batch([b"next"]), partition=1), 9))
        many = answer_of(ROUTES[0], 3, peer.receive_answer()).responses[0].partition_responses
        (last,) = answer_of(ROUTES[0], 9, peer.receive_answer()).responses[0].partition_responses
    assert {each.error_code for each in many} == {0}
    first = many[0].base_offset
    assert [each.base_offset for each in many] == list(range(first, first + count))
    assert last.base_offset == first + count

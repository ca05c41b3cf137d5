"""The hand-written Produce and Fetch beside the compiled messages: the same requests read, the same answers written."""

from __future__ import annotations

import random
import struct
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.codec.message_values import random_message

from strandline.codec import fetch, produce
from strandline.codec.current_leader import (
    FETCH_LEADER_TAG,
    NO_TAGS,
    NodeEndpoint,
    diverging_section,
    endpoints_section,
    horizon_section,
    leader_section,
)
from strandline.codec.message_codec import decode_exact, encode
from strandline.codec.messages import fetch_request, fetch_response, produce_request, produce_response
from strandline.codec.wire import ELEMENTS_MAX, TAGGED_FIELDS_MAX, read_uvarint, string, uvarint
from strandline.errors import MalformedMessage

SEED = 20_241_113
PRODUCE_VERSIONS = range(3, 14)
FETCH_VERSIONS = range(4, 19)
EVERY_PRODUCE = settings(max_examples=20, deadline=None, print_blob=True)
EVERY_FETCH = settings(max_examples=20, deadline=None, print_blob=True)

INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
NAMES = st.text(min_size=1, max_size=12) | st.sampled_from(["orders", "n" * 126, "n" * 127, "n" * 249])
IDS = st.uuids()


def named(topic: Any, version: int, from_version: int, *, attribute: str = "name") -> str | bytes:
    """How the hand-written side names a topic: by name, or by the bytes of its id."""
    name: str | bytes = topic.topic_id.bytes if version >= from_version else getattr(topic, attribute)
    return name


# Produce requests


@st.composite
def produce_requests(draw: st.DrawFn) -> produce_request.ProduceRequest:
    return produce_request.ProduceRequest(
        transactional_id=draw(st.none() | st.text(max_size=200)),
        acks=draw(INT16),
        timeout_ms=draw(INT32),
        topic_data=[
            produce_request.TopicProduceData(
                name=draw(NAMES),
                topic_id=draw(IDS),
                partition_data=[
                    produce_request.PartitionProduceData(
                        index=draw(INT32), records=draw(st.none() | st.binary(max_size=300))
                    )
                    for _ in range(draw(st.sampled_from([0, 1, 1, 2, 3])))
                ],
            )
            for _ in range(draw(st.sampled_from([0, 1, 1, 2])))
        ],
    )


def flat_produce(request: produce_request.ProduceRequest, version: int) -> produce.ProduceRequest:
    return produce.ProduceRequest(
        request.transactional_id,
        request.acks,
        request.timeout_ms,
        [
            (named(topic, version, 13), each.index, each.records)
            for topic in request.topic_data
            for each in topic.partition_data
        ],
    )


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@EVERY_PRODUCE
@given(request=produce_requests(), before=st.binary(max_size=20))
def test_produce_requests_are_read_as_the_compiled_message_writes_them(
    version: int, request: produce_request.ProduceRequest, before: bytes
) -> None:
    data = memoryview(before + encode(request, version))
    assert produce.parse_produce(data, len(before), version) == flat_produce(request, version)
    assert produce.parse_produce(data, len(before), version) == flat_produce(request, version), "its head is known now"


def one_produce(records: bytes | None = b"r" * 300, **fields: Any) -> produce_request.ProduceRequest:
    named = {"name": "orders", "topic_id": uuid.UUID(bytes=b"\x07orders\2" + bytes(8)), "index": 3, **fields}
    data = produce_request.PartitionProduceData(index=named.pop("index"), records=records)
    topic = produce_request.TopicProduceData(named.pop("name"), named.pop("topic_id"), partition_data=[data])
    return produce_request.ProduceRequest(topic_data=[topic], **named)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_what_follows_a_known_head_is_read_each_time(version: int) -> None:
    for request in (one_produce(), one_produce(b"", index=4), one_produce(None), one_produce(b"r" * 20_000, index=-1)):
        data = encode(request, version)
        assert produce.parse_produce(memoryview(data), 0, version) == flat_produce(request, version)
        for size in (*range(min(len(data), 400)), len(data) - 1):
            with pytest.raises(MalformedMessage):
                produce.parse_produce(memoryview(data[:size]), 0, version)
    # Tagged fields nobody knows, of the request.
    if version >= produce.FLEXIBLE_FROM:
        tagged = encode(one_produce(), version)[:-1] + b"\x01\x63\x02ab"
        assert produce.parse_produce(memoryview(tagged), 0, version) == flat_produce(one_produce(), version)


def test_a_head_with_a_transaction_is_not_taken_for_one_without() -> None:
    """A character of its id stands where the length of the name would be: some make both heads as long."""
    for character in map(chr, range(ord("0"), ord("z"))):
        transactional_id = character * (ord(character) - len("orders") - 1)
        data = memoryview(encode(one_produce(transactional_id=transactional_id), 12))
        for _ in range(2):
            assert produce.parse_produce(data, 0, 12).transactional_id == transactional_id


def test_the_same_bytes_are_a_name_before_version_13_and_an_id_since() -> None:
    name = "fifteen letters"
    by_name = one_produce(name=name)
    by_id = one_produce(topic_id=uuid.UUID(bytes=bytes([len(name) + 1]) + name.encode()))
    assert encode(by_name, 12) == encode(by_id, 13)
    for _ in range(2):
        for request, version in ((by_name, 12), (by_id, 13)):
            parsed = produce.parse_produce(memoryview(encode(request, version)), 0, version)
            assert parsed == flat_produce(request, version)


def test_known_heads_are_few() -> None:
    for number in range(2 * produce.HEADS_MAX + 10):
        produce.parse_produce(memoryview(encode(one_produce(name=f"made up {number}"), 12)), 0, 12)
    assert 0 < len(produce._heads_with_name) <= produce.HEADS_MAX


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_records_stay_views_of_the_buffer(version: int) -> None:
    records = b"r" * 300
    message = produce_request.ProduceRequest(
        acks=-1,
        topic_data=[
            produce_request.TopicProduceData(
                name="orders", partition_data=[produce_request.PartitionProduceData(index=1, records=records)]
            )
        ],
    )
    buffer = bytearray(encode(message, version))
    parsed = produce.parse_produce(memoryview(buffer), 0, version)
    _, _, view = parsed.partitions[0]
    assert isinstance(view, memoryview)
    buffer[buffer.index(b"rrr")] = ord("X")
    assert bytes(view[:3]) == b"Xrr", "not a copy: a leader writes the offsets in place"


# Produce answers


RESULTS = st.builds(
    produce.PartitionResult,
    topic=st.just("orders"),
    partition=INT32,
    error_code=INT16,
    base_offset=INT64,
    log_append_time_ms=INT64,
    log_start_offset=INT64,
    message=st.none() | st.text(max_size=200),
    leader=st.none(),
    record_errors=st.lists(st.tuples(INT32, st.text(max_size=90)), max_size=3).map(tuple),
)


@st.composite
def produce_results(draw: st.DrawFn, *, by_id: bool) -> list[produce.PartitionResult]:
    topics: list[Any] = draw(st.lists(IDS if by_id else NAMES, max_size=4, unique=True))
    return [
        result._replace(topic=topic.bytes if by_id else topic)
        for topic in topics
        for result in draw(st.lists(RESULTS, min_size=1, max_size=4))
    ]


def compiled_produce_response(results: list[produce.PartitionResult], version: int) -> produce_response.ProduceResponse:
    topics: dict[str | bytes, produce_response.TopicProduceResponse] = {}
    for topic, partition, code, base_offset, append_time_ms, log_start_offset, message, _, errors in results:
        of_topic = topics.setdefault(topic, produce_response.TopicProduceResponse())
        if isinstance(topic, bytes):
            of_topic.topic_id = uuid.UUID(bytes=topic)
        else:
            of_topic.name = topic
        of_topic.partition_responses.append(
            produce_response.PartitionProduceResponse(
                index=partition,
                error_code=code,
                base_offset=base_offset,
                log_append_time_ms=append_time_ms,
                log_start_offset=log_start_offset,
                record_errors=[produce_response.BatchIndexAndErrorMessage(*error) for error in errors],
                error_message=message,
            )
        )
    return produce_response.ProduceResponse(responses=list(topics.values()))


@pytest.mark.lengthy("thousands of cases beside another implementation")
@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@EVERY_PRODUCE
@given(data=st.data())
def test_produce_answers_are_written_as_the_compiled_message_does(version: int, data: st.DataObject) -> None:
    results = data.draw(produce_results(by_id=version >= 13))
    written = produce.encode_produce_response(results, version)
    assert written == encode(compiled_produce_response(results, version), version)
    decode_exact(produce_response.ProduceResponse, version, written)


# Fetch requests


@st.composite
def fetch_requests(draw: st.DrawFn, version: int) -> fetch_request.FetchRequest:
    """Fields that a version lacks are at their defaults, as the hand-written side reads them."""
    request = fetch_request.FetchRequest(
        max_wait_ms=draw(INT32),
        min_bytes=draw(INT32),
        max_bytes=draw(INT32),
        isolation_level=draw(st.integers(-128, 127)),
        topics=[
            fetch_request.FetchTopic(
                topic=draw(NAMES),
                topic_id=draw(IDS),
                partitions=[draw(fetch_partitions(version)) for _ in range(draw(st.sampled_from([0, 1, 2, 3])))],
            )
            for _ in range(draw(st.sampled_from([0, 1, 1, 2])))
        ],
    )
    if version < 15:
        request.replica_id = draw(INT32)
    elif draw(st.booleans()):
        request.replica_state = fetch_request.ReplicaState(replica_id=draw(INT32), replica_epoch=draw(INT64))
    if version >= 7:
        request.session_id, request.session_epoch = draw(INT32), draw(INT32)
        request.forgotten_topics_data = [
            fetch_request.ForgottenTopic(
                topic=draw(NAMES), topic_id=draw(IDS), partitions=draw(st.lists(INT32, max_size=4))
            )
            for _ in range(draw(st.integers(0, 2)))
        ]
    if version >= 11:
        request.rack_id = draw(st.text(max_size=20))
    if version >= 12:
        request.cluster_id = draw(st.none() | st.text(max_size=20))
    return request


@st.composite
def fetch_partitions(draw: st.DrawFn, version: int) -> fetch_request.FetchPartition:
    partition = fetch_request.FetchPartition(
        partition=draw(INT32), fetch_offset=draw(INT64), partition_max_bytes=draw(INT32)
    )
    if version >= 5:
        partition.log_start_offset = draw(INT64)
    if version >= 9:
        partition.current_leader_epoch = draw(INT32)
    if version >= 12:
        partition.last_fetched_epoch = draw(INT32)
    if version >= 17 and draw(st.booleans()):
        partition.replica_directory_id = draw(IDS)
    if version >= 18 and draw(st.booleans()):
        partition.high_watermark = draw(INT64)
    return partition


def flat_fetch(request: fetch_request.FetchRequest, version: int) -> fetch.FetchRequest:
    return fetch.FetchRequest(
        request.replica_id if version < 15 else request.replica_state.replica_id,
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
        request.session_id,
        request.session_epoch,
        [
            fetch.PartitionFetch(
                named(topic, version, 13, attribute="topic"),
                each.partition,
                each.current_leader_epoch,
                each.fetch_offset,
                each.last_fetched_epoch,
                each.log_start_offset,
                each.partition_max_bytes,
                each.high_watermark,
            )
            for topic in request.topics
            for each in topic.partitions
        ],
        [
            (named(topic, version, 13, attribute="topic"), index)
            for topic in request.forgotten_topics_data
            for index in topic.partitions
        ],
        request.replica_state.replica_epoch,
        request.rack_id,
    )


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@EVERY_FETCH
@given(data=st.data(), before=st.binary(max_size=20))
def test_fetch_requests_are_read_as_the_compiled_message_writes_them(
    version: int, data: st.DataObject, before: bytes
) -> None:
    request = data.draw(fetch_requests(version))
    written = memoryview(before + encode(request, version))
    assert fetch.parse_fetch(written, len(before), version) == flat_fetch(request, version)


# Fetch answers


class Bytes:
    """Records as an answer needs to know them: by their size, until they are sent."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    @property
    def size_bytes(self) -> int:
        return len(self.data)


FETCHED = st.builds(
    fetch.PartitionData,
    topic=st.just("orders"),
    partition=INT32,
    error_code=INT16,
    high_watermark=INT64,
    last_stable_offset=INT64,
    log_start_offset=INT64,
    tags=st.just(NO_TAGS),
    records=st.none() | st.binary(min_size=1, max_size=300).map(Bytes),
    aborted=st.lists(st.tuples(INT64, INT64), max_size=3),
    preferred_replica=st.just(-1) | st.integers(0, 2**31 - 1),
)


@pytest.mark.lengthy("thousands of cases beside another implementation")
@pytest.mark.parametrize("version", FETCH_VERSIONS)
@EVERY_FETCH
@given(data=st.data(), session_id=INT32, error_code=INT16, isolation_level=st.sampled_from([0, 1]))
def test_fetch_answers_are_written_as_the_compiled_message_does(
    version: int, data: st.DataObject, session_id: int, error_code: int, isolation_level: int
) -> None:
    topics: list[Any] = data.draw(st.lists(IDS if version >= 13 else NAMES, max_size=4, unique=True))
    results = [
        each._replace(topic=topic.bytes if version >= 13 else topic, aborted=each.aborted if isolation_level else ())
        for topic in topics
        for each in data.draw(st.lists(FETCHED, min_size=1, max_size=4))
    ]
    pieces, size = fetch.encode_fetch_response(
        results, version, session_id=session_id, error_code=error_code, isolation_level=isolation_level
    )
    assert isinstance(pieces[0], bytes), "the frame's head is joined to it"
    written = b"".join(piece if isinstance(piece, bytes) else piece.data for piece in pieces)
    assert len(written) == size
    expected = compiled_fetch_response(results, version, session_id, error_code, isolation_level)
    assert written == encode(expected, version)
    decode_exact(fetch_response.FetchResponse, version, written)


def compiled_fetch_response(
    results: list[fetch.PartitionData[Bytes]], version: int, session_id: int, error_code: int, isolation_level: int
) -> fetch_response.FetchResponse:
    topics: dict[str | bytes, fetch_response.FetchableTopicResponse] = {}
    for topic, partition, code, high_watermark, stable, start, records, _, aborted, preferred in results:
        of_topic = topics.setdefault(topic, fetch_response.FetchableTopicResponse())
        if isinstance(topic, bytes):
            of_topic.topic_id = uuid.UUID(bytes=topic)
        else:
            of_topic.topic = topic
        of_topic.partitions.append(
            fetch_response.PartitionData(
                partition_index=partition,
                error_code=code,
                high_watermark=high_watermark,
                last_stable_offset=stable,
                log_start_offset=start,
                # Null where nobody asked for committed records only; clients tell the two apart.
                aborted_transactions=None
                if isolation_level == 0 and code not in fetch.ABSENT_CODES
                else [fetch_response.AbortedTransaction(producer_id=each, first_offset=at) for each, at in aborted],
                preferred_read_replica=preferred if version >= 11 else -1,
                records=b"" if records is None else records.data,
            )
        )
    response = fetch_response.FetchResponse(responses=list(topics.values()))
    if version >= 7:
        response.session_id, response.error_code = session_id, error_code
    return response


# Who leads instead, and what a follower says and is told

LEADERS = st.tuples(INT32, INT32)
ENDPOINTS = st.lists(st.builds(NodeEndpoint, INT32, NAMES, INT32, st.none() | NAMES), min_size=1, max_size=3)


@EVERY_FETCH
@given(leader=LEADERS, diverging=st.tuples(INT32, INT64), endpoints=ENDPOINTS, topic=IDS)
def test_a_fetch_answer_says_who_leads_and_where_logs_part(
    leader: tuple[int, int], diverging: tuple[int, int], endpoints: list[NodeEndpoint], topic: uuid.UUID
) -> None:
    results: list[fetch.PartitionData[Bytes]] = [
        fetch.PartitionData(topic.bytes, 0, 6, -1, -1, -1, None, leader_section(FETCH_LEADER_TAG, *leader)),
        fetch.PartitionData(topic.bytes, 1, 0, 5, 5, 0, None, diverging_section(*diverging)),
        fetch.PartitionData(topic.bytes, 2, 1, 5, -1, 0, None, horizon_section(diverging[1])),
    ]
    pieces, _ = fetch.encode_fetch_response(results, 17, session_id=1, endpoints=endpoints_section(endpoints))
    written = b"".join(piece for piece in pieces if isinstance(piece, bytes))
    answer = decode_exact(fetch_response.FetchResponse, 17, written)
    first, second, _ = answer.responses[0].partitions
    assert (first.current_leader.leader_id, first.current_leader.leader_epoch) == leader
    assert (second.diverging_epoch.epoch, second.diverging_epoch.end_offset) == diverging
    assert [(each.node_id, each.host, each.port, each.rack) for each in answer.node_endpoints] == endpoints
    read = fetch.parse_fetch_answer(memoryview(written), 0, 17)
    assert [each.diverging for each in read.partitions] == [None, diverging, None]
    assert [each.tombstone_horizon for each in read.partitions] == [-1, -1, diverging[1]]
    assert [each.error_code for each in read.partitions] == [6, 0, 1]


@EVERY_PRODUCE
@given(leader=LEADERS, endpoints=ENDPOINTS, message=st.none() | st.text(max_size=20))
def test_a_produce_answer_says_who_leads(
    leader: tuple[int, int], endpoints: list[NodeEndpoint], message: str | None
) -> None:
    results = [produce.PartitionResult("t", 0, 6, -1, -1, -1, message, leader)]
    written = produce.encode_produce_response(results, 12, endpoints=endpoints_section(endpoints))
    answer = decode_exact(produce_response.ProduceResponse, 12, written)
    told = answer.responses[0].partition_responses[0]
    assert (told.current_leader.leader_id, told.current_leader.leader_epoch) == leader
    assert told.error_message == message
    assert [(each.node_id, each.host, each.port, each.rack) for each in answer.node_endpoints] == endpoints
    before = produce.encode_produce_response(results, 9, endpoints=endpoints_section(endpoints))
    decode_exact(produce_response.ProduceResponse, 9, before)


FOLLOWED = st.builds(
    fetch.PartitionFetch,
    topic=IDS.map(lambda topic: topic.bytes),
    partition=INT32,
    current_leader_epoch=INT32,
    fetch_offset=INT64,
    last_fetched_epoch=INT32,
    log_start_offset=INT64,
    size_bytes_max=INT32,
    high_watermark=INT64,
)


@pytest.mark.parametrize("version", [17, 18])
@EVERY_FETCH
@given(
    partitions=st.lists(FOLLOWED, max_size=4),
    forgotten=st.lists(st.tuples(IDS.map(lambda topic: topic.bytes), INT32), max_size=4),
    replica=st.tuples(INT32.filter(lambda number: number != -1), INT64),
)
def test_a_followers_fetch_is_read_as_it_was_written(
    version: int, partitions: list[fetch.PartitionFetch], forgotten: list[tuple[bytes, int]], replica: tuple[int, int]
) -> None:
    written = fetch.encode_follower_fetch(
        version,
        replica_id=replica[0],
        replica_epoch=replica[1],
        wait_ms_max=500,
        size_bytes_max=10_000,
        session_id=7,
        session_epoch=8,
        partitions=partitions,
        forgotten=forgotten,
    )
    compiled = decode_exact(fetch_request.FetchRequest, version, written)
    assert (compiled.replica_state.replica_id, compiled.replica_state.replica_epoch) == replica
    read = fetch.parse_fetch(memoryview(written), 0, version)
    assert read == flat_fetch(compiled, version)
    if version < 18:
        partitions = [each._replace(high_watermark=fetch.KNOWS_ALL) for each in partitions]
    assert sorted(read.partitions) == sorted(partitions)
    assert sorted(read.forgotten) == sorted(forgotten)
    assert (read.size_bytes_min, read.session_id, read.session_epoch) == (1, 7, 8)


@EVERY_FETCH
@given(data=st.data())
def test_an_answer_to_a_follower_is_read_as_it_was_written(data: st.DataObject) -> None:
    topic = data.draw(IDS).bytes
    results = [each._replace(topic=topic, partition=index) for index, each in enumerate(data.draw(st.lists(FETCHED)))]
    pieces, _ = fetch.encode_fetch_response(results, 18, session_id=9, isolation_level=data.draw(st.integers(0, 1)))
    written = b"".join(piece if isinstance(piece, bytes) else piece.data for piece in pieces)
    read = fetch.parse_fetch_answer(memoryview(written), 0, 18)
    assert (read.error_code, read.session_id) == (0, 9)
    assert [
        (each.partition, each.error_code, each.high_watermark, each.log_start_offset, bytes(each.records))
        for each in read.partitions
    ] == [
        (
            each.partition,
            each.error_code,
            each.high_watermark,
            each.log_start_offset,
            each.records.data if each.records else b"",
        )
        for each in results
    ]
    for size in range(0, len(written), 7):
        with pytest.raises(MalformedMessage):
            fetch.parse_fetch_answer(memoryview(written[:size]), 0, 18)


# Bytes of any size, and bytes that are none


def samples(cls: type[Any], version: int, count: int) -> list[bytes]:
    seed = random.Random(f"{SEED} {cls.__name__} {version}")
    return [encode(random_message(cls, version, seed), version) for _ in range(count)]


READERS = [
    *(
        pytest.param(produce_request.ProduceRequest, produce.parse_produce, v, id=f"Produce-{v}")
        for v in PRODUCE_VERSIONS
    ),
    *(pytest.param(fetch_request.FetchRequest, fetch.parse_fetch, v, id=f"Fetch-{v}") for v in FETCH_VERSIONS),
]


@pytest.mark.parametrize(("cls", "parse", "version"), READERS)
def test_many_topics_and_long_names(cls: type[Any], parse: Any, version: int) -> None:
    """Counts and lengths of more than one byte."""
    flatten = flat_produce if cls is produce_request.ProduceRequest else flat_fetch
    name = "topic_data" if cls is produce_request.ProduceRequest else "topics"
    message = random_message(cls, version, random.Random(f"{SEED} {version}"))
    topic = message.FIELDS[[field.name for field in message.FIELDS].index(name)].struct
    seed = random.Random(SEED)
    setattr(message, name, [random_message(topic, version, seed, depth=1) for _ in range(300)])
    assert parse(memoryview(encode(message, version)), 0, version) == flatten(message, version)


@pytest.mark.parametrize(("cls", "parse", "version"), READERS)
def test_a_request_cut_at_any_byte_is_malformed(cls: type[Any], parse: Any, version: int) -> None:
    print("seed", SEED)
    for data in samples(cls, version, 4):
        for size in range(min(len(data), 1500)):
            with pytest.raises(MalformedMessage):
                parse(memoryview(data[:size]), 0, version)


@pytest.mark.parametrize(("cls", "parse", "version"), READERS)
def test_spoilt_requests_are_malformed_or_read_as_the_compiled_message_reads_them(
    cls: type[Any], parse: Any, version: int
) -> None:
    """Bytes flipped at random: only MalformedMessage escapes, and the hand reads what the compiled message reads."""
    print("seed", SEED)
    seed = random.Random(f"{SEED} {cls.__name__} {version}")
    flatten = flat_produce if cls is produce_request.ProduceRequest else flat_fetch
    agreed = 0
    for data in samples(cls, version, 25):
        for _ in range(12):
            spoilt = bytearray(data)
            for _ in range(seed.choice([1, 1, 2, 5])):
                spoilt[seed.randrange(min(len(spoilt), 400))] = seed.choice(
                    [0, 1, 0x7F, 0x80, 0xFF, seed.randrange(256)]
                )
            try:
                by_hand = parse(memoryview(bytes(spoilt)), 0, version)
            except MalformedMessage:
                by_hand = None
            try:
                compiled = decode_exact(cls, version, bytes(spoilt))
            except MalformedMessage:
                continue
            if by_hand is not None:
                assert by_hand == flatten(compiled, version)
                agreed += 1
    assert agreed > 30, "the damage must be small enough that something can still be read"


@pytest.mark.parametrize("version", [3, 9, 13])
@pytest.mark.parametrize("count", [2**31 - 1, 10**9, ELEMENTS_MAX + 1, -2])
def test_lying_produce_counts(version: int, count: int) -> None:
    flexible = version >= 9
    head = (b"\x00" if flexible else b"\xff\xff") + struct.pack(">hi", -1, 1000)
    claim = uvarint((count + 1) & 0xFFFFFFFF) if flexible else struct.pack(">i", count)
    with pytest.raises(MalformedMessage):
        produce.parse_produce(memoryview(head + claim + bytes(50)), 0, version)


@pytest.mark.parametrize("size", [10**6, 2**31 - 1])
@pytest.mark.parametrize("version", [3, 9])
def test_lying_record_sizes(version: int, size: int) -> None:
    flexible = version >= 9
    topic = (b"\x02" if flexible else b"\x00\x00\x00\x01") + string("orders", flexible)
    partition = (b"\x02" if flexible else b"\x00\x00\x00\x01") + b"\x00\x00\x00\x00"
    claim = uvarint(size + 1) if flexible else struct.pack(">i", size)
    head = (b"\x00" if flexible else b"\xff\xff") + struct.pack(">hi", -1, 1000)
    with pytest.raises(MalformedMessage):
        produce.parse_produce(memoryview(head + topic + partition + claim + bytes(100)), 0, version)


def test_endless_varints_and_tags() -> None:
    for data in (b"\xff" * 20, b"\x80\x80\x80\x80\x80\x01"):
        with pytest.raises(MalformedMessage):
            read_uvarint(data, 0)
    assert read_uvarint(b"\xff\xff\xff\xff\x0f", 0) == (2**32 - 1, 5)
    # A request whose last section claims more tagged fields than anybody has.
    request = bytearray(encode(fetch_request.FetchRequest(), 12))
    request[-1:] = uvarint(TAGGED_FIELDS_MAX + 1) + b"\x05\x00" * (TAGGED_FIELDS_MAX + 1)
    with pytest.raises(MalformedMessage):
        fetch.parse_fetch(memoryview(request), 0, 12)


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 16383, 16384, 2**31 - 1, 2**32 - 1])
def test_varints_both_ways(value: int) -> None:
    assert read_uvarint(uvarint(value), 0) == (value, len(uvarint(value)))


def test_a_name_that_is_not_utf8_is_malformed() -> None:
    request = produce_request.ProduceRequest(topic_data=[produce_request.TopicProduceData(name="orders")])
    for version in (3, 9):
        data = encode(request, version).replace(b"orders", b"ord\xffrs")
        with pytest.raises(MalformedMessage):
            produce.parse_produce(memoryview(data), 0, version)

"""What a peer may send instead of a message: only `MalformedMessage` comes out, and memory stays bounded."""

from __future__ import annotations

import random
import tracemalloc

import pytest
from tests.unit.codec.message_values import every_class_and_version, random_message

from strandline.codec.message import Message
from strandline.codec.message_codec import COPY_BYTES_MAX, decode, decode_exact, encode
from strandline.codec.messages.api_versions_request import ApiVersionsRequest
from strandline.codec.messages.api_versions_response import ApiVersionsResponse
from strandline.codec.messages.create_topics_request import CreateTopicsRequest
from strandline.codec.messages.describe_groups_request import DescribeGroupsRequest
from strandline.codec.messages.describe_topic_partitions_request import DescribeTopicPartitionsRequest
from strandline.codec.messages.fetch_request import FetchRequest, FetchTopic
from strandline.codec.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from strandline.codec.messages.metadata_response import MetadataResponse, MetadataResponsePartition
from strandline.codec.messages.offset_commit_request import OffsetCommitRequest
from strandline.codec.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from strandline.errors import MalformedMessage

SEED = 7_411
SMALL_BYTES_MAX = 300
CASES = [pytest.param(cls, version, id=f"{cls.__name__}-{version}") for cls, version in every_class_and_version()]


def small_message(cls: type[Message], version: int) -> tuple[Message, bytes]:
    """A random message that is short enough to be cut at every byte."""
    rng = random.Random(f"{SEED} {cls.__name__} {version}")
    for _ in range(50):
        message = random_message(cls, version, rng)
        if len(encoded := encode(message, version)) <= SMALL_BYTES_MAX:
            return message, encoded
    return cls(), encode(cls(), version)


@pytest.mark.lengthy("hundreds of cases, and each with many faults")
@pytest.mark.parametrize(("cls", "version"), CASES)
def test_whole_cut_and_overlong(cls: type[Message], version: int) -> None:
    message, encoded = small_message(cls, version)
    assert decode(cls, version, encoded) == (message, len(encoded)), f"seed {SEED}"
    assert decode(cls, version, b"\xff\xff\xff" + encoded + b"\xff", 3) == (message, len(encoded) + 3)
    for size in range(len(encoded)):
        with pytest.raises(MalformedMessage):
            decode(cls, version, encoded[:size])
    with pytest.raises(MalformedMessage):
        decode_exact(cls, version, encoded + b"\x00")


@pytest.mark.lengthy("hundreds of cases, and each with many faults")
@pytest.mark.parametrize(("cls", "version"), CASES)
def test_only_the_declared_error_escapes_from_damage(cls: type[Message], version: int) -> None:
    _, encoded = small_message(cls, version)
    rng = random.Random(f"{SEED} damage {cls.__name__} {version}")
    for _ in range(60):
        damaged = bytearray(encoded)
        for _ in range(rng.randint(1, 3)):
            if damaged:
                damaged[rng.randrange(len(damaged))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        try:
            decoded = decode_exact(cls, version, damaged)
        except MalformedMessage:
            continue
        # Damage that still is a message must be one that we can write again.
        encode(decoded, version)


HOSTILE = {
    "count of 2**31-1 structs": (MetadataRequest, 1, "7fffffff"),
    "count of -2": (MetadataRequest, 1, "fffffffe"),
    "null where null is not allowed": (MetadataRequest, 0, "ffffffff"),
    "compact null where null is not allowed": (ApiVersionsRequest, 3, "00 0261 00"),
    "count that needs more bytes than are left": (MetadataRequest, 1, "00000002 0001 61"),
    "string of 32767 bytes that are not there": (MetadataRequest, 1, "00000001 7fff 61"),
    "string of length -2": (MetadataRequest, 1, "00000001 fffe"),
    "null name in a version without null names": (MetadataRequest, 1, "00000001 ffff"),
    "string that is not UTF-8": (MetadataRequest, 1, "00000001 0001 ff"),
    "half a surrogate pair": (MetadataRequest, 1, "00000001 0003 eda080"),
    "compact string of more than 32767 bytes": (ApiVersionsRequest, 3, "818002" + "61" * 32768 + "01 00"),
    "varint of six bytes": (ApiVersionsRequest, 3, "ffffffffff01"),
    "varint of more than 32 bits": (ApiVersionsRequest, 3, "ffffffff7f"),
    "compact count of 2**32-2": (CreateTopicsRequest, 5, "ffffffff0f"),
    "more tagged fields than bytes": (ApiVersionsRequest, 3, "0261 0261 ffffffff0f 0000"),
    "unknown tagged field beyond the end": (ApiVersionsRequest, 3, "0261 0261 01 63 05 00"),
    "unknown tagged field beside known ones beyond the end": (ApiVersionsResponse, 3, "0000 01 00000000 01 63 09 00"),
    "known tagged field beyond the end": (ApiVersionsResponse, 3, "0000 01 00000000 01 01 09 00"),
    "known tagged field shorter than its size": (
        ApiVersionsResponse,
        3,
        "0000 01 00000000 01 01 09 000000000000000000",
    ),
    "known tagged field longer than its size": (ApiVersionsResponse, 3, "0000 01 00000000 01 01 07 0000000000000000"),
    "marker of a struct that is neither 1 nor -1": (DescribeTopicPartitionsRequest, 0, "01 00000000 02 00"),
    "marker of a struct that is 0": (DescribeTopicPartitionsRequest, 0, "01 00000000 00 00"),
    "records of length -2": (ProduceRequest, 3, "ffff 0001 00000000 00000001 0000 00000001 00000000 fffffffe"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_bytes_are_refused(case: str) -> None:
    cls, version, text = HOSTILE[case]
    with pytest.raises(MalformedMessage):
        decode(cls, version, bytes.fromhex(text))


def test_a_lying_count_allocates_nothing() -> None:
    # 16 MiB that claim 2**31-1 topics, and 16 MiB that hold more structs than one message may.
    lying = bytes.fromhex("7fffffff") + bytes(16 << 20)
    many = bytes.fromhex("0000 ffffff01") + bytes(16 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(MalformedMessage):
            decode(MetadataRequest, 1, lying)
        with pytest.raises(MalformedMessage):
            decode(ApiVersionsResponse, 3, many)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


def test_a_count_is_held_against_the_bytes_that_are_left_before_reading_on() -> None:
    # Three topics take six bytes at least; the two that are there would be read first, if the count were believed.
    with pytest.raises(MalformedMessage, match=r"MetadataRequest\.topics has 3 elements"):
        decode(MetadataRequest, 1, bytes.fromhex("00000003 0000 0000 00"))
    with pytest.raises(MalformedMessage, match=r"replica_nodes has 2 elements"):
        decode(MetadataResponsePartition, 0, bytes.fromhex("0000 00000000 00000000 00000002 00000000"))


def test_one_message_has_one_budget_of_elements() -> None:
    # A struct is charged for itself and for the list in it: ten topics cost 20, a fetch of none of them nothing.
    encoded = encode(FetchRequest(topics=[FetchTopic(topic=str(n)) for n in range(10)]), 11)
    assert len(decode_exact(FetchRequest, 11, encoded, elements_max=20).topics) == 10
    with pytest.raises(MalformedMessage):
        decode_exact(FetchRequest, 11, encoded, elements_max=19)


def test_the_default_budget_bounds_what_a_frame_can_make_us_build() -> None:
    # Every element of this array is one byte on the wire and an object of ours.
    encoded = bytes.fromhex("81 89 7a") + b"\x01" * 2_000_000 + b"\x00\x00"
    with pytest.raises(MalformedMessage, match="limit"):
        decode_exact(DescribeGroupsRequest, 5, encoded)


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview, lambda raw: memoryview(bytearray(raw))])
@pytest.mark.parametrize("padding", [0, COPY_BYTES_MAX])
def test_every_kind_of_buffer_and_nothing_refers_to_it(make: type, padding: int) -> None:
    message = random_message(OffsetCommitRequest, 9, random.Random(SEED))
    encoded = encode(message, 9)
    buffer = make(encoded + bytes(padding))
    decoded, end = decode(OffsetCommitRequest, 9, buffer)
    assert end == len(encoded)
    if isinstance(buffer, bytearray) or (isinstance(buffer, memoryview) and not buffer.readonly):
        buffer[:] = b"\xee" * len(buffer)
    assert decoded == message


def test_bytes_are_copies() -> None:
    request = ProduceRequest(topic_data=[TopicProduceData("t", partition_data=[PartitionProduceData(0, b"batch")])])
    buffer = bytearray(encode(request, 9) + bytes(COPY_BYTES_MAX))
    decoded, _ = decode(ProduceRequest, 9, memoryview(buffer))
    assert type(decoded.topic_data[0].partition_data[0].records) is bytes
    # A view that were still alive would make this fail.
    buffer.extend(b"x")


def test_unknown_tagged_fields_are_skipped_and_known_ones_read() -> None:
    # ApiVersions 3: tags 1 (known: an epoch of 7), 99 and 200 (unknown), the last with a tag of two bytes.
    encoded = bytes.fromhex("0000 01 00000000 03 01 08 0000000000000007 63 02 aaaa c801 00")
    decoded = decode_exact(ApiVersionsResponse, 3, encoded)
    assert decoded == ApiVersionsResponse(finalized_features_epoch=7)
    assert encode(decoded, 3) == bytes.fromhex("0000 01 00000000 01 01 08 0000000000000007")


def test_unknown_tagged_fields_of_inner_structs_are_skipped() -> None:
    encoded = bytes.fromhex("02" + "00" * 16 + "0261" + "01 05 01 ff" + "00 00 00")
    assert decode_exact(MetadataRequest, 11, encoded) == MetadataRequest(
        topics=[MetadataRequestTopic(name="a")], allow_auto_topic_creation=False
    )


def test_the_error_says_where() -> None:
    with pytest.raises(MalformedMessage, match=r"MetadataRequest version 0: MetadataRequest\.topics has length -1"):
        decode(MetadataRequest, 0, bytes.fromhex("ffffffff"))
    with pytest.raises(MalformedMessage, match="MetadataResponse version 9: the message ends too early"):
        decode(MetadataResponse, 9, b"")

"""Messages: known bytes both ways, what a version cannot carry, and the generated modules themselves."""

from __future__ import annotations

import random
import subprocess
import sys
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.codec.message_values import every_class_and_version, random_message

from strandline.codec.message import Message
from strandline.codec.message_codec import decode_exact, encode, encode_into
from strandline.codec.messages.api_versions_request import ApiVersionsRequest
from strandline.codec.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from strandline.codec.messages.consumer_protocol_subscription import ConsumerProtocolSubscription, TopicPartition
from strandline.codec.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from strandline.codec.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from strandline.codec.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from strandline.codec.messages.offset_commit_request import OffsetCommitRequest
from strandline.codec.messages.offset_fetch_request import OffsetFetchRequest
from strandline.codec.messages.partition_change_record import PartitionChangeRecord
from strandline.codec.messages.request_header import RequestHeader
from strandline.codec.schema.decoder import decoder_source
from strandline.codec.schema.encoder import encoder_source
from strandline.codec.schema.parse import SchemaFault, load_schemas, parse
from strandline.errors import UnsupportedVersion
from strandline.ids import ZERO_UUID

ROOT = Path(__file__).resolve().parents[3]
SEED = 90_125
TOPIC_ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")

KNOWN_BYTES = [
    # The client id keeps its old length of two bytes in the flexible header.
    (RequestHeader(18, 3, 5, "rdkafka"), 2, "0012 0003 00000005 0007 72646b61666b61 00"),
    (RequestHeader(3, 1, 5, None), 1, "0003 0001 00000005 ffff"),
    (ApiVersionsRequest("a", "1.2"), 3, "0261 04312e32 00"),
    (ApiVersionsRequest(), 0, ""),
    (ApiVersionsResponse(35, [ApiVersion(18, 0, 4)]), 0, "0023 00000001 0012 0000 0004"),
    (ApiVersionsResponse(0, [ApiVersion(18, 0, 4)]), 3, "0000 02 0012 0000 0004 00 00000000 00"),
    (MetadataRequest(topics=None), 1, "ffffffff"),
    (MetadataRequest(topics=[]), 1, "00000000"),
    (MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 0, "00000001 0001 74"),
    (
        MetadataRequest(topics=[MetadataRequestTopic(TOPIC_ID, None)], allow_auto_topic_creation=True),
        12,
        "02 00112233445566778899aabbccddeeff 00 00 01 00 00",
    ),
    (
        MetadataResponse(
            brokers=[MetadataResponseBroker(1, "h", 9092)],
            controller_id=1,
            topics=[MetadataResponseTopic(0, "t", partitions=[MetadataResponsePartition(0, 0, 1, -1, [1], [1])])],
        ),
        1,
        "00000001 00000001 0001 68 00002384 ffff 00000001"
        "00000001 0000 0001 74 00 00000001 0000 00000000 00000001 00000001 00000001 00000001 00000001",
    ),
    (
        ConsumerProtocolSubscription(["a"], None, [TopicPartition("a", [0, 1])]),
        1,
        "00000001 0001 61 ffffffff 00000001 0001 61 00000002 00000000 00000001",
    ),
    # Tagged fields are written in the order of their tags, and only those that differ from their default.
    (
        PartitionChangeRecord(2, TOPIC_ID, leader=1, isr=[1], directories=[ZERO_UUID], eligible_leader_replicas=[]),
        2,
        "00000002 00112233445566778899aabbccddeeff 04"
        "00 05 02 00000001" + "01 04 00000001" + "06 01 01" + "08 11 02" + "00" * 16,
    ),
]


@pytest.mark.parametrize(("message", "version", "text"), KNOWN_BYTES)
def test_known_bytes_both_ways(message: Message, version: int, text: str) -> None:
    assert encode(message, version).hex() == bytes.fromhex(text).hex()
    assert decode_exact(type(message), version, bytes.fromhex(text)) == message


@pytest.mark.parametrize(
    ("cls", "version"), [pytest.param(*case, id=f"{case[0].__name__}-{case[1]}") for case in every_class_and_version()]
)
def test_every_message_survives_the_round_trip(cls: type[Message], version: int) -> None:
    rng = random.Random(f"{SEED} {cls.__name__} {version}")
    for _ in range(5):
        message = random_message(cls, version, rng)
        assert decode_exact(cls, version, encode(message, version)) == message, f"seed {SEED}"


texts = st.text(st.characters(codec="utf-8"), max_size=200)


@given(
    group=texts,
    member=texts,
    instance=st.none() | texts,
    generation=st.integers(-(2**31), 2**31 - 1),
    version=st.integers(7, 9),
)
def test_round_trip_of_any_text(group: str, member: str, instance: str | None, generation: int, version: int) -> None:
    message = OffsetCommitRequest(
        group_id=group, member_id=member, group_instance_id=instance, generation_id_or_member_epoch=generation
    )
    assert decode_exact(OffsetCommitRequest, version, encode(message, version)) == message


@given(nodes=st.lists(st.integers(-(2**31), 2**31 - 1), max_size=200), version=st.integers(5, 13))
def test_round_trip_of_any_array_length(nodes: list[int], version: int) -> None:
    message = MetadataResponsePartition(replica_nodes=nodes, isr_nodes=nodes[:1], offline_replicas=nodes[1:])
    assert decode_exact(MetadataResponsePartition, version, encode(message, version)) == message


def test_a_struct_can_be_encoded_alone_and_joined() -> None:
    topics = [MetadataResponseTopic(0, name, TOPIC_ID, partitions=[MetadataResponsePartition()]) for name in "abc"]
    whole = encode(MetadataResponse(topics=topics), 12)
    parts = b"".join(encode(topic, 12) for topic in topics)
    assert parts in whole


def test_encode_into_appends() -> None:
    out = bytearray(b"head")
    encode_into(out, ApiVersionsRequest("a", "b"), 3)
    assert out == b"head\x02a\x02b\x00"


def test_a_value_that_the_version_cannot_carry_is_refused() -> None:
    with pytest.raises(UnsupportedVersion, match=r"OffsetFetchRequest\.require_stable does not exist in version 6"):
        encode(OffsetFetchRequest(group_id="g", require_stable=True), 6)
    assert encode(OffsetFetchRequest(group_id="g", require_stable=False), 6) == bytes.fromhex("0267 01 00")


def test_a_value_inside_a_struct_that_the_version_cannot_carry_is_refused() -> None:
    response = FetchResponse(responses=[FetchableTopicResponse("t", partitions=[PartitionData(records=b"")])])
    assert encode(response, 10)
    response.responses[0].partitions[0].preferred_read_replica = 1
    out = bytearray(b"head")
    with pytest.raises(UnsupportedVersion, match=r"PartitionData\.preferred_read_replica"):
        encode_into(out, response, 10)
    assert out == b"head"


def test_an_ignorable_value_is_dropped() -> None:
    response = ApiVersionsResponse(throttle_time_ms=5, finalized_features_epoch=9)
    assert encode(response, 0) == encode(ApiVersionsResponse(), 0)


def test_versions_beyond_the_schema_are_refused() -> None:
    for version in (-1, 14):
        with pytest.raises(UnsupportedVersion, match="MetadataRequest has versions 0 to 13"):
            encode(MetadataRequest(), version)
        with pytest.raises(UnsupportedVersion, match="MetadataRequest has versions 0 to 13"):
            decode_exact(MetadataRequest, version, b"")


def test_our_own_mistakes_say_which_message_they_are_in() -> None:
    with pytest.raises(AttributeError) as caught:
        encode(MetadataRequest(topics=[MetadataRequestTopic(name=None)]), 1)
    assert caught.value.__notes__ == ["while encoding MetadataRequest version 1"]
    with pytest.raises(ValueError, match="more than 32767 bytes"):
        encode(ApiVersionsRequest(client_software_name="x" * 32768), 3)


def test_messages_compare_copy_and_print() -> None:
    topic = MetadataRequestTopic(TOPIC_ID, "t")
    assert topic == MetadataRequestTopic(TOPIC_ID, "t") != MetadataRequestTopic(TOPIC_ID, "u")
    assert replace(topic, name=None).name is None
    assert repr(topic) == f"MetadataRequestTopic(topic_id={TOPIC_ID!r}, name='t')"
    assert MetadataRequest().topics is not MetadataRequest().topics
    with pytest.raises(AttributeError):
        topic.nmae = "typo"  # type: ignore[attr-defined]


def test_the_generated_modules_are_what_the_schema_texts_say() -> None:
    tool = ROOT / "tools" / "generate_messages.py"
    result = subprocess.run([sys.executable, str(tool), "--check"], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_importing_one_message_imports_no_other_and_no_compiler() -> None:
    code = (
        "import sys; before = set(sys.modules); import strandline.codec.messages.metadata_request;"
        "print(*sorted(name for name in sys.modules if name.startswith('strandline.codec.')))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=source_path())
    assert result.stdout.split() == [
        "strandline.codec.message",
        "strandline.codec.messages",
        "strandline.codec.messages.metadata_request",
    ]


def source_path() -> dict[str, str]:
    return {"PYTHONPATH": str(ROOT / "src")}


def test_the_compiled_functions_can_be_read() -> None:
    assert "def encode(out, message):" in encoder_source(MetadataRequest, 12)
    assert "def decode(buffer, p, size, budget):" in decoder_source(MetadataRequest, 12)


@pytest.mark.parametrize(
    "text",
    [
        "## Half (id 1) request versions 0",
        "## M (id 1) request versions 0-1 flexible none\nName string 0+",
        "## M (id 1) request versions 0-1 flexible none\n  Name: string 0+",
        "## M (id 1) request versions 0-1 flexible none\nName: Missing 0+",
        "## M (id 1) request versions 0-1 flexible 1+\nName: string 0+ tag 0 (0+)",
        "## M (id 1) request versions 0-1 flexible 0+\nName: string 0+ tag 0 (1+)",
    ],
)
def test_a_schema_text_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(SchemaFault):
        parse(text)


def test_the_texts_hold_every_api() -> None:
    schemas = load_schemas()
    requests = {schema.id for schema in schemas.values() if schema.kind == "request"}
    assert requests == set(range(93)) - {4, 5, 6, 7} | set(range(20_000, 20_015))
    for schema in schemas.values():
        if schema.kind == "request":
            answer = schemas[schema.name.removesuffix("Request") + "Response"]
            assert (answer.id, answer.versions) == (schema.id, schema.versions)

"""The frames of the records on internal topics, by bytes written out by hand."""

from __future__ import annotations

import random
import uuid

import pytest
from tests.unit.codec.message_values import random_message, versions_of

from strandline.codec.internal_records import (
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
    UnknownRecord,
    decode_coordinator_record,
    decode_metadata_record,
    encode_coordinator_key,
    encode_coordinator_value,
    encode_metadata_record,
    message_class,
)
from strandline.codec.message import Message
from strandline.codec.messages.consumer_group_member_metadata_value import (
    ClassicMemberMetadata,
    ConsumerGroupMemberMetadataValue,
)
from strandline.codec.messages.feature_level_record import FeatureLevelRecord
from strandline.codec.messages.fence_broker_record import FenceBrokerRecord
from strandline.codec.messages.group_metadata_key import GroupMetadataKey
from strandline.codec.messages.group_metadata_value import GroupMetadataValue, MemberMetadata
from strandline.codec.messages.index import INDEX
from strandline.codec.messages.no_op_record import NoOpRecord
from strandline.codec.messages.offset_commit_key import OffsetCommitKey
from strandline.codec.messages.offset_commit_value import OffsetCommitValue
from strandline.codec.messages.register_controller_record import RegisterControllerRecord
from strandline.codec.messages.share_snapshot_key import ShareSnapshotKey
from strandline.codec.messages.topic_record import TopicRecord
from strandline.codec.messages.transaction_log_key import TransactionLogKey
from strandline.codec.messages.transaction_log_value import TransactionLogValue
from strandline.errors import MalformedMessage, UnsupportedVersion

SEED = 5_150
TOPIC_ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")

METADATA = [
    # frame version 1, id, version, body, no tagged fields
    (TopicRecord("foo", TOPIC_ID), "01 02 00 04666f6f 00112233445566778899aabbccddeeff 00"),
    (FeatureLevelRecord("metadata.version", 30), "01 0c 00 11" + b"metadata.version".hex() + "001e 00"),
    (NoOpRecord(), "01 14 00 00"),
    (FenceBrokerRecord(3, 9), "01 07 00 00000003 0000000000000009 00"),
]


@pytest.mark.parametrize(("record", "text"), METADATA)
def test_metadata_records(record: Message, text: str) -> None:
    assert encode_metadata_record(record).hex() == bytes.fromhex(text).hex()
    assert decode_metadata_record(memoryview(bytes.fromhex(text))) == record


COORDINATOR = [
    (
        OffsetCommitKey("g", "t", 3),
        OffsetCommitValue(5, -1, "m", 1_000),
        3,
        "0001 0001 67 0001 74 00000003",
        "0003 0000000000000005 ffffffff 0001 6d 00000000000003e8",
    ),
    # Version 1 still carries an expiry and no leader epoch.
    (
        OffsetCommitKey("g", "t", 3),
        OffsetCommitValue(offset=5, metadata="", commit_timestamp=1, expire_timestamp=2),
        1,
        "0001 0001 67 0001 74 00000003",
        "0001 0000000000000005 0000 0000000000000001 0000000000000002",
    ),
    (
        GroupMetadataKey("g"),
        GroupMetadataValue(
            "consumer", 1, "range", "m", 7, [MemberMetadata("m", None, "c", "/h", 60_000, 10_000, b"\x00", b"\x01")]
        ),
        3,
        "0002 0001 67",
        "0003 0008 636f6e73756d6572 00000001 0005 72616e6765 0001 6d 0000000000000007"
        "00000001 0001 6d ffff 0001 63 0002 2f68 0000ea60 00002710 00000001 00 00000001 01",
    ),
]


@pytest.mark.parametrize(("key", "value", "version", "key_text", "value_text"), COORDINATOR)
def test_coordinator_records(key: Message, value: Message, version: int, key_text: str, value_text: str) -> None:
    raw_key, raw_value = bytes.fromhex(key_text), bytes.fromhex(value_text)
    assert encode_coordinator_key(key).hex() == raw_key.hex()
    assert encode_coordinator_value(value, version).hex() == raw_value.hex()
    assert decode_coordinator_record(raw_key, raw_value) == (key, value)
    assert decode_coordinator_record(memoryview(raw_key), None) == (key, None)


def test_the_topic_decides_what_an_id_means() -> None:
    key, value = TransactionLogKey("tx"), TransactionLogValue(7, producer_epoch=1, transaction_partitions=None)
    raw_key, raw_value = encode_coordinator_key(key), encode_coordinator_value(value)
    assert raw_key == bytes.fromhex("0000 0002 7478")
    assert decode_coordinator_record(raw_key, raw_value, topic=TRANSACTION_STATE) == (key, value)
    share = ShareSnapshotKey("g", TOPIC_ID, 4)
    assert decode_coordinator_record(encode_coordinator_key(share), None, topic=SHARE_GROUP_STATE) == (share, None)


def test_a_nullable_struct_in_a_tagged_field() -> None:
    value = ConsumerGroupMemberMetadataValue(
        client_id="c", client_host="h", classic_member_metadata=ClassicMemberMetadata(session_timeout_ms=1)
    )
    head = "0000 01 01 0263 0268 01 01 ffffffff 01"
    # One tagged field: tag 0, seven bytes: present, the timeout, no protocols, no tagged fields.
    assert encode_coordinator_value(value) == bytes.fromhex(head + "01 00 07 01 00000001 01 00")
    # Null is not the default here, so it is written, and as 0 where the body of a message would have -1.
    value.classic_member_metadata = None
    assert encode_coordinator_value(value) == bytes.fromhex(head + "01 00 01 00")
    value.classic_member_metadata = ClassicMemberMetadata()
    assert encode_coordinator_value(value) == bytes.fromhex(head + "00")
    assert message_class("consumer-offsets-value", 5) is ConsumerGroupMemberMetadataValue


@pytest.mark.parametrize("identifier", sorted(INDEX["metadata"]))
def test_every_metadata_record_in_every_version(identifier: int) -> None:
    cls = message_class("metadata", identifier)
    rng = random.Random(f"{SEED} {identifier}")
    for version in versions_of(cls):
        message = random_message(cls, version, rng)
        assert decode_metadata_record(encode_metadata_record(message, version)) == message, f"seed {SEED}"


def test_what_nobody_knows_is_named() -> None:
    with pytest.raises(UnknownRecord, match="99"):
        decode_metadata_record(bytes.fromhex("01 63 00 00"))
    with pytest.raises(UnknownRecord, match="99"):
        decode_coordinator_record(bytes.fromhex("0063 0001 67"), None)
    with pytest.raises(UnsupportedVersion, match="frame version 2"):
        decode_metadata_record(bytes.fromhex("02 14 00 00"))
    with pytest.raises(UnsupportedVersion, match="not version 7"):
        decode_metadata_record(bytes.fromhex("01 14 07 00"))
    with pytest.raises(UnsupportedVersion, match="not version 9"):
        decode_coordinator_record(bytes.fromhex("0002 0001 67"), bytes.fromhex("0009"))


@pytest.mark.parametrize("text", ["", "01", "0114", "011400", "0114000000", "ffffffffffff"])
def test_damaged_metadata_records(text: str) -> None:
    with pytest.raises(MalformedMessage):
        decode_metadata_record(bytes.fromhex(text))


@pytest.mark.parametrize(
    ("key", "value"), [("", None), ("00", None), ("000200", None), ("0002000167ff", None), ("0002000167", "00")]
)
def test_damaged_coordinator_records(key: str, value: str | None) -> None:
    with pytest.raises(MalformedMessage):
        decode_coordinator_record(bytes.fromhex(key), None if value is None else bytes.fromhex(value))


def test_only_metadata_records_get_the_metadata_frame() -> None:
    with pytest.raises(AssertionError):
        encode_metadata_record(OffsetCommitKey("g", "t", 0))
    assert RegisterControllerRecord.API_KEY == 27

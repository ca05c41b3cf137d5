"""The records of `__remote_log_metadata`, in Kafka's bytes, and the objects of a segment."""

from __future__ import annotations

import contextlib
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import CorruptLog, MalformedMessage
from strandline.tiers.objects import (
    ObjectPart,
    checksums_of,
    pack_checksums,
    pack_parts,
    partition_prefix,
    segment_key,
    unpack_parts,
)
from strandline.tiers.records import (
    Compaction,
    MetadataEvent,
    PartitionDeleted,
    RemoteSegment,
    SegmentAdded,
    SegmentChanged,
    TieredPartition,
    decode_event,
    encode_event,
    metadata_partition,
)
from strandline.tiers.segment_states import PartitionDeleteState, SegmentState
from strandline.tiers.store.interface import check_key

PLACE = TieredPartition(UUID(int=0x0123456789ABCDEF0123456789ABCDEF), 2, "t")
SEGMENT = RemoteSegment(UUID(int=5), 10, 19, ((3, 10), (4, 15)), 99, 1234, 1, 77, SegmentState.COPY_STARTED, True)
EVENTS: list[MetadataEvent] = [
    SegmentAdded(PLACE, SEGMENT),
    SegmentAdded(PLACE, SEGMENT._replace(is_txn_index_empty=False)),
    SegmentChanged(PLACE, UUID(int=5), SegmentState.DELETE_FINISHED, 1, 78),
    SegmentAdded(PLACE, SEGMENT._replace(compaction=Compaction(20, 4))),
    SegmentAdded(PLACE, SEGMENT._replace(compaction=Compaction(99, 4, True, (UUID(int=8), UUID(int=9))))),
    SegmentChanged(PLACE, UUID(int=5), SegmentState.COPY_FINISHED, 1, 78, Compaction(30, 4, True)),
    SegmentChanged(PLACE, UUID(int=5), SegmentState.DELETE_STARTED, 1, 78, only_unfinished=True),
    PartitionDeleted(PLACE, PartitionDeleteState.STARTED, 1, 79),
]


@pytest.mark.parametrize("event", EVENTS)
def test_both_ways(event: MetadataEvent) -> None:
    assert decode_event(encode_event(event)) == event


def test_the_bytes_are_kafkas() -> None:
    """Id and version as varints, then the body: RemoteLogSegmentMetadataRecord.json of Kafka, written by hand."""
    place = "0274" + f"{PLACE.topic_id.int:032x}" + "00000002" + "00"
    expected = (
        "0000"  # record 0, version 0
        + place
        + f"{5:032x}"  # segment id
        + "00"  # tags of the segment id
        + f"{10:016x}{19:016x}{1:08x}{99:016x}{77:016x}"
        + "03"  # two epochs
        + f"{3:08x}{10:016x}00{4:08x}{15:016x}00"
        + f"{1234:08x}"
        + "00"  # no custom metadata
        + "00"  # COPY_SEGMENT_STARTED
        + "01000101"  # one tag, 0, of one byte: the transaction index is empty
    )
    assert encode_event(EVENTS[0]).hex() == expected


@pytest.mark.parametrize("event", EVENTS)
def test_a_record_that_is_cut_is_malformed(event: MetadataEvent) -> None:
    whole = encode_event(event)
    for length in range(len(whole)):
        with pytest.raises(MalformedMessage):
            decode_event(whole[:length])


@given(st.binary(max_size=60))
def test_only_declared_errors_escape(data: bytes) -> None:
    with contextlib.suppress(MalformedMessage):
        decode_event(data)


def test_records_of_other_kinds_are_passed_over() -> None:
    assert decode_event(b"\x03\x00") is None, "a snapshot record"
    assert decode_event(b"\x00\x01") is None, "a later version"


@pytest.mark.parametrize(
    "segment",
    [
        SEGMENT._replace(epochs=()),
        SEGMENT._replace(epochs=((4, 10), (3, 15))),
        SEGMENT._replace(start_offset=20),
        SEGMENT._replace(start_offset=-1),
    ],
)
def test_a_segment_that_cannot_be_is_malformed(segment: RemoteSegment) -> None:
    with pytest.raises(MalformedMessage):
        decode_event(encode_event(SegmentAdded(PLACE, segment)))


def _by_kafkas_formula(partition: TieredPartition, count: int) -> int:
    """Restate `RemoteLogMetadataTopicPartitioner`, with Java's 32-bit arithmetic spelled out."""

    def signed(number: int, bits: int) -> int:
        number &= (1 << bits) - 1
        return number - (1 << bits) if number >> bits - 1 else number

    def hash_of_long(number: int) -> int:
        unsigned = number & 2**64 - 1
        return signed(unsigned ^ unsigned >> 32, 32)

    number = 1
    for each in (
        hash_of_long(partition.topic_id.int & 2**64 - 1),
        hash_of_long(partition.topic_id.int >> 64),
        partition.partition,
    ):
        number = signed(31 * number + each, 32)
    m, h = 0x5BD1E995, signed(0x9747B28C ^ 4, 32)
    k = signed(int.from_bytes((number & 2**32 - 1).to_bytes(4, "big"), "little"), 32)
    k = signed(k * m, 32)
    k = signed(k ^ (k & 2**32 - 1) >> 24, 32)
    k = signed(k * m, 32)
    h = signed(signed(h * m, 32) ^ k, 32)
    h = signed(h ^ (h & 2**32 - 1) >> 13, 32)
    h = signed(h * m, 32)
    h = signed(h ^ (h & 2**32 - 1) >> 15, 32)
    return (h & 0x7FFFFFFF) % count


@given(st.uuids(), st.integers(0, 100_000), st.integers(1, 200))
def test_the_metadata_partition_is_kafkas(topic_id: UUID, index: int, count: int) -> None:
    place = TieredPartition(topic_id, index)
    assert metadata_partition(place, count) == _by_kafkas_formula(place, count)


PARTS = {ObjectPart.OFFSET_INDEX: b"offsets", ObjectPart.LEADER_EPOCHS: b"", ObjectPart.BLOCK_CHECKSUMS: b"12345678"}


def test_the_parts_of_an_index_object() -> None:
    data = pack_parts(PARTS)
    assert unpack_parts(data) == PARTS
    assert checksums_of(pack_checksums([1, 2**32 - 1])) == (1, 2**32 - 1)


def test_any_flipped_bit_or_cut_of_an_index_object_is_found() -> None:
    data = pack_parts(PARTS)
    for at in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[at // 8] ^= 1 << at % 8
        with pytest.raises(CorruptLog):
            unpack_parts(bytes(flipped))
    for length in range(len(data)):
        with pytest.raises(CorruptLog):
            unpack_parts(data[:length])


def test_keys_name_the_cluster_and_the_topic_by_its_id() -> None:
    key = segment_key("abcDEF-_123", PLACE, 42, UUID(int=9))
    assert key.startswith(partition_prefix("abcDEF-_123", PLACE) + "/")
    assert "/t/" not in key
    assert str(PLACE.topic_id) in key
    check_key(f"{key}.log")

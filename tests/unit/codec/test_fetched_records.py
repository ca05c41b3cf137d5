"""The answer that is read by hand says what the compiled message says, in every version."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.codec.fetched_records import read_fetched_records
from strandline.codec.message_codec import encode
from strandline.codec.messages.fetch_response import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from strandline.errors import MalformedMessage

VERSIONS = range(FetchResponse.VERSION_MIN, FetchResponse.VERSION_MAX + 1)
OFFSETS = st.integers(-1, 2**63 - 1)
PARTITIONS = st.builds(
    PartitionData,
    partition_index=st.integers(0, 2**31 - 1),
    error_code=st.sampled_from((0, 0, 1, 6)),
    high_watermark=OFFSETS,
    last_stable_offset=OFFSETS,
    aborted_transactions=st.none()
    | st.lists(st.builds(AbortedTransaction, producer_id=OFFSETS, first_offset=OFFSETS), max_size=200),
    records=st.none() | st.binary(max_size=300),
)


@pytest.mark.lengthy("many examples, each of them costly")
@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=30, deadline=None)
@given(partition=PARTITIONS, error_code=st.sampled_from((0, 0, 70)), throttle_ms=st.integers(0, 1000))
def test_both_say_the_same(version: int, partition: PartitionData, error_code: int, throttle_ms: int) -> None:
    if version >= 12:
        # A tagged field behind the records harms nobody.
        partition.current_leader = LeaderIdAndEpoch(3, 4)
    topic = FetchableTopicResponse(topic="orders", topic_id=UUID(int=7), partitions=[partition])
    error_code = error_code if version >= 7 else 0
    answer = FetchResponse(throttle_time_ms=throttle_ms, error_code=error_code, responses=[topic])
    body = b"head" + encode(answer, version)
    found = read_fetched_records(memoryview(body), 4, version)
    assert found.is_told
    assert found.throttle_time_ms == throttle_ms
    assert found.error_code == (error_code or partition.error_code)
    assert (found.high_watermark, found.last_stable_offset) == (partition.high_watermark, partition.last_stable_offset)
    aborted = [(each.producer_id, each.first_offset) for each in partition.aborted_transactions or ()]
    assert found.aborted == aborted
    assert bytes(found.records) == (partition.records or b"")


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_without_the_partition(version: int) -> None:
    for responses in ([], [FetchableTopicResponse(topic="orders")]):
        body = encode(FetchResponse(responses=list(responses)), version)
        found = read_fetched_records(memoryview(body), 0, version)
        assert not found.is_told
        assert not found.records


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_cut_short_or_lies_is_refused(version: int) -> None:
    partition = PartitionData(aborted_transactions=[AbortedTransaction(1, 2)], records=b"x" * 50)
    body = encode(FetchResponse(responses=[FetchableTopicResponse(topic="orders", partitions=[partition])]), version)
    records_end = body.index(b"x" * 50) + 50
    for size in range(records_end):
        with pytest.raises(MalformedMessage):
            read_fetched_records(memoryview(body)[:size], 0, version)
    two = FetchResponse(responses=[FetchableTopicResponse(partitions=[PartitionData(), PartitionData()])])
    with pytest.raises(MalformedMessage, match="one partition"):
        read_fetched_records(memoryview(encode(two, version)), 0, version)

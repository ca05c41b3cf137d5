"""The hand-written ShareFetch and ShareAcknowledge beside the compiled messages."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.unit.codec.message_values import random_message

from strandline.codec import shares
from strandline.codec.current_leader import NodeEndpoint
from strandline.codec.message_codec import decode_exact, encode
from strandline.codec.messages import (
    share_acknowledge_request,
    share_acknowledge_response,
    share_fetch_request,
    share_fetch_response,
)
from strandline.errors import MalformedMessage

SEED = 20_261_117
VERSIONS = (1, 2)


class Stretch(bytes):
    """Records as a file would hold them."""

    @property
    def size_bytes(self) -> int:
        return len(self)


def flat_partitions(request: Any) -> list[shares.SharePartitionRequest]:
    return [
        shares.SharePartitionRequest(
            topic.topic_id.bytes,
            each.partition_index,
            [
                (batch.first_offset, batch.last_offset, bytes(kind & 0xFF for kind in batch.acknowledge_types))
                for batch in each.acknowledgement_batches
            ],
        )
        for topic in request.topics
        for each in topic.partitions
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_fetch_requests_are_read_as_the_compiled_message_writes_them(version: int) -> None:
    rng = random.Random(SEED)
    for _ in range(60):
        request = random_message(share_fetch_request.ShareFetchRequest, version, rng)
        data = memoryview(b"before" + encode(request, version))
        read = shares.parse_share_fetch(data, 6, version)
        assert read == shares.ShareFetchRequest(
            request.group_id,
            request.member_id,
            request.share_session_epoch,
            request.max_wait_ms,
            request.min_bytes,
            request.max_bytes,
            request.max_records,
            request.batch_size,
            request.share_acquire_mode,
            request.is_renew_ack,
            flat_partitions(request),
            [(topic.topic_id.bytes, index) for topic in request.forgotten_topics_data for index in topic.partitions],
        )
        for size in {rng.randrange(6, len(data)) for _ in range(20)}:
            with pytest.raises(MalformedMessage):
                shares.parse_share_fetch(data[:size], 6, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_acknowledge_requests_are_read_as_the_compiled_message_writes_them(version: int) -> None:
    rng = random.Random(SEED)
    for _ in range(60):
        request = random_message(share_acknowledge_request.ShareAcknowledgeRequest, version, rng)
        data = memoryview(encode(request, version))
        assert shares.parse_share_acknowledge(data, 0, version) == shares.ShareAcknowledgeRequest(
            request.group_id,
            request.member_id,
            request.share_session_epoch,
            request.is_renew_ack,
            flat_partitions(request),
        )
        for size in {rng.randrange(len(data)) for _ in range(20)}:
            with pytest.raises(MalformedMessage):
                shares.parse_share_acknowledge(data[:size], 0, version)


def endpoints_of(response: Any) -> list[NodeEndpoint]:
    return [NodeEndpoint(each.node_id, each.host, each.port, each.rack) for each in response.node_endpoints]


def one_per_topic(response: Any) -> None:
    """Leave each topic once, because results are grouped by topic, and a topic without partitions is not written."""
    known: set[bytes] = set()
    for topic in list(response.responses):
        if not topic.partitions or topic.topic_id.bytes in known:
            response.responses.remove(topic)
        known.add(topic.topic_id.bytes)


@pytest.mark.parametrize("version", VERSIONS)
def test_fetch_responses_are_written_as_the_compiled_message_does(version: int) -> None:
    rng = random.Random(SEED)
    for _ in range(60):
        response = random_message(share_fetch_response.ShareFetchResponse, version, rng)
        one_per_topic(response)
        results = [
            shares.SharePartitionResponse(
                topic.topic_id.bytes,
                each.partition_index,
                each.error_code,
                each.error_message,
                each.acknowledge_error_code,
                each.acknowledge_error_message,
                (each.current_leader.leader_id, each.current_leader.leader_epoch),
                Stretch(each.records) if each.records else None,
                [(got.first_offset, got.last_offset, got.delivery_count) for got in each.acquired_records],
            )
            for topic in response.responses
            for each in topic.partitions
        ]
        pieces, size = shares.encode_share_fetch(
            results,
            error_code=response.error_code,
            error_message=response.error_message,
            lock_timeout_ms=response.acquisition_lock_timeout_ms,
            endpoints=endpoints_of(response),
            throttle_ms=response.throttle_time_ms,
        )
        body = b"".join(pieces)
        assert len(body) == size
        assert body == encode(response, version)
        decode_exact(share_fetch_response.ShareFetchResponse, version, body)


@pytest.mark.parametrize("version", VERSIONS)
def test_acknowledge_responses_are_written_as_the_compiled_message_does(version: int) -> None:
    rng = random.Random(SEED)
    for _ in range(60):
        response = random_message(share_acknowledge_response.ShareAcknowledgeResponse, version, rng)
        one_per_topic(response)
        results: list[shares.SharePartitionResponse[Stretch]] = [
            shares.SharePartitionResponse(
                topic.topic_id.bytes,
                each.partition_index,
                acknowledge_error_code=each.error_code,
                acknowledge_error_message=each.error_message,
                leader=(each.current_leader.leader_id, each.current_leader.leader_epoch),
            )
            for topic in response.responses
            for each in topic.partitions
        ]
        body = shares.encode_share_acknowledge(
            results,
            version,
            error_code=response.error_code,
            error_message=response.error_message,
            lock_timeout_ms=response.acquisition_lock_timeout_ms,
            endpoints=endpoints_of(response),
            throttle_ms=response.throttle_time_ms,
        )
        assert body == encode(response, version)

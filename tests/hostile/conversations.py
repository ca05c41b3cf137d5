"""Odd requests by name, for a broker of any make: what comes back is put into words that can be compared.

An outcome is `closed`, `silent`, or the error codes in the answer in their order, without zeros (`ok` if none is left).
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import Any

from tests.hostile.batches import batch, produce
from tests.hostile.peer import ROUTES, Peer, answer_of, framed, header, raw_request, request
from tests.hostile.produce_cases import TOPIC
from tests.hostile.test_topic_names import BAD_NAMES

from strandline.codec.message import Message, decode_exact
from strandline.codec.messages.api_versions_request import ApiVersionsRequest
from strandline.codec.messages.api_versions_response import ApiVersionsResponse
from strandline.codec.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from strandline.codec.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from strandline.codec.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from strandline.codec.messages.find_coordinator_request import FindCoordinatorRequest
from strandline.codec.messages.heartbeat_request import HeartbeatRequest
from strandline.codec.messages.init_producer_id_request import InitProducerIdRequest
from strandline.codec.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from strandline.codec.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from strandline.errors import ErrorCode

CLOSED, SILENT, OK = "closed", "silent", "ok"
SILENCE_S = 5.0

Make = Callable[[], bytes]
ID = uuid.UUID(int=0x1234567890)


def outcome(port: int, content: bytes, api_key: int, version: int) -> str:
    while True:
        with Peer(port, timeout_s=SILENCE_S) as peer:
            try:
                answer = peer.ask_raw(content)
            except TimeoutError:
                return SILENT
        if answer is None:
            return CLOSED
        if api_key == 18 and version > 4:
            return words(decode_exact(ApiVersionsResponse, 0, answer, 4))
        said = words(answer_of(ROUTES[api_key], version, answer))
        # A broker that has just started asks for patience; that is no answer yet.
        if said != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.name:
            return said


def words(answer: Message) -> str:
    codes = [ErrorCode(code).name for code in error_codes(answer) if code]
    return ", ".join(codes) or OK


def error_codes(message: Any) -> list[int]:
    found = []
    for field in message.FIELDS:
        value = getattr(message, field.name)
        if field.name == "error_code":
            found.append(value)
        elif field.kafka_type == "[]struct":
            for each in value or ():
                found += error_codes(each)
    return found


def create(name: str = "fresh", **options: Any) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    for key, value in options.items():
        setattr(topic, key, value)
    # Only asked about, so that the same question can be put again.
    return CreateTopicsRequest(topics=[topic], timeout_ms=5000, validate_only=True)


def metadata(*names: str | None, auto_create: bool = False, topic_id: uuid.UUID | None = None) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    if topic_id is not None:
        topics[0].topic_id = topic_id
    return MetadataRequest(topics=topics, allow_auto_topic_creation=auto_create)


def fetch(topic: str = TOPIC, partition: int = 0, **options: Any) -> FetchRequest:
    asked = FetchPartition(partition=partition, partition_max_bytes=1 << 20)
    whole = FetchRequest(max_bytes=1 << 20, topics=[FetchTopic(topic=topic, partitions=[asked])])
    for key, value in options.items():
        setattr(asked if hasattr(asked, key) else whole, key, value)
    return whole


def fetch_by_id(topic_id: uuid.UUID) -> FetchRequest:
    whole = fetch()
    whole.topics[0].topic_id = topic_id
    return whole


def list_offsets(timestamp: int = -1, topic: str = TOPIC, partition: int = 0, epoch: int = -1) -> ListOffsetsRequest:
    asked = ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch)
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[asked])])


def delete(name: str | None, topic_id: uuid.UUID | None = None) -> DeleteTopicsRequest:
    state = DeleteTopicState(name=name)
    if topic_id is not None:
        state.topic_id = topic_id
    return DeleteTopicsRequest(topics=[state], timeout_ms=5000)


def twice(message: Any) -> Any:
    message.topics = message.topics * 2
    return message


def messages() -> dict[str, tuple[Message, int]]:
    config = CreatableTopicConfig
    table: dict[str, tuple[Message, int]] = {
        "create: sound": (create(), 7),
        "create: exists": (create(TOPIC), 7),
        "create: collides": (create("append_time"), 7),
        "create: twice": (twice(create()), 7),
        "create: no partitions": (create(num_partitions=0), 7),
        "create: -5 partitions": (create(num_partitions=-5), 7),
        "create: replication 0": (create(replication_factor=0), 7),
        "create: replication 3": (create(replication_factor=3), 7),
        "create: unknown config": (create(configs=[config(name="no.such", value="1")]), 7),
        "create: bad config": (create(configs=[config(name="retention.ms", value="soon")]), 7),
        "create: null config": (create(configs=[config(name="retention.ms", value=None)]), 7),
        "create: small segment": (create(configs=[config(name="segment.bytes", value="1")]), 7),
        "create: assigned to nobody": (
            create(num_partitions=-1, replication_factor=-1, assignments=[CreatableReplicaAssignment(0, [99])]), 7),
        "create: assigned twice": (
            create(num_partitions=-1, replication_factor=-1, assignments=[CreatableReplicaAssignment(0, [1, 1])]), 7),
        "create: assigned and counted": (create(assignments=[CreatableReplicaAssignment(0, [1])]), 7),
        "create: assigned with a gap": (
            create(num_partitions=-1, replication_factor=-1, assignments=[CreatableReplicaAssignment(5, [1])]), 7),
        "create: __cluster_metadata": (create("__cluster_metadata"), 7),
        "create: __consumer_offsets": (create("__consumer_offsets"), 7),
        "delete: unknown": (delete("nowhere"), 6),
        "delete: neither name nor id": (delete(None), 6),
        "delete: name and id": (delete(TOPIC, ID), 6),
        "delete: unknown id": (delete(None, ID), 6),
        "metadata: unknown": (metadata("nowhere"), 9),
        "metadata: twice": (metadata("nowhere", "nowhere"), 9),
        "metadata: null name": (metadata(None), 12),
        "metadata: unknown id": (metadata(None, topic_id=ID), 12),
        "metadata: id in version 10": (metadata("x", topic_id=ID), 10),
        "metadata: __cluster_metadata": (metadata("__cluster_metadata"), 9),
        "list: unknown topic": (list_offsets(topic="nowhere"), 5),
        "list: unknown partition": (list_offsets(partition=9), 5),
        "list: negative partition": (list_offsets(partition=-1), 5),
        "list: twice": (twice(list_offsets()), 5),
        "list: max timestamp in version 6": (list_offsets(-3), 6),
        "list: -9": (list_offsets(-9), 7),
        "list: epoch too new": (list_offsets(epoch=999), 5),
        "list: far future": (list_offsets(2**62), 5),
        "fetch: sound": (fetch(), 11),
        "fetch: unknown topic": (fetch("nowhere"), 11),
        "fetch: unknown partition": (fetch(partition=9), 11),
        "fetch: offset -1": (fetch(fetch_offset=-1), 11),
        "fetch: beyond the end": (fetch(fetch_offset=10**9), 11),
        "fetch: epoch too new": (fetch(current_leader_epoch=999), 11),
        "fetch: no bytes": (fetch(max_bytes=0), 11),
        "fetch: negative bytes": (fetch(max_bytes=-1, partition_max_bytes=-1), 11),
        "fetch: isolation 9": (fetch(isolation_level=9), 11),
        "fetch: no such session": (fetch(session_id=4711, session_epoch=3), 11),
        "fetch: unknown id": (fetch_by_id(ID), 13),
        "fetch: zero id": (fetch(), 13),
        "fetch: twice": (twice(fetch()), 11),
        "coordinator: type 7": (FindCoordinatorRequest(key="g", key_type=7), 3),
        "coordinator: transaction": (FindCoordinatorRequest(key="t", key_type=1), 3),
        "coordinator: empty key": (FindCoordinatorRequest(key="", key_type=0), 3),
        "coordinator: no keys": (FindCoordinatorRequest(key_type=0, coordinator_keys=[]), 4),
        "producer id: sound": (InitProducerIdRequest(transactional_id=None, producer_id=-1, producer_epoch=-1), 4),
        "producer id: epoch without id": (
            InitProducerIdRequest(transactional_id=None, producer_id=-1, producer_epoch=5), 4),
        "producer id: id without epoch": (
            InitProducerIdRequest(transactional_id=None, producer_id=5, producer_epoch=-1), 4),
        "producer id: empty transactional id": (
            InitProducerIdRequest(transactional_id="", producer_id=-1, producer_epoch=-1), 4),
        "heartbeat: unknown": (HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4),
        "heartbeat: empty group": (HeartbeatRequest(group_id="", generation_id=1, member_id="m"), 4),
        "api versions: empty software name": (ApiVersionsRequest(), 3),
        "produce: no topics": (produce_nothing(), 9),
    }  # fmt: skip
    for case, name in BAD_NAMES.items():
        table[f"create: {case}"] = (create(name), 7)
        table[f"metadata: {case}"] = (metadata(name), 9)
        table[f"metadata and create: {case}"] = (metadata(name, auto_create=True), 9)
        table[f"delete: {case}"] = (delete(name), 6)
    return table


KAFKA_DIFFERS = {
    "create: twice": "INVALID_REQUEST",
    "list: twice": "INVALID_REQUEST",
    "metadata: null name": "UNKNOWN_SERVER_ERROR",
    "fetch: isolation 9": "UNKNOWN_SERVER_ERROR, UNKNOWN_SERVER_ERROR",
    "fetch: negative bytes": "UNKNOWN_SERVER_ERROR",
    "name that is no UTF-8": "INVALID_TOPIC_EXCEPTION",
}
"""What Apache Kafka 4.3.1 says where we say something else; `docs/limits.md` gives the reasons."""


def produce_nothing() -> Message:
    message = produce(TOPIC, batch())
    message.topic_data = []
    return message


def conversations() -> dict[str, tuple[bytes, int, int]]:
    """Content, API key and version (of the answer, if one comes)."""
    table = {
        name: (request(message, version), message.API_KEY, version) for name, (message, version) in messages().items()
    }
    table |= {
        f"frame of {size} bytes": (struct.pack(">i", size) + header(3, 0, flexible=False), 3, 0)
        for size in (-1, 0, 1, 9, 104_857_601, 2**31 - 1)
    }
    whole = request(metadata("nowhere"), 9)
    table |= {
        "unknown API key": (framed(header(1000, 0, flexible=False)), 3, 0),
        "negative API key": (framed(header(-1, 0, flexible=False)), 3, 0),
        "Metadata 99": (framed(header(3, 99, flexible=True) + bytes(10)), 3, 9),
        "Produce 2": (raw_request(0, 2, bytes(30)), 0, 3),
        "ApiVersions 99": (framed(header(18, 99, flexible=True) + bytes(10)), 18, 99),
        "ApiVersions -1": (framed(header(18, -1, flexible=False)), 18, 99),
        "null array": (raw_request(3, 0, b"\xff\xff\xff\xff"), 3, 0),
        "huge array": (raw_request(3, 1, b"\x7f\xff\xff\xff"), 3, 1),
        "cut short": (framed(whole[4:-2]), 3, 9),
        "bytes behind": (framed(whole[4:] + b"abc"), 3, 9),
        "name that is no UTF-8": (raw_request(3, 1, b"\x00\x00\x00\x01\x00\x01\xff"), 3, 1),
        "client id that is no UTF-8": (framed(header(3, 0, flexible=False, client_id=b"\xff") + bytes(4)), 3, 0),
        "client id longer than the frame": (framed(struct.pack(">hhih", 3, 0, 1, 500) + bytes(4)), 3, 0),
    }
    return table

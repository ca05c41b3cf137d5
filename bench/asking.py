"""Questions to a cluster that no client library asks: who leads what, who is in sync, who controls.

Messages are those of `strandline.codec`, which the differential tests hold equal to Kafka's own.
"""

from __future__ import annotations

import socket
import struct
from importlib import import_module
from types import TracebackType
from typing import Any, NamedTuple

from bench.wire import PeerClosed, ServerRefused
from strandline.codec.message import Message
from strandline.codec.message_codec import decode, encode
from strandline.codec.messages.describe_quorum_request import DescribeQuorumRequest, PartitionData, TopicData
from strandline.codec.messages.metadata_request import MetadataRequest, MetadataRequestTopic

METADATA_VERSION = 12
QUORUM_VERSION = 1
ANSWER_BYTES_MAX = 256 << 20
_CLIENT_ID = b"bench"


class PartitionState(NamedTuple):
    topic: str
    partition: int
    leader: int
    """-1 while there is none."""
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]

    @property
    def is_whole(self) -> bool:
        return self.leader >= 0 and len(self.in_sync) == len(self.replicas)


class QuorumState(NamedTuple):
    leader: int
    epoch: int
    high_watermark: int


def response_class(request: type[Message]) -> type[Message]:
    module = import_module(request.__module__.removesuffix("_request") + "_response")
    found: type[Message] = getattr(module, request.__name__.removesuffix("Request") + "Response")
    return found


def request_bytes(message: Message, version: int) -> bytes:
    """A request as it goes over the wire, its size in front."""
    head = struct.pack(">hhih", message.API_KEY, version, 1, len(_CLIENT_ID)) + _CLIENT_ID
    content = head + (b"\0" if version >= message.FLEXIBLE_FROM else b"") + encode(message, version)
    return struct.pack(">i", len(content)) + content


def answer_in(request: type[Message], version: int, content: bytes) -> Any:
    """The answer that follows its size."""
    at = 5 if version >= request.FLEXIBLE_FROM else 4
    return decode(response_class(request), version, memoryview(content), at)[0]


class Question:
    """A blocking connection to one node, for messages of any kind."""

    def __init__(self, host: str, port: int, *, timeout_s: float = 5.0) -> None:
        self.socket = socket.create_connection((host, port), timeout=timeout_s)

    def __enter__(self) -> Question:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def ask(self, message: Message, version: int) -> Any:
        self.say(message, version)
        return self.hear(type(message), version)

    def say(self, message: Message, version: int) -> None:
        """Send without waiting: who speaks for many asks all of them first."""
        self.socket.sendall(request_bytes(message, version))

    def hear(self, request: type[Message], version: int) -> Any:
        (size_bytes,) = struct.unpack(">i", self._receive(4))
        if not 0 <= size_bytes <= ANSWER_BYTES_MAX:
            raise PeerClosed(f"an answer of {size_bytes} bytes")
        return answer_in(request, version, self._receive(size_bytes))

    def _receive(self, size_bytes: int) -> bytes:
        received = bytearray()
        while len(received) < size_bytes:
            piece = self.socket.recv(size_bytes - len(received))
            if not piece:
                raise PeerClosed(f"after {len(received)} of {size_bytes} bytes")
            received += piece
        return bytes(received)

    def brokers(self) -> dict[int, tuple[str, int]]:
        answer = self.ask(MetadataRequest(topics=[]), METADATA_VERSION)
        return {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}

    def partitions(self, topics: list[str] | None) -> list[PartitionState]:
        """Every partition of these topics, or of all; ServerRefused if one of the topics is unknown."""
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        answer = self.ask(MetadataRequest(topics=wanted, allow_auto_topic_creation=False), METADATA_VERSION)
        found = []
        for topic in answer.topics:
            if topic.error_code:
                raise ServerRefused(f"Metadata of {topic.name}: error code {topic.error_code}")
            for state in topic.partitions:
                replicas, in_sync = tuple(state.replica_nodes), tuple(state.isr_nodes)
                number = state.partition_index
                found.append(PartitionState(topic.name, number, state.leader_id, state.leader_epoch, replicas, in_sync))
        return found

    def quorum(self) -> QuorumState:
        topic = TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])
        answer = self.ask(DescribeQuorumRequest(topics=[topic]), QUORUM_VERSION)
        if answer.error_code or not answer.topics:
            raise ServerRefused(f"DescribeQuorum: error code {answer.error_code}")
        state = answer.topics[0].partitions[0]
        if state.error_code:
            raise ServerRefused(f"DescribeQuorum: error code {state.error_code}")
        return QuorumState(state.leader_id, state.leader_epoch, state.high_watermark)

"""A cluster that is only said: brokers that answer questions about thousands of topics and groups, and hold nothing.

`python -m bench.simulated_cluster --topics 5000 --partitions 20 --groups 2000` prints `ready HOST:PORT`. Clients see an
Apache Kafka cluster, because none of our private APIs is offered. All follows from numbers, so that two runs show the
same cluster. An answer that was given once is kept as bytes: the simulation must not take the processor from what is
measured.

    brokers     each has a port of its own; partition p of topic t is led by broker (t + p) % brokers
    offsets     the end of partition p of topic t is 1,000 x (t % 100 + 1) + p
    records     each offset holds one record, in a batch of its own
    groups      each has two members and reads one topic; every tenth is behind, every hundredth has no members
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import struct
import time
import uuid
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final

import uvloop

from strandline.codec.answers import response_class
from strandline.codec.columns.batch import Record
from strandline.codec.columns.encode import encode_batch
from strandline.codec.message import Message
from strandline.codec.message_codec import decode, encode
from strandline.codec.messages import consumer_group_describe_response as group_told
from strandline.codec.messages import describe_cluster_response as cluster_told
from strandline.codec.messages import describe_configs_response as configs_told
from strandline.codec.messages import describe_groups_response as classic_told
from strandline.codec.messages import describe_log_dirs_response as sizes_told
from strandline.codec.messages import describe_producers_response as producers_told
from strandline.codec.messages import describe_quorum_response as quorum_told
from strandline.codec.messages import fetch_response as records_told
from strandline.codec.messages import find_coordinator_response as coordinator_told
from strandline.codec.messages import list_groups_response as groups_told
from strandline.codec.messages import list_offsets_response as offsets_told
from strandline.codec.messages import metadata_response as metadata_told
from strandline.codec.messages import offset_fetch_response as positions_told
from strandline.codec.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from strandline.codec.messages.request_header import RequestHeader
from strandline.errors import ErrorCode

HOST: Final = "127.0.0.1"
PRODUCE: Final = 0, 3, 12
RECORD_BYTES: Final = 200
RECORDS_PER_FETCH_MAX: Final = 100
EMPTY_FETCH_S: Final = 0.1
"""The time that a fetch waits which finds nothing."""
BEHIND: Final = 500
"""Offsets that a group which is behind has not read, in each partition."""
_EARLIEST: Final = -2
_TOPIC: Final = 2
_BEFORE_TOPIC_IDS: Final = {"fetch": 12, "offset_fetch": 9}
"""Versions that name topics, because nothing here needs their ids."""
_SPOKEN: Final = (
    "fetch",
    "list_offsets",
    "metadata",
    "find_coordinator",
    "offset_fetch",
    "describe_groups",
    "list_groups",
    "describe_acls",
    "describe_configs",
    "describe_log_dirs",
    "list_partition_reassignments",
    "describe_client_quotas",
    "describe_user_scram_credentials",
    "describe_quorum",
    "describe_cluster",
    "describe_producers",
    "describe_transactions",
    "list_transactions",
    "consumer_group_describe",
)
_SETTINGS: Final = {
    "cleanup.policy": "delete",
    "retention.ms": "604800000",
    "retention.bytes": "-1",
    "min.insync.replicas": "2",
    "segment.bytes": "1073741824",
    "max.message.bytes": "1048588",
}


class SimulatedCluster:
    """What the brokers say, by numbers."""

    def __init__(self, *, topics: int, partitions: int, groups: int, brokers: int) -> None:
        self.topics = [f"team-{number % 40:02}.orders.v{number:04}" for number in range(topics)]
        self.numbers = {name: number for number, name in enumerate(self.topics)}
        self.partitions = partitions
        self.groups = [f"readers-{number:04}" for number in range(groups)]
        self.brokers = brokers
        self.ports: list[int] = []
        self._began_ms = time.time_ns() // 1_000_000
        self.answers: dict[str, Callable[[Any, int], Message]] = {
            name: found for name in _SPOKEN if (found := getattr(self, f"_{name}", None)) is not None
        }

    def leader(self, topic: int, partition: int) -> int:
        return (topic + partition) % self.brokers

    def replicas(self, topic: int, partition: int) -> list[int]:
        return [(topic + partition + more) % self.brokers for more in range(min(3, self.brokers))]

    def end(self, topic: int, partition: int) -> int:
        return 1_000 * (topic % 100 + 1) + partition

    def topic_of(self, group: int) -> int:
        return group * 7 % len(self.topics)

    def position(self, group: int, partition: int) -> int:
        end = self.end(self.topic_of(group), partition)
        return end - BEHIND if group % 10 == 1 else end

    # Topics

    def _metadata(self, asked: Any, node: int) -> Message:
        names = self.topics if asked.topics is None else [each.name or "" for each in asked.topics]
        brokers = [
            metadata_told.MetadataResponseBroker(each, HOST, port, f"rack-{each % 3}")
            for each, port in enumerate(self.ports)
        ]
        return metadata_told.MetadataResponse(
            brokers=brokers, cluster_id="simulated", controller_id=0, topics=[self._topic(name) for name in names]
        )

    def _topic(self, name: str) -> metadata_told.MetadataResponseTopic:
        topic = self.numbers.get(name)
        if topic is None:
            return metadata_told.MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
        partitions = []
        for each in range(self.partitions):
            replicas = self.replicas(topic, each)
            partitions.append(
                metadata_told.MetadataResponsePartition(0, each, self.leader(topic, each), 3, replicas, replicas)
            )
        topic_id = uuid.UUID(int=topic + 1000)
        return metadata_told.MetadataResponseTopic(0, name, topic_id, False, partitions)

    def _describe_cluster(self, asked: Any, node: int) -> Message:
        brokers = [
            cluster_told.DescribeClusterBroker(each, HOST, port, f"rack-{each % 3}")
            for each, port in enumerate(self.ports)
        ]
        return cluster_told.DescribeClusterResponse(cluster_id="simulated", controller_id=0, brokers=brokers)

    def _describe_configs(self, asked: Any, node: int) -> Message:
        results = []
        for each in asked.resources:
            names = _SETTINGS if each.configuration_keys is None else each.configuration_keys
            configs = [
                configs_told.DescribeConfigsResourceResult(name, _SETTINGS[name], config_source=5)
                for name in names
                if name in _SETTINGS
            ]
            is_there = each.resource_type != _TOPIC or each.resource_name in self.numbers
            code = ErrorCode.NONE if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            results.append(
                configs_told.DescribeConfigsResult(code, None, each.resource_type, each.resource_name, configs)
            )
        return configs_told.DescribeConfigsResponse(results=results)

    def _describe_log_dirs(self, asked: Any, node: int) -> Message:
        names = self.topics if asked.topics is None else [each.topic for each in asked.topics]
        topics = []
        for name in names:
            topic = self.numbers[name]
            partitions = [
                sizes_told.DescribeLogDirsPartition(each, self.end(topic, each) * RECORD_BYTES)
                for each in range(self.partitions)
                if node in self.replicas(topic, each)
            ]
            topics.append(sizes_told.DescribeLogDirsTopic(name, partitions))
        directory = sizes_told.DescribeLogDirsResult(0, "/logs", topics, 4 << 40, 3 << 40)
        return sizes_told.DescribeLogDirsResponse(results=[directory])

    def _list_offsets(self, asked: Any, node: int) -> Message:
        topics = []
        for told in asked.topics:
            topic = self.numbers[told.name]
            partitions = []
            for each in told.partitions:
                is_first = each.timestamp == _EARLIEST
                offset = 0 if is_first else self.end(topic, each.partition_index) if each.timestamp == -1 else -1
                partitions.append(offsets_told.ListOffsetsPartitionResponse(each.partition_index, 0, -1, offset, 3))
            topics.append(offsets_told.ListOffsetsTopicResponse(told.name, partitions))
        return offsets_told.ListOffsetsResponse(topics=topics)

    def _fetch(self, asked: Any, node: int) -> Message:
        topics = []
        for told in asked.topics:
            topic = self.numbers[told.topic]
            partitions = []
            for each in told.partitions:
                end = self.end(topic, each.partition)
                records = b""
                for offset in range(each.fetch_offset, min(end, each.fetch_offset + RECORDS_PER_FETCH_MAX)):
                    if len(records) >= each.partition_max_bytes:
                        break
                    value = b'{"order": %d, "amount": %d, "note": "%s"}' % (offset, offset % 977, b"x" * 120)
                    at_ms = self._began_ms - 1000 * (end - offset)
                    record = Record(offset, at_ms, b"key-%d" % (offset % 100), value, ())
                    records += encode_batch([record], base_offset=offset, leader_epoch=3)
                partitions.append(
                    records_told.PartitionData(
                        each.partition,
                        high_watermark=end,
                        last_stable_offset=end,
                        log_start_offset=0,
                        aborted_transactions=[],
                        records=records,
                    )
                )
            topics.append(records_told.FetchableTopicResponse(told.topic, partitions=partitions))
        return records_told.FetchResponse(responses=topics)

    def _describe_producers(self, asked: Any, node: int) -> Message:
        topics = [
            producers_told.TopicResponse(
                told.name, [producers_told.PartitionResponse(each) for each in told.partition_indexes]
            )
            for told in asked.topics
        ]
        return producers_told.DescribeProducersResponse(topics=topics)

    def _describe_quorum(self, asked: Any, node: int) -> Message:
        now_ms = time.time_ns() // 1_000_000
        voters = [
            quorum_told.ReplicaState(each, log_end_offset=9_000, last_fetch_timestamp=now_ms) for each in range(3)
        ]
        for each in voters:
            each.last_caught_up_timestamp = now_ms
        partition = quorum_told.PartitionData(0, 0, None, 0, 7, 9_000, voters)
        return quorum_told.DescribeQuorumResponse(topics=[quorum_told.TopicData("__cluster_metadata", [partition])])

    # Groups

    def _list_groups(self, asked: Any, node: int) -> Message:
        mine = [
            groups_told.ListedGroup(name, "consumer", "Empty" if self._is_empty(number) else "Stable", "consumer")
            for number, name in enumerate(self.groups)
            if number % self.brokers == node
        ]
        return groups_told.ListGroupsResponse(groups=mine)

    def _is_empty(self, group: int) -> bool:
        return group % 100 == 0

    def _number_of(self, group_id: str) -> int | None:
        """Return the number of a group; None if there is none of this name."""
        with contextlib.suppress(ValueError):
            number = int(group_id.removeprefix("readers-"))
            if number < len(self.groups) and self.groups[number] == group_id:
                return number
        return None

    def _consumer_group_describe(self, asked: Any, node: int) -> Message:
        return group_told.ConsumerGroupDescribeResponse(groups=[self._group(each) for each in asked.group_ids])

    def _group(self, group_id: str) -> group_told.DescribedGroup:
        number = self._number_of(group_id)
        if number is None:
            return group_told.DescribedGroup(ErrorCode.GROUP_ID_NOT_FOUND, "no such group", group_id)
        topic = self.topic_of(number)
        members = []
        for each in range(0 if self._is_empty(number) else 2):
            held = group_told.TopicPartitions(
                uuid.UUID(int=topic + 1000), self.topics[topic], list(range(each, self.partitions, 2))
            )
            has = group_told.Assignment([held])
            member = group_told.Member(
                f"{group_id}-{each}", None, None, 5, f"app-{number % 50}", "/127.0.0.1", [self.topics[topic]]
            )
            member.assignment, member.target_assignment, member.member_type = has, has, 1
            members.append(member)
        state = "Stable" if members else "Empty"
        return group_told.DescribedGroup(0, None, group_id, state, 5, 5, "uniform", members)

    def _describe_groups(self, asked: Any, node: int) -> Message:
        # All groups are of the consumer protocol, and a group that is not classic is dead for this API.
        gone = [classic_told.DescribedGroup(0, None, each, "Dead") for each in asked.groups]
        return classic_told.DescribeGroupsResponse(groups=gone)

    def _find_coordinator(self, asked: Any, node: int) -> Message:
        found = []
        for key in asked.coordinator_keys or [asked.key]:
            at = (self._number_of(key) or 0) % self.brokers
            found.append(coordinator_told.Coordinator(key, at, HOST, self.ports[at]))
        if asked.coordinator_keys:
            return coordinator_told.FindCoordinatorResponse(coordinators=found)
        one = found[0]
        return coordinator_told.FindCoordinatorResponse(node_id=one.node_id, host=one.host, port=one.port)

    def _offset_fetch(self, asked: Any, node: int) -> Message:
        if asked.groups:
            groups = []
            for each in asked.groups:
                topics = [
                    positions_told.OffsetFetchResponseTopics(
                        name,
                        partitions=[positions_told.OffsetFetchResponsePartitions(*some) for some in positions],
                    )
                    for name, positions in self._positions(each.group_id)
                ]
                groups.append(positions_told.OffsetFetchResponseGroup(each.group_id, topics))
            return positions_told.OffsetFetchResponse(groups=groups)
        return positions_told.OffsetFetchResponse(
            topics=[
                positions_told.OffsetFetchResponseTopic(
                    name, [positions_told.OffsetFetchResponsePartition(*some) for some in positions]
                )
                for name, positions in self._positions(asked.group_id)
            ]
        )

    def _positions(self, group_id: str) -> Sequence[tuple[str, list[tuple[int, int]]]]:
        number = self._number_of(group_id)
        if number is None:
            return ()
        name = self.topics[self.topic_of(number)]
        return ((name, [(each, self.position(number, each)) for each in range(self.partitions)]),)


class BrokerPort(asyncio.Protocol):
    """One connection to one of the brokers."""

    def __init__(self, cluster: SimulatedCluster, node: int, apis: Apis) -> None:
        self._cluster = cluster
        self._node = node
        self._apis = apis
        self._input = bytearray()
        self._is_waiting = False

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._input += data
        self._answer_all()

    def _answer_all(self) -> None:
        """Answer what has arrived, in its order: a fetch that waits holds up what comes behind it."""
        while not self._is_waiting and len(self._input) >= 4:
            (size,) = struct.unpack_from(">i", self._input)
            if len(self._input) < 4 + size:
                return
            frame = bytes(self._input[4 : 4 + size])
            del self._input[: 4 + size]
            answer, is_empty = self._apis.answer(self._cluster, self._node, frame)
            if is_empty:
                self._is_waiting = True
                asyncio.get_running_loop().call_later(EMPTY_FETCH_S, self._answer_late, answer)
            else:
                self._send(answer)

    def _answer_late(self, answer: bytes) -> None:
        self._is_waiting = False
        self._send(answer)
        self._answer_all()

    def _send(self, answer: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(struct.pack(">i", len(answer)) + answer)


class Apis:
    """The APIs that are offered, and the answers that were given."""

    ANSWERS_KEPT_MAX: Final = 20_000
    CHANGING: Final = ("describe_quorum",)

    def __init__(self) -> None:
        self.by_key: dict[int, tuple[str, type[Message]]] = {}
        for name in ("api_versions", *_SPOKEN):
            module = import_module(f"strandline.codec.messages.{name}_request")
            request = getattr(module, "".join(word.capitalize() for word in name.split("_")) + "Request")
            self.by_key[request.API_KEY] = name, request
        self._kept: dict[tuple[int, bytes], tuple[bytes, bool]] = {}

    def answer(self, cluster: SimulatedCluster, node: int, frame: bytes) -> tuple[bytes, bool]:
        """Return the answer to a request, both without their sizes, and whether it is a fetch that found nothing."""
        key, version, correlation_id = struct.unpack_from(">hhi", frame)
        name, request_class = self.by_key[key]
        if name == "api_versions":
            return struct.pack(">i", correlation_id) + self._versions(version), False
        is_flexible = version >= request_class.FLEXIBLE_FROM
        _, at = decode(RequestHeader, 2 if is_flexible else 1, frame)
        # The id of the client and the correlation id differ, and the answer does not.
        place = node, frame[:4] + frame[at:]
        kept = self._kept.get(place)
        if kept is None:
            request, _ = decode(request_class, version, frame, at)
            make = cluster.answers.get(name)
            told = response_class(request_class)() if make is None else make(request, node)
            kept = encode(told, version), isinstance(told, records_told.FetchResponse) and not _has_records(told)
            if name not in self.CHANGING and len(self._kept) < self.ANSWERS_KEPT_MAX:
                self._kept[place] = kept
        body, is_empty = kept
        return struct.pack(">i", correlation_id) + (b"\0" if is_flexible else b"") + body, is_empty

    def _versions(self, version: int) -> bytes:
        # Nothing writes here, but librdkafka reads records only of brokers that take them in the newest format.
        keys = [ApiVersion(*PRODUCE)]
        for key, (name, request_class) in self.by_key.items():
            most = min(request_class.VERSION_MAX, _BEFORE_TOPIC_IDS.get(name, request_class.VERSION_MAX))
            keys.append(ApiVersion(key, request_class.VERSION_MIN, most))
        if version > ApiVersionsResponse.VERSION_MAX:
            return encode(ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, keys), 0)
        return encode(ApiVersionsResponse(api_keys=keys), version)


def _has_records(answer: records_told.FetchResponse) -> bool:
    return any(each.records for topic in answer.responses for each in topic.partitions)


async def serve(cluster: SimulatedCluster) -> None:
    """Answer until SIGTERM."""
    loop, apis = asyncio.get_running_loop(), Apis()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    servers = []
    for node in range(cluster.brokers):
        server = await loop.create_server(lambda node=node: BrokerPort(cluster, node, apis), HOST, 0)  # type: ignore[misc]  # the default binds the node
        servers.append(server)
        cluster.ports.append(server.sockets[0].getsockname()[1])
    print(f"ready {HOST}:{cluster.ports[0]}", flush=True)
    await stop.wait()
    for server in servers:
        server.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.simulated_cluster", description=__doc__)
    for name, default in (("topics", 5000), ("partitions", 20), ("groups", 2000), ("brokers", 6)):
        parser.add_argument(f"--{name}", type=int, default=default)
    cluster = SimulatedCluster(**vars(parser.parse_args()))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(cluster))


if __name__ == "__main__":
    main()

"""A blocking client for any cluster that speaks the Kafka protocol: leaders of partitions, where logs begin and end.

librdkafka makes an object of every record; this client hands out whole batches, for the project's one decoder. It has
no threads and one connection to each broker. Leaders move, brokers restart, topics appear: each request is tried again
until a deadline, and then a sentence says what the last attempt met. `coordinators` does the same for coordinators.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar
from uuid import UUID

from strandline.client.addresses import parse_address
from strandline.client.connection import BrokerConnection, NotKafka
from strandline.client.failures import ClientFailed, ClusterFailed, DeadlinePassed, TopicMissing
from strandline.client.large_answers import walk_metadata, walk_offsets
from strandline.client.security import PLAINTEXT, ClientSecurity, LoginRefused, NotAdmitted, security_of
from strandline.codec.message import Message
from strandline.codec.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from strandline.codec.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from strandline.errors import Disconnected, ErrorCode, TimedOut, UnsupportedVersion, named
from strandline.ids import ZERO_UUID, TopicPartition

EARLIEST: Final = -2
LATEST: Final = -1
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1

PAUSE_S_MAX: Final = 0.5
"""Between two attempts; the first ones come sooner."""
_PAUSE_S: Final = 0.02

PASSING: Final = frozenset(
    (
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    )
)
"""Codes of a cluster that changes: the request is tried again, with the leader of then."""

ResponseT = TypeVar("ResponseT", bound=Message)
T = TypeVar("T")


@dataclass(frozen=True)
class ClientSettings:
    bootstrap: str
    client_id: str = "strandline-spark"
    request_timeout_s: float = 30.0
    api_timeout_s: float = 60.0
    """For one question, all attempts together."""
    security: ClientSecurity = PLAINTEXT
    """By default what the bootstrap servers know, if they are `SecuredServers`."""

    def __post_init__(self) -> None:
        if self.security.is_plain:
            object.__setattr__(self, "security", security_of(self.bootstrap))

    @classmethod
    def within(
        cls, bootstrap: str, client_id: str, timeout_s: float, security: ClientSecurity = PLAINTEXT
    ) -> ClientSettings:
        """Return settings for questions that have so much time each. One attempt has half of it."""
        return cls(bootstrap, client_id, request_timeout_s=timeout_s / 2, api_timeout_s=timeout_s, security=security)


@dataclass(frozen=True)
class TopicMetadata:
    name: str
    topic_id: UUID
    is_internal: bool
    leaders: Mapping[int, int]
    """The broker that leads each partition, -1 for none."""


class ClusterClient:
    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._bootstrap = [host_and_port(server) for server in settings.bootstrap.split(",") if server.strip()]
        if not self._bootstrap:
            raise ClientFailed("kafka.bootstrap.servers names no broker: say host:port")
        self._addresses: dict[int, tuple[str, int]] = {}
        self._connections: dict[tuple[str, int], BrokerConnection] = {}
        self._controller_id = -1
        self._topics: dict[str, TopicMetadata] = {}
        self.coordinators: dict[tuple[int, str], tuple[int, tuple[str, int]]] = {}
        """Node id and address by kind and key, as `client/coordinators` last found them."""

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # Requests

    def ask_any(
        self, request: Message, response_class: type[ResponseT], *, version_max: int | None = None
    ) -> ResponseT:
        """The answer of the first broker that gives one: those that are known, then the bootstrap servers."""
        return self._first(lambda address: self.ask_at(address, request, response_class, version_max=version_max))

    def read_any(self, request: Message, read: Callable[[memoryview, int, int], T]) -> T:
        """What `read` makes of the answer of the first broker that gives one, as `BrokerConnection.receive_read`."""

        return self._first(lambda address: self.read_at(address, request, read))

    def read_at(self, address: tuple[str, int], request: Message, read: Callable[[memoryview, int, int], T]) -> T:
        """Return what `read` makes of the answer of one broker, as `BrokerConnection.receive_read`."""
        with self._dropped_on_failure(address):
            return self.connection(address).ask_read(request, read)

    def read_each(
        self,
        asked: Mapping[tuple[str, int], Message],
        read: Callable[[memoryview, int, int], T],
        *,
        version_max: int | None = None,
    ) -> dict[tuple[str, int], T | Disconnected | TimedOut]:
        """Ask several brokers side by side, and return what `read` makes of each answer, or how its broker failed."""
        found: dict[tuple[str, int], T | Disconnected | TimedOut] = {}
        sent: list[tuple[tuple[str, int], BrokerConnection]] = []
        for address, request in asked.items():
            try:
                with self._dropped_on_failure(address):
                    connection = self.connection(address)
                    connection.send(request, connection.version_for(type(request), version_max=version_max))
                    sent.append((address, connection))
            except (Disconnected, TimedOut) as error:
                found[address] = error
        # If `read` raises, the answers that were not read are noticed when their connections are used again.
        for address, connection in sent:
            try:
                with self._dropped_on_failure(address):
                    found[address] = connection.receive_read(read)
            except (Disconnected, TimedOut) as error:
                found[address] = error
        return found

    def _first(self, ask: Callable[[tuple[str, int]], T]) -> T:
        failure: Disconnected | TimedOut | None = None
        known = [*self._connections, *self._addresses.values(), *self._bootstrap]
        for address in dict.fromkeys(known):
            try:
                return ask(address)
            except (Disconnected, TimedOut) as error:
                failure = error
        assert failure is not None, "there is a bootstrap server"
        raise failure

    def ask_broker(self, node_id: int, request: Message, response_class: type[ResponseT]) -> ResponseT:
        return self.ask_at(self.address_of(node_id), request, response_class)

    def ask_controller(self, request: Message, response_class: type[ResponseT]) -> ResponseT:
        """Ask the broker that the last metadata named as the controller, or as the one that forwards to it."""
        return self.ask_broker(self._controller_id, request, response_class)

    @property
    def broker_count(self) -> int:
        """The number of brokers in the last metadata."""
        return len(self._addresses)

    def ask_at(
        self,
        address: tuple[str, int],
        request: Message,
        response_class: type[ResponseT],
        *,
        version_max: int | None = None,
    ) -> ResponseT:
        with self._dropped_on_failure(address):
            return self.connection(address).ask(request, response_class, version_max=version_max)

    @contextmanager
    def _dropped_on_failure(self, address: tuple[str, int]) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            if not isinstance(error, UnsupportedVersion):
                self.drop(address)
            raise

    def address_of(self, node_id: int) -> tuple[str, int]:
        address = self._addresses.get(node_id)
        if address is None:
            raise Disconnected(f"broker {node_id} is not known" if node_id >= 0 else "there is no leader")
        return address

    def connection(self, address: tuple[str, int]) -> BrokerConnection:
        connection = self._connections.get(address)
        if connection is not None and connection.is_waiting:
            # Its last caller left before the answer came, which would be taken for the next one.
            self.drop(address)
            connection = None
        if connection is None:
            connection = self._connections[address] = BrokerConnection(
                *address,
                client_id=self.settings.client_id,
                timeout_s=self.settings.request_timeout_s,
                security=self.settings.security,
            )
        return connection

    def drop(self, address: tuple[str, int]) -> None:
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()

    def retried(self, what: str, attempt: Callable[[], T | None]) -> T:
        """What `attempt` returns as soon as it is not None; its failures, and None, are tried again until the deadline.

        Nothing is tried again that a broker refused for good: `attempt` raises ClientFailed then.
        """
        deadline = time.monotonic() + self.settings.api_timeout_s
        pause_s = _PAUSE_S
        while True:
            try:
                answer = attempt()
                if answer is not None:
                    return answer
                heard = "the cluster is not ready"
            except (NotKafka, NotAdmitted, UnsupportedVersion) as error:
                raise ClusterFailed(f"cannot {what}: {error}") from error
            except (Disconnected, TimedOut) as error:
                heard = str(error)
            if time.monotonic() + pause_s > deadline:
                raise DeadlinePassed(
                    f"cannot {what} within {self.settings.api_timeout_s:g} s: {heard} "
                    f"(kafka.bootstrap.servers is {self.settings.bootstrap})",
                    heard,
                )
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    # Topics

    def topics(self, names: Sequence[str] | None) -> dict[str, TopicMetadata]:
        """The topics of those names that exist, or all of them."""
        asked = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        answer = self.retried("read the cluster's topics", lambda: self._try_topics(request))
        return {topic.name: topic for topic in answer}

    def topic(self, name: str) -> TopicMetadata | None:
        return self.topics([name]).get(name)

    def leader_of(self, partition: TopicPartition, *, topic_id: UUID = ZERO_UUID) -> tuple[int, UUID]:
        """The leader as last heard, and the topic's id.

        What was heard may be older than the partition, or than the topic of the id that is wanted: then it is asked.
        """
        topic = self._topics.get(partition.topic)
        if topic is None or partition.partition not in topic.leaders or not _may_be(topic.topic_id, topic_id):
            topic = self.topic(partition.topic)
        if topic is None or partition.partition not in topic.leaders:
            raise TopicMissing(f"partition {partition} does not exist, or no longer")
        if not _may_be(topic.topic_id, topic_id):
            raise TopicMissing(f"topic {partition.topic} was deleted and made again")
        return topic.leaders[partition.partition], topic.topic_id

    def forget(self, topic: str) -> None:
        """Drop what is known of the topic, so that its leaders are looked up again."""
        self._topics.pop(topic, None)

    def _try_topics(self, request: MetadataRequest) -> list[TopicMetadata] | None:
        return self.read_any(request, self._topics_of)

    def _topics_of(self, body: memoryview, at: int, version: int) -> list[TopicMetadata] | None:
        answer = walk_metadata(body, at, version)
        if answer.brokers:
            self._addresses = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
            self._controller_id = answer.controller_id
        found = []
        for told in answer.topics:
            code = named(told.error_code)
            name = told.name or ""
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._topics.pop(name, None)
                continue
            if code in PASSING:
                return None
            if code == ErrorCode.INVALID_TOPIC_EXCEPTION:
                raise TopicMissing(f"{name!r} cannot be the name of a topic")
            if code:
                raise ClusterFailed(f"topic {name} cannot be read: {code.name}")
            leaders = {each.partition_index: each.leader_id for each in told.partitions}
            topic = TopicMetadata(name, told.topic_id, told.is_internal, dict(sorted(leaders.items())))
            self._topics[name] = topic
            found.append(topic)
        return found

    # Offsets

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, isolation_level: int = READ_COMMITTED
    ) -> dict[TopicPartition, int]:
        """The offset for each timestamp or LATEST or EARLIEST; -1 where no record is that late.

        With READ_COMMITTED the latest offset is the last stable one.
        """
        found: dict[TopicPartition, int] = {}

        def attempt() -> dict[TopicPartition, int] | None:
            by_leader: dict[int, list[TopicPartition]] = {}
            for partition in wanted:
                if partition not in found:
                    by_leader.setdefault(self.leader_of(partition)[0], []).append(partition)
            try:
                asked = {
                    self.address_of(leader): self._offsets_request(
                        {partition: wanted[partition] for partition in partitions}, isolation_level
                    )
                    for leader, partitions in by_leader.items()
                }
                for answer in self.read_each(asked, _offsets_told).values():
                    if isinstance(answer, Disconnected | TimedOut):
                        raise answer
                    found.update(answer)
            except (Disconnected, TimedOut):
                self._forget_all(wanted)
                raise
            if len(found) < len(wanted):
                self._forget_all(partition for partition in wanted if partition not in found)
                return None
            return found

        return self.retried("read offsets", attempt)

    def _forget_all(self, partitions: Iterable[TopicPartition]) -> None:
        for topic in dict.fromkeys(partition.topic for partition in partitions):
            self.forget(topic)

    def _offsets_request(self, wanted: Mapping[TopicPartition, int], isolation_level: int) -> ListOffsetsRequest:
        topics: dict[str, ListOffsetsTopic] = {}
        for (topic, index), timestamp in wanted.items():
            asked = ListOffsetsPartition(partition_index=index, timestamp=timestamp)
            topics.setdefault(topic, ListOffsetsTopic(name=topic)).partitions.append(asked)
        return ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation_level,
            topics=list(topics.values()),
            timeout_ms=int(self.settings.request_timeout_s * 1000),
        )


def _offsets_told(view: memoryview, at: int, version: int) -> dict[TopicPartition, int]:
    """Return the offsets of an answer, without those of partitions whose leaders have moved."""
    found = {}
    for topic in walk_offsets(view, at, version):
        for told in topic.partitions:
            partition = TopicPartition(topic.name, told.partition_index)
            code = named(told.error_code)
            if code == ErrorCode.NONE:
                found[partition] = told.offset
            elif code not in PASSING:
                raise ClusterFailed(f"the offsets of {partition} cannot be read: {code.name}")
    return found


def check_login(bootstrap: str, security: ClientSecurity, *, client_id: str, timeout_s: float) -> None:
    """Log in to the first broker that answers, and leave. Raise LoginRefused if the broker rejects it."""
    failure: Disconnected | TimedOut | None = None
    for server in bootstrap.split(","):
        try:
            host, port = host_and_port(server)
            BrokerConnection(host, port, client_id=client_id, timeout_s=timeout_s, security=security).close()
            return
        except LoginRefused:
            raise
        except (Disconnected, TimedOut) as error:
            failure = error
    assert failure is not None, "there is a bootstrap server"
    raise failure


def host_and_port(server: str) -> tuple[str, int]:
    address = parse_address(server)
    if address is None:
        raise ClientFailed(f"{server.strip()!r} in kafka.bootstrap.servers is no broker: say host:port")
    return address


def _may_be(one: UUID, other: UUID) -> bool:
    return one == other or not has_id(one) or not has_id(other)


def has_id(topic_id: UUID) -> bool:
    """Brokers below version 2.8, and Metadata below version 10, tell none."""
    return topic_id != ZERO_UUID

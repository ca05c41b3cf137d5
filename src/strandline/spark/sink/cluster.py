"""What a worker or the driver knows of the cluster it writes to: what the brokers can do, and who coordinates whom."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from strandline._version import __version__
from strandline.client.cluster_client import ClientSettings, ClusterClient
from strandline.client.connection import BrokerConnection
from strandline.client.failures import ClusterFailed
from strandline.codec.message import Message
from strandline.codec.messages.api_versions_request import ApiVersionsRequest
from strandline.codec.messages.api_versions_response import ApiVersionsResponse
from strandline.codec.messages.commit_batch_request import CommitBatchRequest
from strandline.codec.messages.find_coordinator_request import FindCoordinatorRequest
from strandline.codec.messages.find_coordinator_response import FindCoordinatorResponse
from strandline.codec.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from strandline.codec.messages.metadata_response import MetadataResponse
from strandline.codec.messages.produce_request import ProduceRequest
from strandline.errors import Disconnected, ErrorCode, TimedOut, named
from strandline.spark.sink.failures import SinkRefused
from strandline.spark.sink.options import SinkOptions

PREFIX: Final = "__strandline.sink."
TRANSACTION: Final = 1
GROUP: Final = 0
ADDING_PRODUCE_VERSION: Final = 12
"""The first version of Produce that makes its partitions part of the transaction (KIP-890)."""
TOPIC_WAIT_S: Final = 5.0
"""How long a topic that the broker creates when it is asked for may take."""

_COORDINATOR_MOVED: Final = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
_COORDINATOR_BUSY: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
)

ResponseT = TypeVar("ResponseT", bound=Message)


def coordinator_key(sink_id: str) -> str:
    """What all transactional ids of a sink begin with, and what finds their common coordinator."""
    return f"{PREFIX}{sink_id}#"


class SinkCluster:
    """One for each process and cluster; nothing here belongs to a transaction."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options
        self.client = ClusterClient(
            ClientSettings(
                bootstrap=options.bootstrap,
                client_id=options.client_id,
                request_timeout_s=options.request_timeout_ms / 1000,
                api_timeout_s=options.delivery_timeout_ms / 1000,
            )
        )
        self._coordinators: dict[tuple[int, str], tuple[str, int]] = {}
        self._produce_connections: dict[tuple[str, int], BrokerConnection] = {}
        request = ApiVersionsRequest("strandline-spark", __version__)
        told = self.client.retried("reach the cluster", lambda: self.client.ask_any(request, ApiVersionsResponse))
        keys = {api.api_key: api.max_version for api in told.api_keys}
        levels = {feature.name: feature.max_version_level for feature in told.finalized_features}
        self.commits_batches = CommitBatchRequest.API_KEY in keys
        """Whether the cluster decides a whole batch by one request; Apache Kafka does not."""
        self.raises_epochs = (
            levels.get("transaction.version", 0) >= 2 and keys[ProduceRequest.API_KEY] >= ADDING_PRODUCE_VERSION
        )
        """Whether each transaction has an epoch of its own, and partitions are added by Produce (KIP-890)."""

    @classmethod
    def within(cls, bootstrap: str, client_id: str, timeout_s: float) -> SinkCluster:
        """One for questions that all have so much time, of which one attempt has half."""
        timeout_ms = int(timeout_s * 1000)
        return cls(
            SinkOptions(
                bootstrap, client_id=client_id, request_timeout_ms=timeout_ms // 2, delivery_timeout_ms=timeout_ms
            )
        )

    def close(self) -> None:
        self.client.close()
        for connection in self._produce_connections.values():
            connection.close()
        self._produce_connections.clear()

    def ask_coordinator(
        self,
        what: str,
        key: str,
        request: Message,
        response_class: type[ResponseT],
        code_of: Callable[[ResponseT], int],
        *,
        key_type: int = TRANSACTION,
        version_max: int | None = None,
        on_sent: Callable[[], None] | None = None,
    ) -> ResponseT:
        """The answer of the coordinator of `key`, whoever that is by then, as soon as it is more than "not now"."""

        def attempt() -> ResponseT | None:
            address = self._coordinator(key_type, key)
            try:
                connection = self.client.connection(address)
                connection.send(request, connection.version_for(type(request), version_max=version_max))
                if on_sent is not None:
                    on_sent()
                answer = connection.receive_message(response_class)
            except (Disconnected, TimedOut):
                self.client.drop(address)
                self._coordinators.pop((key_type, key), None)
                raise
            code = named(code_of(answer))
            if code in _COORDINATOR_MOVED:
                self._coordinators.pop((key_type, key), None)
                return None
            return None if code in _COORDINATOR_BUSY else answer

        return self.client.retried(what, attempt)

    def partition_count(self, topic: str) -> int:
        """Asked once for a task. A topic that is missing is created if the broker does so when a producer asks."""
        found = self.client.topic(topic)
        if found is None:
            self._ask_for_creation(topic)
            found = self.client.topic(topic)
        if found is None or not found.leaders:
            raise _missing(topic)
        return len(found.leaders)

    def produce_connection(self, address: tuple[str, int]) -> BrokerConnection:
        """Beside those for questions: an answer to a Produce may be awaited while something else is asked."""
        connection = self._produce_connections.get(address)
        if connection is not None and connection.is_waiting:
            # A task was ended before it took its answer.
            self.drop_produce_connection(address)
            connection = None
        if connection is None:
            connection = self._produce_connections[address] = BrokerConnection(
                *address, client_id=self.options.client_id, timeout_s=self.options.request_timeout_ms / 1000
            )
        return connection

    def produce_connection_in_use(self, address: tuple[str, int]) -> BrokerConnection:
        """The one over which a request was sent."""
        return self._produce_connections[address]

    def drop_produce_connection(self, address: tuple[str, int]) -> None:
        connection = self._produce_connections.pop(address, None)
        if connection is not None:
            connection.close()

    def _ask_for_creation(self, topic: str) -> None:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True)

        def attempt() -> bool | None:
            (told,) = self.client.ask_any(request, MetadataResponse).topics
            code = named(told.error_code)
            if code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE):
                return None
            if code != ErrorCode.NONE:
                raise SinkRefused(f"Topic {topic!r} cannot be written to: {code.name}.")
            return True

        # The client itself is patient enough for a cluster that fails over, which is too long for a misspelt name.
        patience = ClusterClient(ClientSettings(self.options.bootstrap, api_timeout_s=TOPIC_WAIT_S))
        try:
            patience.retried("create the topic", attempt)
        except ClusterFailed:
            raise _missing(topic) from None

    def _coordinator(self, key_type: int, key: str) -> tuple[str, int]:
        known = self._coordinators.get((key_type, key))
        if known is not None:
            return known
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        answer = self.client.ask_any(request, FindCoordinatorResponse)
        (found,) = answer.coordinators
        code = named(found.error_code)
        if code in (*_COORDINATOR_MOVED, *_COORDINATOR_BUSY):
            raise Disconnected(f"the coordinator of {key} is not there: {code.name}")
        if code != ErrorCode.NONE:
            raise ClusterFailed(f"The coordinator of {key} cannot be found: {code.name}.")
        address = self._coordinators[(key_type, key)] = (found.host, found.port)
        return address


def _missing(topic: str) -> SinkRefused:
    return SinkRefused(
        f"Topic {topic} does not exist and the broker does not create it: "
        f"create it with `strandline topic create {topic}`, or correct the topic option or column."
    )

"""What a worker or the driver knows of the cluster it writes to: what the brokers can do, and how to reach them."""

from __future__ import annotations

from typing import Final

from strandline._version import __version__
from strandline.client.cluster_client import ClientSettings, ClusterClient
from strandline.client.connection import BrokerConnection
from strandline.client.failures import ClusterFailed
from strandline.codec.messages.api_versions_request import ApiVersionsRequest
from strandline.codec.messages.api_versions_response import ApiVersionsResponse
from strandline.codec.messages.commit_batch_request import CommitBatchRequest
from strandline.codec.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from strandline.codec.messages.metadata_response import MetadataResponse
from strandline.codec.messages.produce_request import ProduceRequest
from strandline.errors import ErrorCode, named
from strandline.spark.sink.failures import SinkRefused
from strandline.spark.sink.options import SinkOptions

ADDING_PRODUCE_VERSION: Final = 12
"""The first version of Produce that makes its partitions part of the transaction (KIP-890)."""
TOPIC_WAIT_S: Final = 5.0
"""How long a topic that the broker creates when it is asked for may take."""


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
                security=options.security,
            )
        )
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

    def close(self) -> None:
        self.client.close()
        for connection in self._produce_connections.values():
            connection.close()
        self._produce_connections.clear()

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
                *address,
                client_id=self.options.client_id,
                timeout_s=self.options.request_timeout_ms / 1000,
                security=self.client.settings.security,
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
        patience = ClusterClient(
            ClientSettings(self.options.bootstrap, api_timeout_s=TOPIC_WAIT_S, security=self.options.security)
        )
        try:
            patience.retried("create the topic", attempt)
        except ClusterFailed:
            raise _missing(topic) from None


def _missing(topic: str) -> SinkRefused:
    return SinkRefused(
        f"Topic {topic} does not exist and the broker does not create it: "
        f"create it with `strandline topic create {topic}`, or correct the topic option or column."
    )

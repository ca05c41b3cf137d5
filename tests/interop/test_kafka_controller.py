"""Our side of a broker's conversation with a controller, held with the controller of a real Apache Kafka."""

from __future__ import annotations

import asyncio
import re
import struct
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from bench.brokers import start_kafka
from bench.kafka_jars import KafkaUnavailable, kafka_class_path

from strandline.broker.kraft.controller_channel import ControllerChannel
from strandline.broker.kraft.lifecycle import Identity, Lifecycle, LifecycleState, Timing
from strandline.broker.kraft.producer_id_blocks import producer_id_blocks
from strandline.broker.network.network import SocketNetwork, SocketOptions
from strandline.broker.network.routes import CONTROLLER, routes
from strandline.codec.message import Message
from strandline.codec.message_codec import decode, encode
from strandline.codec.messages.api_versions_request import ApiVersionsRequest
from strandline.codec.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from strandline.codec.messages.create_topics_response import CreateTopicsResponse
from strandline.codec.messages.describe_cluster_request import DescribeClusterRequest
from strandline.codec.messages.envelope_request import EnvelopeRequest
from strandline.codec.messages.metadata_request import MetadataRequest
from strandline.quorum.controller.producer_ids import ProducerIds
from strandline.runtime.runtime import LoopRuntime
from strandline.security.principal import ANONYMOUS_SESSION, encode_session

PRINCIPAL = encode_session(ANONYMOUS_SESSION)

pytestmark = [pytest.mark.slow, pytest.mark.java]

WITHIN_S = 60.0
CLUSTER_ID = "c3RyYW5kbGluZS1iZW5jaA"
FEATURES = {
    "metadata.version": (7, 30),
    **dict.fromkeys(
        (
            "kraft.version",
            "transaction.version",
            "group.version",
            "eligible.leader.replicas.version",
            "share.version",
            "streams.version",
        ),
        (0, 10),
    ),
}


class Conversation:
    def __init__(self, port: int) -> None:
        self.loop = asyncio.new_event_loop()
        self.runtime = LoopRuntime(self.loop)
        network = SocketNetwork(self.runtime, SocketOptions(10, -1, -1))
        self.channel = ControllerChannel(
            self.runtime, network, local=None, where=lambda: ("127.0.0.1", port), client_id="broker-7"
        )

    def wait(self, begin: Callable[[Callable[[Any], None]], object]) -> Any:
        """What `begin` calls back with."""
        answered: asyncio.Future[Any] = self.loop.create_future()
        begin(lambda value: None if answered.done() else answered.set_result(value))
        return self.loop.run_until_complete(asyncio.wait_for(answered, WITHIN_S))

    def ask(self, request: Message, version: int) -> Any:
        response, error = self.wait(
            lambda then: self.channel.ask(request, version, lambda *told: then(told), timeout_s=WITHIN_S)
        )
        assert error is None, error
        return response

    def close(self) -> None:
        self.channel.close()
        self.loop.run_until_complete(asyncio.sleep(0))
        self.runtime.close()
        self.loop.close()


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Conversation]:
    try:
        kafka_class_path()
    except KafkaUnavailable as reason:
        pytest.skip(f"no Apache Kafka: {reason}")
    root = tmp_path_factory.mktemp("kafka") / "node"
    broker = start_kafka(root)
    found = re.search(r"CONTROLLER://127\.0\.0\.1:(\d+)", (root / "server.properties").read_text())
    assert found is not None
    conversation = Conversation(int(found[1]))
    try:
        yield conversation
    finally:
        conversation.close()
        broker.discard()


def envelope(request: Message, version: int, **fields: Any) -> EnvelopeRequest:
    tags = b"\0" if version >= request.FLEXIBLE_FROM else b""
    content = struct.pack(">hhih", request.API_KEY, version, 77, 1) + b"c" + tags + encode(request, version)
    sound = {"request_data": content, "request_principal": PRINCIPAL, "client_host_address": bytes([127, 0, 0, 1])}
    return EnvelopeRequest(**{**sound, **fields})


def test_we_advertise_on_a_controller_listener_what_kafka_does_as_far_as_we_have_it(kafka: Conversation) -> None:
    answer = kafka.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4)
    theirs = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    ours = {key: (route.advertised_min, route.version_max) for key, route in routes(CONTROLLER).items()}
    assert {key: theirs.get(key) for key in ours} == ours


def test_an_envelope_of_ours_is_opened_and_answered(kafka: Conversation) -> None:
    topic = CreatableTopic(name="by-envelope", num_partitions=1, replication_factor=1)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
    codes = []
    for version, header_size in ((7, 5), (4, 4)):
        answer = kafka.ask(envelope(request, version), 0)
        assert answer.error_code == 0
        assert struct.unpack_from(">i", answer.response_data) == (77,)
        response, _ = decode(CreateTopicsResponse, version, answer.response_data, header_size)
        codes.append(response.topics[0].error_code)
    assert codes == [0, 36]


def test_what_kafka_refuses_of_envelopes_we_refuse_with_the_same_code(kafka: Conversation) -> None:
    """The same cases stand in the test of our own handler."""
    request = CreateTopicsRequest()
    cut = struct.pack(">hhih", 19, 7, 1, -1)
    codes = [
        kafka.ask(wrong, 0).error_code
        for wrong in (
            envelope(envelope(request, 7), 0),
            envelope(MetadataRequest(), 12),
            envelope(request, 7, request_data=b""),
            envelope(request, 7, request_data=cut),
            envelope(request, 7, request_data=struct.pack(">hhih", 19, 99, 1, -1) + b"\0"),
            envelope(request, 7, request_principal=None),
            envelope(request, 7, request_principal=b"\0\1" + PRINCIPAL[2:]),
            envelope(request, 7, client_host_address=b"12345"),
        )
    ]
    assert codes == [42, 42, 35, 35, 35, 97, 97, 42]
    kinds = [
        kafka.ask(DescribeClusterRequest(endpoint_type=kind), version) for kind, version in ((1, 1), (2, 1), (1, 0))
    ]
    assert [each.error_code for each in kinds] == [114, 0, 42]


def test_a_broker_of_ours_comes_and_goes(kafka: Conversation) -> None:
    def lifecycle(incarnation: int, *, cluster_id: str = CLUSTER_ID) -> Lifecycle:
        return Lifecycle(
            kafka.runtime,
            kafka.channel,
            Identity(
                broker_id=7,
                cluster_id=cluster_id,
                incarnation_id=uuid.UUID(int=incarnation),
                endpoints=[("PLAINTEXT", "127.0.0.1", 9)],
                features=FEATURES,
                log_dirs=[uuid.UUID(int=7_000)],
            ),
            timing=Timing(heartbeat_interval_s=0.2, registration_timeout_s=0.5),
            # Far enough, whatever the registration's offset is.
            metadata_offset=lambda: 1_000_000,
        )

    broker = lifecycle(1)

    def begin(then: Callable[[Any], None]) -> None:
        broker.on_running = lambda: then(None)
        broker.start()
        broker.be_ready()

    kafka.wait(begin)
    assert broker.state is LifecycleState.RUNNING
    assert broker.broker_epoch > 0

    ids = ProducerIds(producer_id_blocks(kafka.channel, broker_id=7, broker_epoch=lambda: broker.broker_epoch))
    first = kafka.wait(lambda then: ids.next(lambda *told: then(told)))
    second = kafka.wait(lambda then: ids.next(lambda *told: then(told)))
    assert first[1] is None
    assert second == (first[0] + 1, None)

    for other, words in (
        (lifecycle(2), "another process is registered as broker 7"),
        (lifecycle(3, cluster_id="x" * 22), "belongs to cluster"),
    ):

        def refused(then: Callable[[Any], None], other: Lifecycle = other) -> None:
            other.on_refused = then
            other.start()

        assert words in kafka.wait(refused)

    kafka.wait(lambda then: broker.begin_shutdown(lambda: then(None)))
    assert broker.state is LifecycleState.STOPPED

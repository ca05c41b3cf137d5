"""Records are checked on the way in, and batches of one partition keep their order: what clients see of it."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, Message, Producer
from kafka import KafkaProducer
from kafka.errors import KafkaError as KafkaPythonError
from tests.hostile.batches import batch, produce, with_fields, with_records
from tests.hostile.peer import ROUTES, Peer, answer_of, request

import strandline
from strandline.codec.columns import columns_of
from strandline.codec.compression import Compression, compress
from strandline.codec.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from strandline.codec.messages.produce_request import PartitionProduceData
from strandline.codec.messages.produce_response import PartitionProduceResponse
from strandline.errors import ErrorCode
from strandline.local.embedded_broker import EmbeddedBroker

PRODUCE, VERSION = 0, 9
TOPIC, BROKER = 2, 4
SMALL = b"small"
LARGE = random.Random(4).randbytes(1000) * 300
"""Beyond what is opened on the loop, and within max.message.bytes in any codec."""
NOISE = random.Random(5).randbytes(100_000)
"""No codec brings it below what `auto` opens."""


@pytest.fixture(scope="module")
def log() -> Iterator[EmbeddedBroker]:
    with strandline.embedded() as broker:
        yield broker
        assert "Traceback" not in broker.stderr_text()


def values(log: EmbeddedBroker, topic: str) -> list[bytes]:
    """Every value of the partition, read from its file."""
    (segment,) = sorted((log.data / f"{topic}-0").glob("*.log"))
    return [record.value or b"" for columns in columns_of(segment.read_bytes()) for record in columns.records()]


def lz4_of(section: bytes) -> bytes:
    """A batch of these bytes, compressed: nothing around them is wrong."""
    return with_fields(with_records(batch(), compress(Compression.LZ4, section)), attributes=int(Compression.LZ4))


def send(peer: Peer, topic: str, *batches: bytes) -> list[PartitionProduceResponse]:
    """Send them in one request, all for the one partition of the topic; return what is said of each."""
    message = produce(topic, batches[0])
    message.topic_data[0].partition_data += [PartitionProduceData(index=0, records=each) for each in batches[1:]]
    content = peer.ask_raw(request(message, VERSION))
    assert content is not None
    results: list[PartitionProduceResponse] = (
        answer_of(ROUTES[PRODUCE], VERSION, content).responses[0].partition_responses
    )
    return results


def codes(results: list[PartitionProduceResponse]) -> list[int]:
    return [each.error_code for each in results]


# Stock clients


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_librdkafka_fails_only_the_bad_records(log: EmbeddedBroker, codec: str) -> None:
    """An application that gets `_INVALID_DIFFERENT_RECORD` may send that record again, and it is stored."""
    topic = f"keyed-{codec}"
    log.create_topic(topic, cleanup_policy="compact")
    producer = Producer(
        {"bootstrap.servers": log.bootstrap, "linger.ms": 200, "enable.idempotence": True, "compression.type": codec}
    )
    heard: dict[bytes, KafkaError | None] = {}

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        heard[message.value() or b""] = error

    for number in range(6):
        key = None if number in (2, 4) else b"k%d" % number
        producer.produce(topic, b"v%d" % number, key, on_delivery=on_delivery)
    assert producer.flush(30) == 0
    said = {value: error.name() if error else None for value, error in heard.items()}
    assert said == {
        b"v%d" % number: "INVALID_RECORD" if number in (2, 4) else "_INVALID_DIFFERENT_RECORD" for number in range(6)
    }
    for number in (0, 1, 3, 5):
        producer.produce(topic, b"v%d" % number, b"k%d" % number, on_delivery=on_delivery)
    assert producer.flush(30) == 0
    assert [heard[b"v%d" % number] for number in (0, 1, 3, 5)] == [None] * 4
    assert values(log, topic) == [b"v0", b"v1", b"v3", b"v5"]


def test_kafka_python_hears_of_a_missing_key(log: EmbeddedBroker) -> None:
    log.create_topic("keyed-python", cleanup_policy="compact")
    # With idempotence it would give itself up after any refusal that no retry mends.
    producer = KafkaProducer(bootstrap_servers=log.bootstrap, linger_ms=200, enable_idempotence=False)
    try:
        sent = [producer.send("keyed-python", key=key, value=b"v") for key in (b"a", None)]
        producer.flush(30)
        with pytest.raises(KafkaPythonError, match="part of a batch which had"):
            sent[0].get(30)
        with pytest.raises(KafkaPythonError, match="without a key"):
            sent[1].get(30)
        assert producer.send("keyed-python", key=b"a", value=b"again").get(30).offset == 0
    finally:
        producer.close()


# The setting


def test_which_compressed_batches_are_opened(log: EmbeddedBroker) -> None:
    """A change counts for the next batch, and the broker's own setting for topics without one."""
    log.create_topic("modes")
    small, large = lz4_of(b"\x7f" * 40), lz4_of(NOISE)
    bad = int(ErrorCode.INVALID_RECORD)
    with Peer(log.port) as peer:
        assert codes(send(peer, "modes", small, large)) == [bad, 0]
        configure(peer, TOPIC, "modes", "all")
        assert codes(send(peer, "modes", small, large)) == [bad, bad]
        configure(peer, TOPIC, "modes", "off")
        assert codes(send(peer, "modes", small, large)) == [0, 0]
        assert codes(send(peer, "modes", with_records(batch(), b"\x7f" * 40))) == [bad], "plain batches always"
        configure(peer, TOPIC, "modes", None)
        configure(peer, BROKER, "", "all")
        assert codes(send(peer, "modes", small, large)) == [bad, bad]
        configure(peer, BROKER, "", None)
        assert codes(send(peer, "modes", small, large)) == [bad, 0]


def configure(peer: Peer, kind: int, name: str, mode: str | None) -> None:
    change = AlterableConfig(name="strandline.validate.records", config_operation=1 if mode is None else 0, value=mode)
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=[change])
    answer = peer.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert [each.error_code for each in answer.responses] == [0]


def test_a_large_batch_that_is_checked_in_a_thread_is_stored(log: EmbeddedBroker) -> None:
    log.create_topic("checked", strandline_validate_records="all")
    sent = [NOISE, SMALL, NOISE]
    with Peer(log.port) as peer:
        for number, value in enumerate(sent):
            made = batch([value], compression=3, producer_id=910, producer_epoch=0, base_sequence=number)
            assert [(each.error_code, each.base_offset) for each in send(peer, "checked", made)] == [(0, number)]
        again = batch([NOISE], compression=3, producer_id=910, producer_epoch=0, base_sequence=0)
        assert [(each.error_code, each.base_offset) for each in send(peer, "checked", again)] == [(0, 0)]
    assert values(log, "checked") == sent


# Order


CONFIGS: dict[str, dict[str, str]] = {
    "re-encoded": {"compression_type": "gzip"},
    "checked in a thread": {"strandline_validate_records": "all"},
}
SENT = [LARGE, SMALL, SMALL, LARGE, SMALL]


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("is_idempotent", [False, True])
def test_a_partition_that_is_named_twice_keeps_its_order(log: EmbeddedBroker, name: str, is_idempotent: bool) -> None:
    """The small batches could be stored at once; those before them could not."""
    topic = f"twice-{name.replace(' ', '-')}-{is_idempotent}"
    log.create_topic(topic, **CONFIGS[name])
    ids = [{"producer_id": 920, "producer_epoch": 0, "base_sequence": at} if is_idempotent else {} for at in range(5)]
    batches = [batch([value], compression=1 if len(value) > 10 else 0, **ids[at]) for at, value in enumerate(SENT)]
    if name == "checked in a thread":
        batches = [batch([value + NOISE], compression=3, **ids[at]) for at, value in enumerate(SENT)]
        batches[1] = batch([SMALL], **ids[1])
        batches[4] = batch([SMALL], compression=3, **ids[4])
    with Peer(log.port) as peer:
        results = send(peer, topic, *batches)
    assert [(each.error_code, each.base_offset) for each in results] == [(0, at) for at in range(5)]
    assert [value.removesuffix(NOISE) for value in values(log, topic)] == SENT


def test_a_request_of_many_batches_keeps_the_order_of_a_partition(log: EmbeddedBroker) -> None:
    """It is appended in shares; a batch of the second share must not overtake one of the first."""
    log.create_topic("long", compression_type="gzip")
    sent = [LARGE, *(b"%d" % number for number in range(600))]
    with Peer(log.port) as peer:
        results = send(peer, "long", *(batch([value]) for value in sent))
    assert [(each.error_code, each.base_offset) for each in results] == [(0, at) for at in range(601)]
    assert values(log, "long") == sent


def test_a_bad_batch_behind_one_that_is_opened(log: EmbeddedBroker) -> None:
    """It keeps its place, and is refused there as it would be alone."""
    log.create_topic("behind", compression_type="gzip")
    with Peer(log.port) as peer:
        results = send(
            peer,
            "behind",
            batch([LARGE]),
            b"too short",
            with_fields(batch(), crc=1),
            with_records(batch(), b"\x7f" * 40),
            batch([SMALL]),
        )
    invalid = int(ErrorCode.INVALID_RECORD)
    assert codes(results) == [0, invalid, int(ErrorCode.CORRUPT_MESSAGE), invalid, 0]
    assert [each.batch_index for each in results[3].record_errors] == [0]
    assert values(log, "behind") == [LARGE, SMALL]


def test_requests_of_one_connection_keep_their_order(log: EmbeddedBroker) -> None:
    """All are sent before the first is answered, as an idempotent producer does."""
    log.create_topic("pipelined", strandline_validate_records="all")
    sent = [NOISE, SMALL, SMALL, NOISE, SMALL]
    frames = [
        request(
            produce("pipelined", batch([value], compression=3, producer_id=930, producer_epoch=0, base_sequence=at)),
            VERSION,
            correlation_id=at,
        )
        for at, value in enumerate(sent)
    ]
    with Peer(log.port) as peer:
        peer.send(b"".join(frames))
        for at in range(len(sent)):
            content = peer.receive_answer()
            assert struct.unpack_from(">i", content) == (at,)
            (result,) = answer_of(ROUTES[PRODUCE], VERSION, content).responses[0].partition_responses
            assert (result.error_code, result.base_offset) == (0, at)
    assert values(log, "pipelined") == sent

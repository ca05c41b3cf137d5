"""What a broker remembers of producers, as a client meets it: refusals, restarts, invented ids."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.hostile.batches import batch, produce, with_fields
from tests.hostile.peer import Peer
from tests.unit.log.engine import split

import strandline
from strandline.codec.columns import decode_batch
from strandline.codec.messages.produce_response import PartitionProduceResponse
from strandline.errors import ErrorCode

TOPIC = "orders"
ID = 4001
VERSION = 9
QUICK = {"flush.mode": "async"}


def numbered(sequence: int, *, producer_id: int = ID, **options: int) -> bytes:
    return batch([b"%d" % sequence], producer_id=producer_id, producer_epoch=0, base_sequence=sequence, **options)


def sent(peer: Peer, records: bytes) -> PartitionProduceResponse:
    answer: PartitionProduceResponse = peer.ask(produce(TOPIC, records), VERSION).responses[0].partition_responses[0]
    return answer


def code(peer: Peer, records: bytes) -> ErrorCode:
    return ErrorCode(sent(peer, records).error_code)


def stored(data: Path) -> list[bytes | None]:
    segments = sorted((data / f"{TOPIC}-0").glob("*.log"))
    return [record.value for path in segments for each in split(path.read_bytes()) for record in decode_batch(each)]


@pytest.mark.slow
def test_what_was_never_stored_is_not_called_a_duplicate(tmp_path: Path) -> None:
    """The first batch of a new producer was corrupt on its way, the second was in flight behind it; then the broker
    restarts. DUPLICATE_SEQUENCE_NUMBER for the first would be a success to its client, and the record lost."""
    with strandline.embedded(data=tmp_path, properties=QUICK) as log:
        log.create_topic(TOPIC)
        with Peer(log.port) as peer:
            assert code(peer, with_fields(numbered(0), crc=1)) is ErrorCode.CORRUPT_MESSAGE
            assert code(peer, numbered(1)) is ErrorCode.NOT_ENOUGH_REPLICAS
    with strandline.embedded(data=tmp_path, properties=QUICK) as log, Peer(log.port) as peer:
        assert [sent(peer, numbered(sequence)).base_offset for sequence in (0, 1, 2)] == [0, 1, 2]
    with strandline.embedded(data=tmp_path, properties=QUICK) as log, Peer(log.port) as peer:
        assert [sent(peer, numbered(sequence)).base_offset for sequence in (0, 1, 2, 3)] == [0, 1, 2, 3]
    assert stored(tmp_path) == [b"0", b"1", b"2", b"3"]


def test_whatever_refused_the_first_batch_it_is_not_overtaken(tmp_path: Path) -> None:
    """Refused twice, and what is behind it was sent twice, too: still nothing is stored before it."""
    with strandline.embedded(data=tmp_path, properties=QUICK) as log:
        log.create_topic(TOPIC, max_message_bytes=300)
        with Peer(log.port) as peer:
            large = batch([b"v" * 400], producer_id=ID, producer_epoch=0, base_sequence=0)
            for refused, why in (
                (with_fields(numbered(0), crc=1), ErrorCode.CORRUPT_MESSAGE),
                (large, ErrorCode.MESSAGE_TOO_LARGE),
            ):
                for _ in range(2):
                    assert code(peer, refused) is why
                    assert code(peer, numbered(1)) is ErrorCode.NOT_ENOUGH_REPLICAS
                    assert code(peer, numbered(2)) is ErrorCode.NOT_ENOUGH_REPLICAS
            assert [sent(peer, numbered(sequence)).base_offset for sequence in (0, 1, 2)] == [0, 1, 2]
    assert stored(tmp_path) == [b"0", b"1", b"2"]


def test_a_producer_that_the_broker_forgot_goes_on(tmp_path: Path) -> None:
    with strandline.embedded(data=tmp_path, properties=QUICK) as log:
        log.create_topic(TOPIC)
        with Peer(log.port) as peer:
            assert [code(peer, numbered(sequence)) for sequence in (57, 58, 57, 58)] == [
                ErrorCode.NOT_ENOUGH_REPLICAS,
                ErrorCode.NOT_ENOUGH_REPLICAS,
                ErrorCode.NONE,
                ErrorCode.NONE,
            ]
    assert stored(tmp_path) == [b"57", b"58"]


@pytest.mark.slow
def test_invented_producers_are_limited_and_cost_the_others_nothing(tmp_path: Path) -> None:
    with strandline.embedded(data=tmp_path, properties={**QUICK, "producer.id.count.max": "300"}) as log:
        log.create_topic(TOPIC)
        with Peer(log.port) as peer:
            assert sent(peer, numbered(0)).base_offset == 0
            codes = [code(peer, numbered(0, producer_id=10**6 + number)) for number in range(400)]
            assert codes == [ErrorCode.NONE] * 299 + [ErrorCode.NOT_ENOUGH_REPLICAS] * 101
            assert sent(peer, numbered(0)).base_offset == 0, "its retry is known"
            assert sent(peer, numbered(1)).base_offset == 300
            assert code(peer, batch([b"without a producer id"])) is ErrorCode.NONE

"""Damage below what was acknowledged is said aloud and never cut away; only a torn tail is.

The broker is killed, its files are changed by hand, and it is started again. No recovery point protects these records
(it is written once a minute), so the broker must tell a torn tail from damage by the files alone.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

from strandline.ids import TopicPartition
from strandline.local.embedded import embedded
from strandline.testing.checker import check
from strandline.testing.client_threads import QUICK_RETRIES, payload_of
from strandline.testing.final_read import read_to_the_end
from strandline.testing.history import Op, Outcome, Send
from strandline.testing.recorder import Recorder

ORDERS = TopicPartition("orders", 0)
BYSTANDER = TopicPartition("bystander", 0)
RECORDS = 150
SEGMENT_BYTES = 16 * 1024


def produce(bootstrap: str, partition: TopicPartition, *, first: int, count: int) -> list[Op]:
    """Sends records one by one, never retrying, and returns what the broker said to each."""
    ops: list[Op] = []
    told: list[Message] = []

    def on_delivery(_: KafkaError | None, message: Message) -> None:
        told.append(message)

    producer = Producer({"bootstrap.servers": bootstrap, "message.send.max.retries": 0, **QUICK_RETRIES})
    for number in range(first, first + count):
        value = f"1:{number}"
        producer.produce(
            partition.topic, payload_of(value, 400), partition=partition.partition, on_delivery=on_delivery
        )
        producer.flush(30)
        message = told.pop()
        error = message.error()
        send = Send(str(partition), value, message.offset() if error is None else None)
        outcome: Outcome = "ok" if error is None else "info"
        reason = "" if error is None else error.name()
        ops.append(Op(1, outcome, "send", (send,), invoked_ns=number, completed_ns=number, error=reason))
    return ops


def flip_a_bit(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 0x10
    path.write_bytes(content)


def flip_in_the_last_segment(segments: list[Path]) -> None:
    flip_a_bit(segments[-1], 100)


def flip_in_an_earlier_segment(segments: list[Path]) -> None:
    flip_a_bit(segments[1], 5000)


def flip_in_the_last_batch_of_an_earlier_segment(segments: list[Path]) -> None:
    flip_a_bit(segments[1], segments[1].stat().st_size - 50)


@pytest.mark.parametrize(
    "damage",
    [
        flip_in_the_last_segment,
        pytest.param(flip_in_an_earlier_segment, marks=pytest.mark.slow),
        flip_in_the_last_batch_of_an_earlier_segment,
    ],
)
def test_damage_takes_the_partition_offline_and_nothing_is_cut(
    tmp_path: Path, damage: Callable[[list[Path]], None]
) -> None:
    with embedded(data=tmp_path) as log:
        log.create_topic(ORDERS.topic, internal_segment_bytes=SEGMENT_BYTES)
        log.create_topic(BYSTANDER.topic)
        assert all(op.outcome == "ok" for op in produce(log.bootstrap, ORDERS, first=0, count=RECORDS))
        log.kill()
        segments = sorted((tmp_path / "orders-0").glob("*.log"))
        assert len(segments) >= 3
        damage(segments)
        before = [path.read_bytes() for path in segments]
        log.start()
        refused = produce(log.bootstrap, ORDERS, first=RECORDS, count=1)[0]
        assert refused.error == "KAFKA_STORAGE_ERROR"
        assert [path.read_bytes() for path in segments] == before, "the broker changed a damaged log"
        # The neighbour works, and the broker's words name the file.
        assert produce(log.bootstrap, BYSTANDER, first=0, count=1)[0].outcome == "ok"
        assert "orders-0" in log.stderr_text()


def append_garbage(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\x00\x01garbage" * 7)


def append_zeros(path: Path) -> None:
    with path.open("ab") as file:
        file.write(bytes(4096))


def append_half_a_batch(path: Path) -> None:
    content = path.read_bytes()
    size_bytes = 12 + int.from_bytes(content[8:12], "big")
    with path.open("ab") as file:
        file.write(content[: size_bytes // 2])


def append_half_a_batch_and_begin_another_segment(path: Path) -> None:
    # A power cut during a roll: the directory knows the new segment, the last batches of the old one are not whole.
    append_half_a_batch(path)
    path.with_name(f"{RECORDS + 3:020}.log").touch()


@pytest.mark.parametrize(
    "tear",
    [
        pytest.param(append_garbage, marks=pytest.mark.slow),
        append_zeros,
        pytest.param(append_half_a_batch, marks=pytest.mark.slow),
        append_half_a_batch_and_begin_another_segment,
    ],
)
def test_a_torn_tail_is_cut_and_everything_acknowledged_is_there(tmp_path: Path, tear: Callable[[Path], None]) -> None:
    with embedded(data=tmp_path) as log:
        log.create_topic(ORDERS.topic, internal_segment_bytes=SEGMENT_BYTES)
        recorder = Recorder()
        ops = produce(log.bootstrap, ORDERS, first=0, count=RECORDS)
        log.kill()
        tear(max((tmp_path / "orders-0").glob("*.log")))
        log.start()
        ops += produce(log.bootstrap, ORDERS, first=RECORDS, count=20)
        # Once more, because only another recovery reads what this one left on disk.
        log.kill()
        log.start()
        read_to_the_end(recorder, log.bootstrap, [ORDERS])
    report = check(ops + recorder.ops())
    assert report.ok, report
    assert report.sends == {"ok": RECORDS + 20}

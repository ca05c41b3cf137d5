"""What readers are promised."""

from __future__ import annotations

import pytest
from tests.clients.client import Client, ClientFailed, Got, Limits, New, Reader, until


def from_the_middle(client: Client, topic: str) -> None:
    """A reader begins at the offset it names, also inside a batch."""
    client.create_topic(topic)
    client.produce(topic, [New(value=b"%d" % n) for n in range(50)], linger_ms=50)
    for start in (0, 1, 17, 49):
        found = client.read(topic, {0: start}, 50 - start)
        assert [(got.offset, got.value) for got in found] == [(n, b"%d" % n) for n in range(start, 50)]


def small_fetches(client: Client, topic: str) -> None:
    """A record larger than the fetch limit is delivered all the same; a reader is never stuck."""
    client.create_topic(topic)
    records = [New(value=b"%d" % n * 3000) for n in range(5)]
    for record in records:
        client.produce(topic, [record])
    found = client.read(topic, {0: 0}, 5, limits=Limits(partition_bytes_max=1000))
    assert [got.value for got in found] == [record.value for record in records]


def out_of_range(client: Client, topic: str) -> None:
    """An offset beyond the end is an error, or a reset when the client asks for one."""
    client.create_topic(topic)
    client.produce(topic, [New(value=b"only")])
    assert [got.value for got in client.read(topic, {0: 1_000}, 1, reset="earliest")] == [b"only"]
    with pytest.raises(ClientFailed):
        client.read(topic, {0: 1_000}, 1, reset="none")


def long_poll(client: Client, topic: str) -> None:
    """A reader parked at the end gets what is written while it waits."""
    client.create_topic(topic)
    client.produce(topic, [New(value=b"old")])
    unwritten = [New(value=b"new")]

    def write_once() -> None:
        if unwritten:
            client.produce(topic, [unwritten.pop()])

    assert [got.value for got in client.read(topic, {0: 1}, 1, while_waiting=write_once)] == [b"new"]


def list_offsets(client: Client, topic: str) -> None:
    """Earliest, latest, and by time: the first record that is not older, inside a batch and across batches."""
    client.create_topic(topic, message_timestamp_before_max_ms=str(2**63 - 1))
    assert (client.earliest(topic, 0), client.latest(topic, 0)) == (0, 0)
    assert client.at_time(topic, 0, 1) is None
    client.produce(topic, [New(value=b"v", timestamp_ms=stamp) for stamp in (1_000, 2_000, 3_000)], linger_ms=50)
    client.produce(topic, [New(value=b"v", timestamp_ms=stamp) for stamp in (4_000, 6_000)], linger_ms=50)
    assert (client.earliest(topic, 0), client.latest(topic, 0)) == (0, 5)
    wanted = {1: 0, 1_000: 0, 1_001: 1, 2_000: 1, 3_500: 3, 4_001: 4, 6_000: 4, 6_001: None}
    assert {stamp: client.at_time(topic, 0, stamp) for stamp in wanted} == wanted


def latest_time(client: Client, topic: str) -> None:
    """The record with the greatest timestamp is found wherever it stands; an empty partition has none."""
    client.create_topic(topic, message_timestamp_before_max_ms=str(2**63 - 1))
    assert client.at_latest_time(topic, 0) is None
    client.produce(topic, [New(value=b"v", timestamp_ms=stamp) for stamp in (1_000, 9_000, 3_000)], linger_ms=50)
    client.produce(topic, [New(value=b"v", timestamp_ms=stamp) for stamp in (4_000, 6_000)], linger_ms=50)
    assert client.at_latest_time(topic, 0) == 1


def seek(client: Client, topic: str) -> None:
    """A reader goes back and forth, and what it reads afterwards is what stands there."""
    client.create_topic(topic, partitions=2)
    client.produce(topic, [New(value=b"%d" % n, partition=n % 2) for n in range(60)], linger_ms=20)
    reader = client.reader(topic, {0: 0, 1: 0})
    try:
        assert len(_polled(reader, 60)) == 60
        for partition, offset in ((0, 10), (1, 29), (0, 0), (1, 3)):
            reader.seek(partition, offset)
            found = _polled(reader, 30 - offset)
            assert [(got.partition, got.offset, got.value) for got in found] == [
                (partition, n, b"%d" % (2 * n + partition)) for n in range(offset, 30)
            ]
    finally:
        reader.close()


def pause(client: Client, topic: str) -> None:
    """A paused partition gives nothing while the others go on; resumed, it misses nothing."""
    client.create_topic(topic, partitions=2)
    client.produce(topic, [New(value=b"early %d" % n, partition=n % 2) for n in range(20)])
    reader = client.reader(topic, {0: 0, 1: 0})
    try:
        assert len(_polled(reader, 20)) == 20
        reader.pause(0)
        client.produce(topic, [New(value=b"late %d" % n, partition=n % 2) for n in range(20)])
        assert [got.partition for got in _polled(reader, 10)] == [1] * 10
        assert reader.poll() == []
        reader.resume(0)
        assert [(got.partition, got.offset) for got in _polled(reader, 10)] == [(0, n) for n in range(10, 20)]
    finally:
        reader.close()


def fetch_limits(client: Client, topic: str) -> None:
    """Answers of few bytes over many partitions starve none of them."""
    client.create_topic(topic, partitions=6)
    written = [New(value=b"%d" % n * 500, partition=n % 6) for n in range(60)]
    for start in range(0, 60, 12):
        client.produce(topic, written[start : start + 12])
    limits = Limits(partition_bytes_max=3_000, response_bytes_max=5_000)
    found = client.read(topic, dict.fromkeys(range(6), 0), 60, limits=limits)
    for partition in range(6):
        values = [got.value for got in found if got.partition == partition]
        assert values == [record.value for record in written if record.partition == partition]


def minimum_bytes(client: Client, topic: str) -> None:
    """A reader that asks for more than there is gets what there is when its wait is over."""
    client.create_topic(topic)
    client.produce(topic, [New(value=b"little")])
    assert [got.value for got in client.read(topic, {0: 0}, 1, limits=Limits(bytes_min=1_000_000))] == [b"little"]


def _polled(reader: Reader, count: int) -> list[Got]:
    found: list[Got] = []

    def attempt() -> bool:
        found.extend(reader.poll())
        return len(found) >= count

    until(f"{count} records", attempt)
    return found

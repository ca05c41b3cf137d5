"""What producers are promised."""

from __future__ import annotations

import random
import time

import pytest
from tests.clients.client import Client, ClientFailed, Got, New

from strandline.errors import ErrorCode


def codec(name: str, client: Client, topic: str) -> None:
    """What was written with a codec is read back byte for byte, in order."""
    client.create_topic(topic)
    source = random.Random(7)
    records = [New(key=b"key-%d" % n, value=b"order %d " % n + source.randbytes(20) + b"." * 200) for n in range(300)]
    places = client.produce(topic, records, codec=name)
    assert places == [(0, offset) for offset in range(300)]
    assert _contents(client.read(topic, {0: 0}, 300)) == [(record.key, record.value) for record in records]


def codec_with_everything(name: str, client: Client, topic: str) -> None:
    """Headers, nulls and timestamps come through each codec unchanged."""
    client.create_topic(topic, message_timestamp_before_max_ms=str(2**63 - 1))
    records = [
        New(
            key=None if n % 5 == 0 else b"key-%d" % n,
            value=None if n % 10 == 3 else b"order %d" % n * (n % 40),
            headers=(("trace", b"%d" % n), ("trace", b"")) if n % 3 == 0 else (),
            timestamp_ms=1_700_000_000_000 + n * (-1) ** n,
        )
        for n in range(200)
    ]
    client.produce(topic, records, codec=name, linger_ms=20)
    found = client.read(topic, {0: 0}, 200)
    assert [New(got.value, got.key, got.headers, 0, got.timestamp_ms) for got in found] == records
    assert not any(got.is_append_time for got in found)


def headers(client: Client, topic: str) -> None:
    """Headers keep their order, their doubles and their empty values."""
    _headers(client, topic, (("trace", b"1"), ("trace", b"2"), ("empty", b""), ("ключ", "é".encode())))


def binary_headers(client: Client, topic: str) -> None:
    """A header holds any bytes."""
    _headers(client, topic, (("binary", bytes(range(256))), ("zero", b"\0")))


def null_headers(client: Client, topic: str) -> None:
    """A header without a value is not one with an empty value."""
    _headers(client, topic, (("null", None), ("empty", b"")))


def _headers(client: Client, topic: str, written: tuple[tuple[str, bytes | None], ...]) -> None:
    client.create_topic(topic)
    client.produce(topic, [New(value=b"v", headers=written), New(value=b"w")])
    first, second = client.read(topic, {0: 0}, 2)
    assert first.headers == written
    assert second.headers == ()


def nulls(client: Client, topic: str) -> None:
    """Null and empty are two things, for keys and for values."""
    client.create_topic(topic)
    pairs = [(None, b"v"), (b"", b"v"), (b"k", None), (b"k", b""), (b"", b"")]
    client.produce(topic, [New(key=key, value=value) for key, value in pairs])
    assert _contents(client.read(topic, {0: 0}, len(pairs))) == pairs


def acks(setting: str, client: Client, topic: str) -> None:
    """Each acks setting stores the records; only acks=0 is not told where."""
    client.create_topic(topic)
    places = client.produce(topic, [New(value=b"%d" % n) for n in range(20)], acks=setting)
    assert [got.value for got in client.read(topic, {0: 0}, 20)] == [b"%d" % n for n in range(20)]
    if setting != "0":
        assert places == [(0, offset) for offset in range(20)]


def idempotent(client: Client, topic: str) -> None:
    """An idempotent producer's batches, many in flight over two partitions, are stored once and in order."""
    client.create_topic(topic, partitions=2)
    records = [New(value=b"%06d" % n, partition=n % 2) for n in range(2000)]
    places = client.produce(topic, records, idempotent=True, linger_ms=0)
    assert places == [(n % 2, n // 2) for n in range(2000)]
    found = client.read(topic, {0: 0, 1: 0}, 2000)
    for partition in (0, 1):
        assert [got.value for got in found if got.partition == partition] == [
            b"%06d" % n for n in range(partition, 2000, 2)
        ]
        assert client.latest(topic, partition) == 1000


def big_batches(client: Client, topic: str) -> None:
    """Megabytes in batches of many records: offsets are dense and nothing is reordered."""
    client.create_topic(topic)
    records = [New(value=b"%07d" % n + b"x" * 1000) for n in range(3000)]
    assert client.produce(topic, records, linger_ms=20) == [(0, offset) for offset in range(3000)]
    found = client.read(topic, {0: 0}, 3000)
    assert [got.offset for got in found] == list(range(3000))
    assert [got.value for got in found] == [record.value for record in records]


def keys_choose_partitions(client: Client, topic: str) -> None:
    """The client's partitioner spreads keys, and one key stays in one partition."""
    client.create_topic(topic, partitions=4)
    records = [New(key=b"k%d" % (n % 25), value=b"%d" % n, partition=None) for n in range(100)]
    places = client.produce(topic, records)
    homes: dict[bytes | None, set[int]] = {}
    for record, (partition, _) in zip(records, places, strict=True):
        homes.setdefault(record.key, set()).add(partition)
    assert all(len(home) == 1 for home in homes.values())
    assert len(set.union(*homes.values())) > 1
    found = client.read(topic, dict.fromkeys(range(4), 0), 100)
    assert {(got.partition, got.offset, got.value) for got in found} == {
        (partition, offset, record.value) for record, (partition, offset) in zip(records, places, strict=True)
    }


def create_time(client: Client, topic: str) -> None:
    """The producer's timestamps are kept."""
    client.create_topic(topic, message_timestamp_before_max_ms=str(2**63 - 1))
    client.produce(topic, [New(value=b"v", timestamp_ms=stamp) for stamp in (1_000, 5_000, 3_000)])
    found = client.read(topic, {0: 0}, 3)
    assert [(got.timestamp_ms, got.is_append_time) for got in found] == [(1_000, False), (5_000, False), (3_000, False)]


def append_time(client: Client, topic: str) -> None:
    """With LogAppendTime the broker's clock counts, and the client is told so."""
    client.create_topic(topic, message_timestamp_type="LogAppendTime")
    client.produce(topic, [New(value=b"v", timestamp_ms=1_000)])
    (got,) = client.read(topic, {0: 0}, 1)
    assert got.is_append_time
    assert got.timestamp_ms > 1_000


def auto_create(client: Client, topic: str) -> None:
    """A producer makes the topic that it writes to."""
    assert topic not in client.topics()
    assert client.produce(topic, [New(value=b"v", partition=None)])[0][1] == 0
    assert topic in client.topics()
    assert [got.value for got in client.read(topic, {0: 0}, 1)] == [b"v"]


def too_large(client: Client, topic: str) -> None:
    """A record beyond max.message.bytes is refused, and the producer and the topic live on."""
    client.create_topic(topic, max_message_bytes="2000")
    with pytest.raises(ClientFailed) as failure:
        client.produce(topic, [New(value=b"x" * 3000)])
    assert failure.value.code == client.told(ErrorCode.MESSAGE_TOO_LARGE)
    assert client.latest(topic, 0) == 0
    assert client.produce(topic, [New(value=b"y" * 1000)]) == [(0, 0)]


def tombstones(client: Client, topic: str) -> None:
    """A compacted topic takes tombstones, and refuses records without a key."""
    client.create_topic(topic, cleanup_policy="compact")
    client.produce(topic, [New(key=b"k", value=b"v"), New(key=b"k", value=None)])
    with pytest.raises(ClientFailed) as failure:
        client.produce(topic, [New(value=b"no key")])
    assert failure.value.code == client.told(ErrorCode.INVALID_RECORD)
    assert _contents(client.read(topic, {0: 0}, 2)) == [(b"k", b"v"), (b"k", None)]
    assert client.latest(topic, 0) == 2


def append_time_has_no_limits(client: Client, topic: str) -> None:
    """Where the broker's clock counts, the producer's timestamp is not judged."""
    client.create_topic(topic, message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms="60000")
    assert client.produce(topic, [New(value=b"v", timestamp_ms=1_000)]) == [(0, 0)]


def future_timestamp(client: Client, topic: str) -> None:
    """A timestamp further ahead than the topic allows is refused; the default allows one hour."""
    client.create_topic(topic)
    ahead_ms = int(time.time() * 1000) + 2 * 3_600_000
    with pytest.raises(ClientFailed) as failure:
        client.produce(topic, [New(value=b"v", timestamp_ms=ahead_ms)])
    assert failure.value.code == client.told(ErrorCode.INVALID_TIMESTAMP)
    assert client.produce(topic, [New(value=b"v", timestamp_ms=ahead_ms - 2 * 3_600_000)]) == [(0, 0)]


def stale_timestamp(client: Client, topic: str) -> None:
    """A timestamp outside the topic's limits is refused."""
    client.create_topic(topic, message_timestamp_before_max_ms="60000")
    with pytest.raises(ClientFailed) as failure:
        client.produce(topic, [New(value=b"v", timestamp_ms=1_000)])
    assert failure.value.code == client.told(ErrorCode.INVALID_TIMESTAMP)
    assert client.latest(topic, 0) == 0


def _contents(found: list[Got]) -> list[tuple[bytes | None, bytes | None]]:
    return [(got.key, got.value) for got in found]

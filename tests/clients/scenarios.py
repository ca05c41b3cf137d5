"""What every stock client must be able to do: one table, and each row is a promise that Apache Kafka keeps, too."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import pytest
from tests.clients.client import CODECS, Client, ClientFailed, Got, Member, New, until

from strandline.errors import ErrorCode

Scenario = Callable[[Client, str], None]


def codec(name: str, client: Client, topic: str) -> None:
    """What was written with a codec is read back byte for byte, in order."""
    client.create_topic(topic)
    source = random.Random(7)
    records = [New(key=b"key-%d" % n, value=b"order %d " % n + source.randbytes(20) + b"." * 200) for n in range(300)]
    places = client.produce(topic, records, codec=name)
    assert places == [(0, offset) for offset in range(300)]
    assert _contents(client.read(topic, {0: 0}, 300)) == [(record.key, record.value) for record in records]


def headers(client: Client, topic: str) -> None:
    """Headers keep their order, their doubles, their empty and their binary values."""
    client.create_topic(topic)
    written = (("trace", b"1"), ("trace", b"2"), ("empty", b""), ("binary", bytes(range(256))), ("ключ", "é".encode()))
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
    found = client.read(topic, {0: 0}, 5, fetch_bytes_max=1000)
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


def group_resumes(client: Client, topic: str) -> None:
    """A group goes on where it committed, and what was not committed comes again."""
    client.create_topic(topic, partitions=2)
    group = f"{topic}-group"
    client.produce(topic, [New(value=b"%d" % n, partition=n % 2) for n in range(20)])
    assert client.committed(topic, group, 0) is None
    member = client.member(topic, group)
    assert sorted(_read_members([member], 20)) == sorted(b"%d" % n for n in range(20))
    member.commit()
    client.produce(topic, [New(value=b"%d" % n, partition=n % 2) for n in range(20, 26)])
    assert sorted(_read_members([member], 6)) == sorted(b"%d" % n for n in range(20, 26))
    member.close()
    assert (client.committed(topic, group, 0), client.committed(topic, group, 1)) == (10, 10)
    successor = client.member(topic, group)
    assert sorted(_read_members([successor], 6)) == sorted(b"%d" % n for n in range(20, 26))
    successor.commit()
    successor.close()
    assert (client.committed(topic, group, 0), client.committed(topic, group, 1)) == (13, 13)


def group_shares(client: Client, topic: str) -> None:
    """Two members share the partitions without overlap; when one leaves, the other takes over from its commits."""
    client.create_topic(topic, partitions=4)
    group = f"{topic}-group"
    first, second = client.member(topic, group), client.member(topic, group)

    def shared() -> bool:
        # Nothing is in the topic yet, so these polls only drive the rebalance.
        first.poll()
        second.poll()
        return len(first.assignment()) == 2 and len(second.assignment()) == 2

    until("two members with two partitions each", shared)
    assert first.assignment() | second.assignment() == {0, 1, 2, 3}
    client.produce(topic, [New(value=b"%d" % n, partition=n % 4) for n in range(40)])
    assert sorted(_read_members([first, second], 40)) == sorted(b"%d" % n for n in range(40))
    first.commit()
    second.commit()
    second.close()

    def taken_over() -> bool:
        assert first.poll() == []
        return first.assignment() == {0, 1, 2, 3}

    # Only then is more written: what a member has read and not committed comes again after a rebalance.
    until("one member with all partitions", taken_over)
    client.produce(topic, [New(value=b"%d" % n, partition=n % 4) for n in range(40, 48)])
    assert sorted(_read_members([first], 8)) == sorted(b"%d" % n for n in range(40, 48))
    first.close()


def admin(client: Client, topic: str) -> None:
    """Topics are created, listed, deleted, and a new one of the same name is empty."""
    client.create_topic(topic, partitions=3)
    until("the topic is listed", lambda: client.topics().get(topic) == 3)
    client.produce(topic, [New(value=b"gone")])
    client.delete_topic(topic)
    until("the topic is no longer listed", lambda: topic not in client.topics())
    client.create_topic(topic, partitions=1)
    assert client.produce(topic, [New(value=b"fresh")]) == [(0, 0)]
    assert [got.value for got in client.read(topic, {0: 0}, 1)] == [b"fresh"]


def refused_topics(client: Client, topic: str) -> None:
    """What cannot be created or deleted is answered with Kafka's code."""
    client.create_topic(topic)
    attempts: list[tuple[Callable[[], None], ErrorCode]] = [
        (lambda: client.create_topic(topic), ErrorCode.TOPIC_ALREADY_EXISTS),
        (lambda: client.create_topic("no/slashes"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (lambda: client.create_topic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (lambda: client.create_topic(f"{topic}-many", replication_factor=3), ErrorCode.INVALID_REPLICATION_FACTOR),
        (lambda: client.create_topic(f"{topic}-config", retention_ms="soon"), ErrorCode.INVALID_CONFIG),
        (lambda: client.create_topic(f"{topic}-config", no_such_setting="1"), ErrorCode.INVALID_CONFIG),
        (lambda: client.delete_topic(f"{topic}-unknown"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    for attempt, code in attempts:
        with pytest.raises(ClientFailed) as failure:
            attempt()
        assert failure.value.code == client.told(code)
    assert not {name for name in client.topics() if name.startswith(topic)} - {topic}


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


def stale_timestamp(client: Client, topic: str) -> None:
    """A timestamp outside the topic's limits is refused."""
    client.create_topic(topic, message_timestamp_before_max_ms="60000")
    with pytest.raises(ClientFailed) as failure:
        client.produce(topic, [New(value=b"v", timestamp_ms=1_000)])
    assert failure.value.code == client.told(ErrorCode.INVALID_TIMESTAMP)
    assert client.latest(topic, 0) == 0


SCENARIOS: dict[str, Scenario] = {
    **{f"codec-{name}": partial(codec, name) for name in CODECS},
    **{f"acks-{setting}": partial(acks, setting) for setting in ("0", "1", "all")},
    "headers": headers,
    "nulls": nulls,
    "idempotent": idempotent,
    "big-batches": big_batches,
    "keys-choose-partitions": keys_choose_partitions,
    "create-time": create_time,
    "append-time": append_time,
    "stale-timestamp": stale_timestamp,
    "from-the-middle": from_the_middle,
    "small-fetches": small_fetches,
    "out-of-range": out_of_range,
    "long-poll": long_poll,
    "list-offsets": list_offsets,
    "group-resumes": group_resumes,
    "group-shares": group_shares,
    "admin": admin,
    "refused-topics": refused_topics,
    "auto-create": auto_create,
    "too-large": too_large,
    "tombstones": tombstones,
}


def _contents(found: list[Got]) -> list[tuple[bytes | None, bytes | None]]:
    return [(got.key, got.value) for got in found]


def _read_members(members: list[Member], count: int) -> list[bytes | None]:
    """Poll all members until `count` records came; a record too many is found out by one more round."""
    found: list[bytes | None] = []

    def attempt() -> bool:
        for member in members:
            found.extend(got.value for got in member.poll())
        return len(found) >= count

    until(f"{count} records for the group", attempt)
    attempt()
    return found

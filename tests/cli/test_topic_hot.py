"""`strandline topic hot` against a real broker."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from random import Random

import pytest
from tests.cli.conftest import CommandLine

from strandline.client import key_sampling
from strandline.client.cluster_client import ClientSettings, ClusterClient
from strandline.client.key_sampling import SLICE_BYTES, sample_topic, slices_each


def write(bootstrap: str, topic: str, records: Iterable[tuple[bytes | None, bytes, int]], **settings: object) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, **settings})
    for key, value, partition in records:
        while True:
            try:
                producer.produce(topic, value=value, key=key, partition=partition)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0


def new_topic(cli: CommandLine, partitions: int, *settings: str) -> str:
    name = f"hot-{uuid.uuid4().hex[:8]}"
    cli.ok("topic", "create", name, "-p", str(partitions), *settings)
    return name


@pytest.fixture
def client(bootstrap: str) -> Iterator[ClusterClient]:
    client = ClusterClient(ClientSettings.within(bootstrap, "test", 10.0))
    yield client
    client.close()


def test_a_small_topic_is_counted_whole(cli: CommandLine, bootstrap: str) -> None:
    topic = new_topic(cli, 2)
    records: list[tuple[bytes | None, bytes, int]] = [(b"hot", b"x" * 50, 0)] * 600
    records += [(f"k{number}".encode(), b"y" * 50, 1) for number in range(400)]
    write(bootstrap, topic, records)
    (told,) = cli.ok("topic", "hot", topic, "--top", "1", "--json").objects
    assert told["is_whole"]
    assert told["records_sampled"] == 1000
    assert told["keys"][0] == {
        "key": "hot",
        "key_base64": None,
        "records_share": 0.6,
        "bytes_share": pytest.approx(0.598, abs=0.005),
        "margin": 0.0,
        "partitions": [0],
        "records_sampled": 600,
    }
    assert [each["records_share"] for each in told["partitions"]] == [0.6, 0.4]
    shown = cli.ok("topic", "hot", topic).stdout.decode()
    assert "1,000 records read, every record was counted" in shown
    assert "more partitions do not help" in shown
    (second,) = cli.ok("topic", "hot", topic, "-p", "1", "--json").objects
    assert second["records_sampled"] == 400
    assert cli.run("topic", "hot", topic, "-p", "7").status != 0
    assert "does not exist" in cli.run("topic", "hot", f"{topic}-none").stderr


def test_a_large_partition_is_sampled_within_its_budget(
    cli: CommandLine, bootstrap: str, client: ClusterClient
) -> None:
    """The share that is estimated is compared with the share that was written."""
    topic = new_topic(cli, 1)
    random = Random(7)
    written = [
        (b"hot" if random.random() < 0.25 else f"k{random.randrange(5000)}".encode(), b"v" * 200, 0)
        for _ in range(40_000)
    ]
    write(bootstrap, topic, written, **{"batch.size": 16_384})
    share = sum(key == b"hot" for key, _, _ in written) / len(written)
    metadata = client.topic(topic)
    assert metadata is not None
    (sample,) = sample_topic(client, metadata, {0: (0, 40_000)}, Random(1))
    read_bytes = sum(each.read_bytes for each in sample.slices)
    assert not sample.is_whole
    assert len(sample.slices) == slices_each(1)
    assert read_bytes <= 16 * SLICE_BYTES
    (told,) = cli.ok("topic", "hot", topic, "--json", "--top", "1").objects
    assert told["keys"][0]["key"] == "hot"
    assert told["keys"][0]["margin"] > 0
    assert told["keys"][0]["records_share"] == pytest.approx(share, abs=0.05)


def test_slices_count_each_record_once(
    cli: CommandLine, bootstrap: str, client: ClusterClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches reach from one part into the next, and gaps are read after them: no record may be counted twice."""
    topic = new_topic(cli, 1)
    write(bootstrap, topic, [(f"{number}".encode(), b"v" * 100, 0) for number in range(5_000)])
    metadata = client.topic(topic)
    assert metadata is not None
    monkeypatch.setattr(key_sampling, "SLICE_BYTES", 64 * 1024)
    for seed in range(5):
        (sample,) = sample_topic(client, metadata, {0: (10, 4_990)}, Random(seed))
        counted: dict[bytes | None, int] = {}
        for piece in sample.slices:
            for key, number in piece.records.items():
                counted[key] = counted.get(key, 0) + number
        assert sample.is_whole
        assert counted == {f"{number}".encode(): 1 for number in range(10, 4_990)}


def test_compressed_batches_transactions_and_empty_partitions(cli: CommandLine, bootstrap: str) -> None:
    from confluent_kafka import Producer

    topic = new_topic(cli, 3)
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": topic, "compression.type": "zstd", "linger.ms": 20}
    )
    producer.init_transactions(30)
    for commit in (True, False):
        producer.begin_transaction()
        for number in range(150):
            producer.produce(topic, key=b"a" if commit else b"b", value=b"%d" % number, partition=1)
        if commit:
            producer.commit_transaction(30)
        else:
            producer.flush(30)
            producer.abort_transaction(30)
    (told,) = cli.ok("topic", "hot", topic, "--json").objects
    assert told["is_whole"]
    # Markers are no records. What was aborted loads the partition as well.
    assert told["records_sampled"] == 300
    assert {each["key"] for each in told["keys"]} == {"a", "b"}
    assert [each["records_sampled"] for each in told["partitions"]] == [0, 300, 0]


def test_since_looks_at_what_was_written_since(cli: CommandLine, bootstrap: str) -> None:
    from confluent_kafka import Producer

    topic = new_topic(cli, 2)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(300):
        producer.produce(topic, key=b"old", value=b"x", partition=0, timestamp=1_000_000 + number)
        producer.produce(topic, key=b"new", value=b"x", partition=1)
    assert producer.flush(30) == 0
    (told,) = cli.ok("topic", "hot", topic, "--since", "1h", "--json").objects
    assert [each["key"] for each in told["keys"]] == ["new"]
    assert "expected a time" in cli.run("topic", "hot", topic, "--since", "12").stderr


def test_keys_cannot_write_on_a_terminal(cli: CommandLine, bootstrap: str) -> None:
    topic = new_topic(cli, 1)
    write(bootstrap, topic, [(b"\x1b[2Jgone", b"x", 0)] * 120 + [(None, b"x", 0)] * 5 + [(b"\xff" * 400, b"x", 0)] * 3)
    shown = cli.ok("topic", "hot", topic).stdout
    assert b"\x1b[2J" not in shown
    assert b"null" in shown
    assert b"base64" in shown

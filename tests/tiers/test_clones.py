"""`topic clone`: a topic that shares the objects of another, and what the two do to each other: nothing."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.cli.conftest import CommandLine
from tests.hostile.peer import Peer
from tests.tiers.raw_reads import listed
from tests.tiers.tiered_nodes import (
    WAIT_S,
    delete_topics,
    fill,
    local_bases,
    objects,
    properties,
    read,
    settings_of_tiered,
    wait_until,
    watermarks,
)

import strandline
from strandline.local.embedded_broker import EmbeddedBroker

RECORDS = 400
LATEST_TIERED = -5


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with strandline.embedded(data=tmp_path / "data", properties=properties(tmp_path / "store")) as found:
        found.create_topic("orders", **settings_of_tiered(retention_ms=-1))
        yield found


def is_copied(log: EmbeddedBroker, data: Path, topic: str = "orders") -> bool:
    with Peer(log.port) as peer:
        return bool(listed(peer, topic, LATEST_TIERED).offset == local_bases(data, topic)[-1] - 1)


def filled(log: EmbeddedBroker, data: Path, seed: int = 1) -> list[bytes]:
    rng = random.Random(seed)
    values = [rng.randbytes(500) for _ in range(RECORDS)]
    fill(log.bootstrap, ["orders"], values)
    wait_until(lambda: is_copied(log, data), "segments are copied")
    wait_until(lambda: local_bases(data, "orders")[0] > 0, "local segments are gone")
    return values


def test_a_clone_shares_all_and_copies_nothing(log: EmbeddedBroker, tmp_path: Path) -> None:
    cli, data, store = CommandLine(log.bootstrap), tmp_path / "data", tmp_path / "store"
    values = filled(log, data)
    before = objects(store)
    (planned,) = cli.ok("topic", "clone", "orders", "copy", "--at", "250", "--json", "--dry-run").objects
    cut = planned["to"]
    assert 190 <= cut <= 250
    assert "copy" not in {each["topic"] for each in cli.ok("topic", "list", "--json").objects}
    cli.ok("topic", "clone", "orders", "copy", "--at", "250")
    assert objects(store) == before, "no byte is copied"
    assert watermarks(log.bootstrap, "copy") == (0, cut)
    assert read(log.bootstrap, "copy", 0, cut) == read(log.bootstrap, "orders", 0, cut)
    refused = cli.run("topic", "clone", "orders", "copy")
    assert refused.status == 1
    assert "is there already" in refused.stderr
    # Each goes on by itself.
    rng = random.Random(2)
    more = [rng.randbytes(500) for _ in range(200)]
    fill(log.bootstrap, ["copy"], more)
    wait_until(lambda: is_copied(log, data, "copy"), "segments of the clone are copied")
    assert "all is well" in cli.ok("storage", "check", "--deep").stderr
    log.kill()
    log.restart()
    assert [each[2] for each in read(log.bootstrap, "copy", 0, cut + 200)] == values[:cut] + more
    assert [each[2] for each in read(log.bootstrap, "orders", 0, RECORDS)] == values
    # A clone of a clone, up to what only the clone has.
    cli.ok("topic", "clone", "copy", "third")
    end = watermarks(log.bootstrap, "third")[1]
    assert end > cut
    delete_topics(log.bootstrap, "orders", "copy")
    wait_until(lambda: 0 < len(objects(store)) < len(before) + 12, "what none shares is deleted")
    assert [each[2] for each in read(log.bootstrap, "third", 0, end)] == (values[:cut] + more)[:end]
    assert "all is well" in cli.ok("storage", "check", "--deep").stderr
    delete_topics(log.bootstrap, "third")
    wait_until(lambda: not objects(store), "the last one leaves nothing")


@pytest.mark.slow
@pytest.mark.parametrize("first", ["orders", "copy"])
def test_either_may_go_first(log: EmbeddedBroker, tmp_path: Path, first: str) -> None:
    cli, data, store = CommandLine(log.bootstrap), tmp_path / "data", tmp_path / "store"
    values = filled(log, data)
    cli.ok("topic", "clone", "orders", "copy")
    other = "copy" if first == "orders" else "orders"
    end = watermarks(log.bootstrap, other)[1]
    # Records of one expire, and the topic goes: nothing of that is seen in the other.
    cli.ok("topic", "trim", first, "--before", "150", "--yes")
    wait_until(lambda: watermarks(log.bootstrap, first)[0] == 150, "the start moves")
    delete_topics(log.bootstrap, first)
    shared = len(objects(store))
    assert [each[2] for each in read(log.bootstrap, other, 0, end)] == values[:end]
    cli.ok("topic", "trim", other, "--before", "150", "--yes")
    wait_until(lambda: len(objects(store)) < shared, "what both let go is deleted")
    assert [each[2] for each in read(log.bootstrap, other, 150, end)] == values[150:end]
    delete_topics(log.bootstrap, other)
    wait_until(lambda: not objects(store), "the store is empty")


def test_a_transaction_that_is_open_at_the_end_is_aborted(log: EmbeddedBroker, tmp_path: Path) -> None:
    """Its marker is in a later segment, which the clone does not have."""
    cli, data = CommandLine(log.bootstrap), tmp_path / "data"
    producer = Producer({"bootstrap.servers": log.bootstrap, "transactional.id": "shop", "linger.ms": 0})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    for number in range(100):
        producer.produce("orders", b"open-%d" % number + bytes(500), partition=0)
        if number % 5 == 4:
            assert producer.flush(WAIT_S) == 0
    producer.commit_transaction(WAIT_S)
    filled(log, data)
    first_end = sorted(int(path.name[:20]) for path in objects(tmp_path / "store"))[2]
    assert first_end < 100
    cli.ok("topic", "clone", "orders", "copy", "--at", str(first_end))
    assert len(read(log.bootstrap, "orders", 0, first_end)) == first_end
    assert watermarks(log.bootstrap, "copy")[1] == first_end + 1, "the leader aborts it"
    fill(log.bootstrap, ["copy"], [b"after"] * 5)
    found = read(log.bootstrap, "copy", 0, first_end + 6)
    assert [each[2] for each in found] == [b"after"] * 5
    log.kill()
    log.restart()
    assert read(log.bootstrap, "copy", 0, first_end + 6) == found
    # The same producer begins there as in any topic.
    producer.begin_transaction()
    producer.produce("copy", b"new", partition=0)
    producer.commit_transaction(WAIT_S)
    assert [each[2] for each in read(log.bootstrap, "copy", first_end + 6, first_end + 7)] == [b"new"]


def test_what_cannot_be_cloned_is_told(log: EmbeddedBroker, tmp_path: Path) -> None:
    cli = CommandLine(log.bootstrap)
    log.create_topic("plain")
    refused = cli.run("topic", "clone", "plain", "copy")
    assert refused.status == 1
    assert "is not tiered" in refused.stderr
    assert cli.run("topic", "clone", "missing", "copy").status == 3
    assert cli.run("topic", "clone", "orders", "copy", "--at", "yesterday-ish").status == 2
    wait_until((tmp_path / "store" / "strandline-cluster.json").exists, "the store is open")
    cli.ok("topic", "clone", "orders", "empty")
    assert watermarks(log.bootstrap, "empty") == (0, 0)
    changed = cli.run("topic", "alter", "empty", "--config", "strandline.remote.origin={}")
    assert changed.status == 1
    assert "cannot be changed" in changed.stderr
    local = cli.run("config", "set", "--topic", "empty", "remote.storage.enable=false", "--yes")
    assert local.status != 0

"""`strandline txn`: what is open, why readers wait, and how that is ended."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cli.conftest import CommandLine, Ended
from tests.scenarios.transactional_clients import PlainSpoken

import strandline
from strandline.errors import ErrorCode
from strandline.local.embedded_broker import EmbeddedBroker

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def node() -> Iterator[EmbeddedBroker]:
    """One that does not ask coordinators about transactions, as before KIP-890: so that one can be made to hang."""
    with strandline.embedded(properties={"transaction.partition.verification.enable": "false"}) as broker:
        yield broker


@pytest.fixture
def cli(node: EmbeddedBroker) -> CommandLine:
    return CommandLine(node.bootstrap)


@pytest.fixture
def topic(node: EmbeddedBroker) -> str:
    name = f"orders-{uuid.uuid4().hex[:8]}"
    node.create_topic(name, partitions=2)
    return name


@pytest.fixture
def producer(node: EmbeddedBroker) -> Iterator[PlainSpoken]:
    with PlainSpoken([node.port], f"worker-{uuid.uuid4().hex[:8]}", timeout_ms=600_000) as producer:
        producer.init()
        yield producer


def write(producer: PlainSpoken, topic: str, *values: str, partition: int = 0, version: int = 12) -> None:
    for value in values:
        assert producer.produce(topic, value, partition=partition, version=version) == ErrorCode.NONE


def hang(producer: PlainSpoken, topic: str, *values: str) -> None:
    """Records of a transaction that nobody told the coordinator of."""
    write(producer, topic, *values, version=11)


def end(cli: CommandLine, producer: PlainSpoken, *, commits: bool) -> None:
    """End the transaction, and wait for its markers: the answer comes before they are written."""
    assert producer.end(commits=commits).error_code == ErrorCode.NONE
    while not only(cli.ok("txn", "list", "--pattern", producer.transactional_id, "--json"))["state"].startswith("Comp"):
        pass


def only(ended: Ended) -> Any:
    (found,) = ended.objects
    return found


# ---- list


def test_ids_are_listed_with_what_they_are_at(cli: CommandLine, producer: PlainSpoken, topic: str) -> None:
    name = producer.transactional_id
    empty = only(cli.ok("txn", "list", "--pattern", name, "--json"))
    assert (empty["state"], empty["producer_id"], empty["age_ms"]) == ("Empty", producer.producer_id, None)
    assert empty["ends"] is None
    write(producer, topic, "a")
    found = only(cli.ok("txn", "list", "--producer-id", str(producer.producer_id), "--json"))
    assert (found["transactional_id"], found["state"], found["producer_epoch"]) == (name, "Ongoing", producer.epoch)
    assert found["age_ms"] >= 0
    assert found["partitions"] == [{"topic": topic, "partition": 0}]
    head, row = cli.ok("txn", "list", "--pattern", name).lines
    assert head.split() == ["ID", "STATE", "PRODUCER", "EPOCH", "AGE", "COORDINATOR"]
    assert row.split()[:2] == [name, "Ongoing"]


def test_lists_are_chosen_from(cli: CommandLine, producer: PlainSpoken, topic: str) -> None:
    only_it = ("--pattern", f"/^{producer.transactional_id}$/", "--json")
    assert not cli.ok("txn", "list", *only_it, "--state", "open").objects
    write(producer, topic, "a")
    assert cli.ok("txn", "list", *only_it, "--state", "open").objects
    assert cli.ok("txn", "list", *only_it, "--state", "ongoing", "--state", "Empty").objects
    assert not cli.ok("txn", "list", *only_it, "--state", "Empty").objects
    assert cli.ok("txn", "list", *only_it, "--duration-over", "0s").objects
    assert not cli.ok("txn", "list", *only_it, "--duration-over", "1h").objects
    assert "no transactional id is like that" in cli.ok("txn", "list", "--duration-over", "1h").stderr
    end(cli, producer, commits=True)
    assert not cli.ok("txn", "list", *only_it, "--duration-over", "0s").objects


@pytest.mark.parametrize("wrong", [("--state", "Sleeping"), ("--duration-over", "soon"), ("--pattern", "/(/")])
def test_what_is_no_filter_is_told(cli: CommandLine, wrong: tuple[str, str]) -> None:
    ended = cli.run("txn", "list", *wrong)
    assert ended.status == 2
    assert wrong[1] in ended.stderr


# ---- describe


def test_an_id_is_described(cli: CommandLine, producer: PlainSpoken, topic: str, node: EmbeddedBroker) -> None:
    write(producer, topic, "a")
    write(producer, topic, "b", partition=1)
    said = dict(line.split(maxsplit=1) for line in cli.ok("txn", "describe", producer.transactional_id).lines)
    assert said["state"] == "Ongoing"
    assert said["producer"] == f"{producer.producer_id}, epoch {producer.epoch}"
    assert "127.0.0.1" in said["client"]
    assert said["timeout"] == "10 minutes"
    assert said["partitions"] == f"{topic}-0..1"
    assert said["ends"].startswith("times out in 9 min") or said["ends"].startswith("times out in 10 min")
    end(cli, producer, commits=False)
    told = only(cli.ok("txn", "describe", producer.transactional_id, "--json"))
    assert (told["partitions"], told["ends"]) == ([], None)


def test_an_id_that_nobody_knows_is_told_with_what_was_meant(cli: CommandLine, producer: PlainSpoken) -> None:
    ended = cli.run("txn", "describe", producer.transactional_id[:-1])
    assert ended.status == 3
    assert producer.transactional_id in ended.stderr


# ---- why


def test_where_nothing_is_held_back_that_is_said(cli: CommandLine, producer: PlainSpoken, topic: str) -> None:
    write(producer, topic, "a")
    end(cli, producer, commits=True)
    assert cli.ok("txn", "why", topic).lines == [
        f"no partition of {topic} holds anything back: readers of committed records see all that is there"
    ]
    told = cli.ok("txn", "why", f"{topic}-0", "--json").objects
    assert [(each["held_back"], each["transactions"]) for each in told] == [(0, [])]


def test_who_holds_readers_back_is_named(cli: CommandLine, producer: PlainSpoken, topic: str) -> None:
    write(producer, topic, "a")
    end(cli, producer, commits=True)
    write(producer, topic, "b", "c")
    write(producer, topic, "d", partition=1)
    ended = cli.ok("txn", "why", f"{topic}-0")
    said = "\n".join(ended.lines)
    assert said.startswith(f"{topic}-0  2 records held back since ")
    assert "last stable offset 2, high watermark 4" in said
    assert (
        f"{producer.transactional_id}: producer {producer.producer_id}, epoch {producer.epoch}, from offset 2" in said
    )
    assert f"also on      {topic}-1" in said
    assert "ends         times out in" in said
    first, second = cli.ok("txn", "why", topic, "--json").objects
    assert (first["partition"], first["held_back"], second["held_back"]) == (0, 2, 1)
    (holder,) = first["transactions"]
    assert (holder["verdict"], holder["start_offset"], holder["abort"]) == ("ongoing", 2, None)
    assert holder["transaction"]["transactional_id"] == producer.transactional_id
    assert {topic} <= {each["topic"] for each in cli.run("txn", "why", "--json").objects}


def test_a_transaction_that_no_coordinator_knows_hangs(cli: CommandLine, producer: PlainSpoken, topic: str) -> None:
    hang(producer, topic, "a", "b")
    ended = cli.run("txn", "why", topic)
    said = ended.stdout.decode()
    assert ended.status == 5
    assert f"hanging: its id {producer.transactional_id!r} is Empty" in said
    command = f"strandline txn abort --topic-partition {topic}-0 --start-offset 0"
    assert command in said
    assert command in ended.stderr
    (told,) = [each for each in cli.run("txn", "why", topic, "--json").objects if each["held_back"]]
    (holder,) = told["transactions"]
    assert (holder["verdict"], holder["abort"]) == ("hanging", command)
    cli.ok("txn", "abort", "--topic-partition", f"{topic}-0", "--start-offset", "0", "--yes")


def test_another_transaction_of_the_id_does_not_hide_one_that_hangs(
    cli: CommandLine, producer: PlainSpoken, topic: str
) -> None:
    hang(producer, topic, "a")
    write(producer, topic, "b", partition=1)
    (told,) = [each for each in cli.run("txn", "why", topic, "--json").objects if each["partition"] == 0]
    assert [each["verdict"] for each in told["transactions"]] == ["hanging"]
    cli.ok("txn", "abort", "-p", f"{topic}-0", "--producer-id", str(producer.producer_id), "--yes")


@pytest.mark.parametrize("place", ["nowhere-at-all", "nowhere-at-all-0"])
def test_a_place_that_is_not_there_is_told(cli: CommandLine, place: str) -> None:
    assert cli.run("txn", "why", place).status == 3


def test_a_partition_that_is_not_there_is_told(cli: CommandLine, topic: str) -> None:
    ended = cli.run("txn", "why", f"{topic}-7")
    assert ended.status == 3
    assert "no partition 7" in ended.stderr


# ---- abort


def test_an_open_transaction_is_aborted_by_its_id(cli: CommandLine, producer: PlainSpoken, topic: str) -> None:
    write(producer, topic, "a")
    asked = cli.run("txn", "abort", producer.transactional_id)
    assert asked.status == 2
    assert "is fenced" in asked.stderr
    assert only(cli.ok("txn", "describe", producer.transactional_id, "--json"))["state"] == "Ongoing"
    done = only(cli.ok("txn", "abort", producer.transactional_id, "--yes", "--json"))
    assert done["aborted"]
    assert done["producer_epoch"] > producer.epoch
    assert cli.ok("txn", "why", topic).lines[0].startswith("no partition")
    assert producer.end(commits=True).error_code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
    again = cli.run("txn", "abort", producer.transactional_id, "--yes")
    assert again.status == 1
    assert "no transaction open" in again.stderr


def test_one_that_hangs_is_aborted_where_it_hangs(cli: CommandLine, producer: PlainSpoken, topic: str) -> None:
    hang(producer, topic, "a", "b")
    where = ("--topic-partition", f"{topic}-0", "--start-offset", "0")
    asked = cli.run("txn", "abort", *where)
    assert asked.status == 2
    assert "nothing was aborted" in asked.stderr
    assert cli.run("txn", "why", topic).status == 5
    done = only(cli.ok("txn", "abort", *where, "--yes", "--json"))
    assert (done["topic"], done["producer_id"], done["aborted"]) == (topic, producer.producer_id, True)
    assert cli.ok("txn", "why", topic).lines[0].startswith("no partition")
    assert cli.run("txn", "abort", *where, "--yes").status == 3
    # The producer was not fenced: what it does next is its own affair.
    write(producer, topic, "c", version=12)


def test_the_health_of_the_cluster_tells_of_what_hangs(cli: CommandLine, producer: PlainSpoken, topic: str) -> None:
    hang(producer, topic, "a", "b")
    ended = cli.run("cluster", "health", "--json")
    assert ended.status == 5
    (found,) = [each for each in ended.objects if each["check"] == "transactions"]
    assert f"{topic}-0 holds back 2 records" in found["text"]
    assert found["advice"] == f"strandline txn abort --topic-partition {topic}-0 --start-offset 0"
    cli.ok(*found["advice"].split()[1:], "--yes")
    (found,) = [each for each in cli.ok("cluster", "health", "--json").objects if each["check"] == "transactions"]
    assert found["level"] == "ok"


def test_one_that_is_coordinated_is_not_aborted_on_a_partition(
    cli: CommandLine, producer: PlainSpoken, topic: str
) -> None:
    write(producer, topic, "a")
    ended = cli.run("txn", "abort", "--topic-partition", f"{topic}-0", "--start-offset", "0", "--yes")
    assert ended.status == 1
    assert "does not hang" in ended.stderr
    assert f"strandline txn abort {producer.transactional_id}" in ended.stderr
    assert producer.end(commits=True).error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("worker", "--topic-partition", "orders-0"),
        ("--topic-partition", "orders-0"),
        ("worker", "--start-offset", "3"),
    ],
)
def test_an_abort_that_does_not_say_what_is_wrong_usage(cli: CommandLine, arguments: tuple[str, ...]) -> None:
    assert cli.run("txn", "abort", *arguments).status == 2

"""`strandline queue dead`: list, show, redrive and purge, against a real node."""

from __future__ import annotations

import json
import random
import signal
import threading
import uuid
from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.cli.conftest import CommandLine
from tests.scenarios.share_worker import ShareWorker, begin_group

import strandline
from strandline.coordinators.shares.delivery.acknowledgements import REJECT
from strandline.errors import ErrorCode
from strandline.local.embedded_broker import EmbeddedBroker

pytestmark = pytest.mark.timeout(180)
Headers = list[tuple[str, bytes]]


@pytest.fixture(scope="module")
def node() -> Iterator[EmbeddedBroker]:
    with strandline.embedded(
        properties={
            "share.coordinator.state.topic.num.partitions": "1",
            "transaction.state.log.num.partitions": "1",
            "offsets.topic.num.partitions": "1",
        }
    ) as broker:
        yield broker


@pytest.fixture
def cli(node: EmbeddedBroker) -> CommandLine:
    return CommandLine(node.bootstrap)


@pytest.fixture
def ground(node: EmbeddedBroker) -> Ground:
    return Ground(node)


class Ground:
    """A topic `jobs-...` and its dead-letter topic."""

    def __init__(self, node: EmbeddedBroker) -> None:
        self.node = node
        self.jobs = f"jobs-{uuid.uuid4().hex[:8]}"
        self.dead = f"dlq.{self.jobs}"
        node.create_topic(self.jobs, 2)
        node.create_topic(self.dead, 2, errors_deadletterqueue_group_enable="true")
        self._producer = Producer({"bootstrap.servers": node.bootstrap})

    def write(self, topic: str, value: bytes | None, *, partition: int = 0, headers: Headers | None = None) -> None:
        self._producer.produce(topic, value, partition=partition, headers=headers)
        assert self._producer.flush(30) == 0

    def bury(self, value: bytes | None, *, partition: int = 0, offset: int = 0, group: str = "workers") -> None:
        """Write a dead letter as a broker does."""
        headers = [
            ("__dlq.errors.topic", self.jobs.encode()),
            ("__dlq.errors.partition", b"%d" % partition),
            ("__dlq.errors.offset", b"%d" % offset),
            ("__dlq.errors.group", group.encode()),
            ("__dlq.errors.delivery.count", b"5"),
            ("__dlq.errors.message", b"Offset delivery count exceeded the threshold."),
            ("strandline.dlq.header.tenant", b"acme"),
        ]
        self.write(self.dead, value, partition=partition, headers=headers)

    def read(self, topic: str) -> list[tuple[int, bytes | None, dict[str, bytes]]]:
        """Return partition, value and headers of every committed record."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.node.bootstrap,
                "group.id": "reader",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(2)])
        found, ended = [], set()
        while len(ended) < 2:
            message = consumer.poll(30.0)
            assert message is not None
            if message.error() is not None:
                assert message.error().name() == "_PARTITION_EOF", message.error()
                ended.add(message.partition())
            else:
                found.append((message.partition(), message.value(), dict(message.headers() or [])))
        consumer.close()
        return found


def test_the_whole_story_of_a_rejected_record(cli: CommandLine, ground: Ground) -> None:
    """A worker rejects a record, a broker copies it, a person looks at it and redrives it."""
    group = f"workers-{uuid.uuid4().hex[:8]}"
    settings = {"errors.deadletterqueue.topic.name": ground.dead, "errors.deadletterqueue.copy.record.enable": "true"}
    begin_group(ground.node.bootstrap, group, ground.jobs, settings)
    ground.write(ground.jobs, b"poison", headers=[("tenant", b"acme")])
    worker = ShareWorker(ground.node.port, group, ground.jobs)
    assert worker.poll(wait_ms=10_000) == [(0, 0, 1)]
    assert worker.acknowledge(0, 0, REJECT) is ErrorCode.NONE
    for _ in range(200):
        if found := cli.ok("queue", "dead", "list", ground.dead, "--json").objects:
            break
    (letter,) = found
    assert (letter["source_topic"], letter["source_offset"], letter["by"]) == (ground.jobs, 0, group)
    assert (letter["reason"], letter["member"]) == ("Offset rejected by client.", worker.member_id)
    assert letter["headers"] == [{"key": "tenant", "value": "acme"}]
    shown = cli.ok("queue", "dead", "show", ground.dead, f"{letter['partition']}:{letter['offset']}").stdout.decode()
    assert "Offset rejected by client." in shown
    assert "poison" in shown
    (life,) = cli.ok("queue", "trace", group, f"{ground.jobs}-0@0", "--json").objects
    assert [each["event"] for each in life["events"]] == ["acquired", "rejected", "copied to the dead letters"]
    assert life["reason"].endswith("; its copy is in the dead-letter topic")
    assert cli.ok("queue", "dead", "redrive", ground.dead, "--yes").lines == [f"redrove 1 dead letter of {ground.dead}"]
    ((first, _, deliveries),) = worker.poll(wait_ms=10_000)  # with the marker of the redrive, if that was there
    assert (first, deliveries) == (1, 1)
    _, value, headers = ground.read(ground.jobs)[1]
    assert value == b"poison"
    assert headers["tenant"] == b"acme"
    assert headers["strandline.redrive.rounds"] == b"1"
    assert worker.acknowledge(1, 1, REJECT) is ErrorCode.NONE
    worker.close()


def test_a_list_names_each_dead_letter_and_conditions_choose(cli: CommandLine, ground: Ground) -> None:
    ground.bury(b'{"amount": 5}', offset=3)
    ground.bury(b'{"amount": 500}', offset=4, partition=1)
    ground.bury(b"other", offset=5, group="others")
    lines = cli.ok("queue", "dead", "list", ground.dead).lines
    assert len(lines) == 4
    assert f"{ground.jobs}-1@4" in "".join(lines)
    assert len(cli.ok("queue", "dead", "list", ground.dead, "--by", "workers", "--json").objects) == 2
    (found,) = cli.ok("queue", "dead", "list", ground.dead, "--where", "value.amount>100", "--json").objects
    assert found["source_offset"] == 4
    assert not cli.ok("queue", "dead", "list", ground.dead, "--reason", "rejected", "--json").objects
    assert len(cli.ok("queue", "dead", "list", ground.dead, "--limit", "1", "--json").objects) == 1
    assert "first 1 are shown" in cli.ok("queue", "dead", "list", ground.dead, "--limit", "1").stderr


def test_wrong_words_are_explained(cli: CommandLine, ground: Ground) -> None:
    assert cli.run("queue", "dead", "list", "dlq.none").status == 3
    assert cli.run("queue", "dead", "show", ground.dead, "zero").status == 2
    assert cli.run("queue", "dead", "show", ground.dead, "0:5").status == 3
    assert cli.run("queue", "dead", "show", ground.dead, "9:5").status == 3
    assert cli.run("queue", "dead", "redrive", ground.dead, "--to", ground.dead).status == 2
    assert cli.run("queue", "dead", "redrive", ground.dead, "--where", "nonsense").status == 2
    assert cli.run("queue", "dead", "purge", ground.dead).status == 2
    ground.bury(b"x")
    ended = cli.run("queue", "dead", "redrive", ground.dead)
    assert ended.status == 2, "no terminal and no --yes"
    assert "nothing was redriven" in ended.stderr
    assert cli.run("queue", "dead", "redrive", ground.dead, "--to", "no-such-topic", "--yes").status == 3


@pytest.mark.slow
def test_a_redrive_writes_each_once_and_the_next_finds_nothing(cli: CommandLine, ground: Ground) -> None:
    for number in range(5):
        ground.bury(b"%d" % number, offset=number, partition=number % 2)
    plan = cli.ok("queue", "dead", "redrive", ground.dead, "--dry-run").lines
    assert plan == [f"redrive 5 dead letters of {ground.dead} to {ground.jobs}"]
    assert not ground.read(ground.jobs)
    ended = cli.ok("queue", "dead", "redrive", ground.dead, "--limit", "2", "--yes", "--json").objects
    assert (ended[0]["redriven"], ended[0]["done"]) == (2, True)
    cli.ok("queue", "dead", "redrive", ground.dead, "--yes")
    assert Counter(value for _, value, _ in ground.read(ground.jobs)) == Counter(b"%d" % each for each in range(5))
    assert all(partition == int(value) % 2 for partition, value, _ in ground.read(ground.jobs) if value)
    again = cli.ok("queue", "dead", "redrive", ground.dead, "--yes").lines
    assert again == ["leave 5: they were handled before"]
    assert not cli.ok("queue", "dead", "list", ground.dead, "--json").objects
    handled = cli.ok("queue", "dead", "list", ground.dead, "--handled", "--json").objects
    assert [each["handled"] for each in handled] == [True] * 5


@pytest.mark.slow
def test_a_redrive_to_another_topic_by_a_condition_leaves_the_others(cli: CommandLine, ground: Ground) -> None:
    ground.bury(b"a", offset=1)
    ground.bury(b"b", offset=2)
    other = f"{ground.jobs}-slow"
    ground.node.create_topic(other, 2)
    cli.ok("queue", "dead", "redrive", ground.dead, "--to", other, "--where", "value=b", "--yes", "--rate", "1000")
    assert [value for _, value, _ in ground.read(other)] == [b"b"]
    (left,) = cli.ok("queue", "dead", "list", ground.dead, "--json").objects
    assert left["value"] == "a"


def test_what_was_redriven_too_often_is_left(cli: CommandLine, ground: Ground) -> None:
    rounds = [("strandline.dlq.header.strandline.redrive.rounds", b"3")]
    source = [("__dlq.errors.topic", ground.jobs.encode()), ("__dlq.errors.offset", b"1")]
    ground.write(ground.dead, b"worn", headers=source + rounds)
    assert cli.ok("queue", "dead", "redrive", ground.dead, "--yes").lines == [
        "leave 1: they were redriven 3 times already (--rounds)"
    ]
    cli.ok("queue", "dead", "redrive", ground.dead, "--yes", "--rounds", "4")
    ((_, _, headers),) = ground.read(ground.jobs)
    assert headers["strandline.redrive.rounds"] == b"4"


@pytest.mark.slow
def test_without_a_copy_the_source_is_read_and_what_is_gone_is_left(cli: CommandLine, ground: Ground) -> None:
    for value in (b"zero", b"one", b"two"):
        ground.write(ground.jobs, value, headers=[("a", b"b")])
    for offset in (0, 1, 2, 50):
        headers = [
            ("__dlq.errors.topic", ground.jobs.encode()),
            ("__dlq.errors.partition", b"0"),
            ("__dlq.errors.offset", b"%d" % offset),
        ]
        ground.write(ground.dead, None, headers=headers)
    cli.ok("topic", "trim", ground.jobs, "--before", "1", "--partition", "0", "--yes")
    ended = cli.ok("queue", "dead", "redrive", ground.dead, "--yes", "--json").objects[0]
    assert (ended["redriven"], ended["gone"]) == (2, 4)
    redriven = [(value, headers["a"]) for _, value, headers in ground.read(ground.jobs)[2:]]
    assert redriven == [(b"one", b"b"), (b"two", b"b")]


def test_connectors_and_pipelines_have_dead_letters_too(cli: CommandLine, ground: Ground) -> None:
    topic = ground.jobs.encode()
    connect = [("x", b"1"), ("__connect.errors.topic", topic), ("__connect.errors.offset", b"3")]
    pipeline = [("source.topic", topic), ("source.partition", b"1"), ("source.offset", b"4"), ("reason", b"odd")]
    ground.write(ground.dead, b"c", headers=connect)
    ground.write(ground.dead, b"p", headers=pipeline)
    ground.write(ground.dead, b"neither")
    assert "1 record of other kinds" in cli.ok("queue", "dead", "list", ground.dead).stderr
    cli.ok("queue", "dead", "redrive", ground.dead, "--yes")
    found = {value: headers for _, value, headers in ground.read(ground.jobs)}
    assert set(found) == {b"c", b"p"}
    assert found[b"c"]["x"] == b"1"
    assert not any(name.startswith(("__connect", "source.")) for headers in found.values() for name in headers)


def test_a_purge_marks_what_is_meant_and_cuts_what_it_can(cli: CommandLine, ground: Ground) -> None:
    for offset in range(4):
        ground.bury(b"%d" % offset, offset=offset, group="old" if offset in (0, 1, 3) else "new")
    plan = cli.ok("queue", "dead", "purge", ground.dead, "--by", "old", "--dry-run").lines
    assert plan == [
        f"mark 3 dead letters of {ground.dead} as purged",
        f"delete offsets 0 to 1 of {ground.dead}-0, for good",
    ]
    cli.ok("queue", "dead", "purge", ground.dead, "--by", "old", "--yes")
    (left,) = cli.ok("queue", "dead", "list", ground.dead, "--json").objects
    assert left["source_offset"] == 2
    cli.ok("queue", "dead", "redrive", ground.dead, "--yes")
    assert [value for _, value, _ in ground.read(ground.jobs)] == [b"2"]
    cli.ok("queue", "dead", "purge", ground.dead, "--handled", "--yes")
    assert not cli.ok("queue", "dead", "list", ground.dead, "--handled", "--json").objects


@pytest.mark.slow
def test_a_purge_of_all_leaves_what_is_no_dead_letter(cli: CommandLine, ground: Ground) -> None:
    ground.bury(b"a")
    ground.write(ground.dead, b"mine")
    ground.bury(b"b")
    cli.ok("queue", "dead", "purge", ground.dead, "--all", "--yes")
    assert b"mine" in [value for _, value, _ in ground.read(ground.dead)]
    assert not cli.ok("queue", "dead", "list", ground.dead, "--json").objects


@pytest.mark.slow
def test_a_second_redrive_takes_over(cli: CommandLine, ground: Ground) -> None:
    """The first is slow; the second fences it, and each dead letter is written once."""
    for number in range(30):
        ground.bury(b"%d" % number, offset=number)
    slow = cli.start("queue", "dead", "redrive", ground.dead, "--yes", "--rate", "5")
    until_redriven(ground, 5)
    cli.ok("queue", "dead", "redrive", ground.dead, "--yes")
    _, stderr = slow.communicate(timeout=60)
    assert slow.returncode == 1
    assert b"another command handles the dead letters" in stderr
    assert Counter(value for _, value, _ in ground.read(ground.jobs)) == Counter(b"%d" % each for each in range(30))


def until_redriven(ground: Ground, count: int) -> None:
    for _ in range(600):
        if len(ground.read(ground.jobs)) >= count:
            return
        threading.Event().wait(0.05)
    raise AssertionError("nothing is redriven")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_redrive_that_is_killed_again_and_again_neither_loses_nor_doubles(cli: CommandLine, ground: Ground) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    letters = 600
    for number in range(letters):
        ground.bury(b"%d" % number, offset=number, partition=number % 2)
    for _ in range(10):
        done = len(ground.read(ground.jobs))
        process = cli.start("queue", "dead", "redrive", ground.dead, "--yes", "--rate", "20")
        until_redriven(ground, done + 1)
        threading.Event().wait(rng.uniform(0.0, 1.5))
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert len(ground.read(ground.jobs)) < letters, "it was never killed in the middle"
    cli.ok("queue", "dead", "redrive", ground.dead, "--yes")
    found = Counter(value for _, value, _ in ground.read(ground.jobs))
    assert found == Counter(b"%d" % each for each in range(letters))
    assert json.loads(cli.ok("queue", "dead", "redrive", ground.dead, "--yes", "--json").stdout)["redriven"] == 0

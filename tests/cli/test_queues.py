"""Share groups as the command line shows them: what waits, who holds it, why, and the life of one task."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cli.conftest import CommandLine
from tests.queues.conftest import EARLIEST, QUICK, eventually, write

import strandline
from strandline import queue
from strandline.client.group_settings import set_group_settings
from strandline.client.shares.share_consumer import ShareConsumer
from strandline.client.shares.shared_records import ACCEPT, REJECT, RELEASE

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def node() -> Iterator[Any]:
    with strandline.embedded(properties=QUICK) as broker:
        yield broker


@pytest.fixture
def cli(node: Any) -> CommandLine:
    return CommandLine(node.bootstrap)


@pytest.fixture
def names(node: Any) -> tuple[str, str]:
    """A group and a topic of ten tasks, all in partition 0; the group begins with the first."""
    unique = uuid.uuid4().hex[:8]
    group, topic = f"mailers-{unique}", f"mails-{unique}"
    node.create_topic(topic, 2)
    write(node.bootstrap, topic, [b"mail %d" % number for number in range(10)], partition=0)
    set_group_settings(node.bootstrap, group, EARLIEST)
    return group, topic


@pytest.fixture
def consumer(node: Any, names: tuple[str, str]) -> Iterator[ShareConsumer]:
    made = ShareConsumer(node.bootstrap, names[0], [names[1]], client_id="mailer")
    yield made
    made.close()


def take(consumer: ShareConsumer, records: int) -> list[Any]:
    taken: list[Any] = []
    eventually(
        lambda: taken.extend(consumer.poll(records_max=records - len(taken), wait_s=0.2)) or len(taken) == records,
        "records were acquired",
    )
    return taken


def settle(consumer: ShareConsumer) -> None:
    """Send what was acknowledged, and wait until it is stored."""
    for _ in range(3):
        consumer.poll(records_max=0, wait_s=0.1)


def why(cli: CommandLine, group: str, task: str) -> tuple[int, str, str]:
    ended = cli.run("queue", "why", group, task, "--json")
    (answered,) = ended.objects
    return ended.status, answered["state"], answered["reason"]


def test_what_waits_and_what_is_held(cli: CommandLine, names: tuple[str, str], consumer: ShareConsumer) -> None:
    group, topic = names
    records = take(consumer, 4)
    consumer.acknowledge(records[0], ACCEPT)
    consumer.acknowledge(records[1], RELEASE)
    settle(consumer)
    (listed,) = [each for each in cli.ok("queue", "list", "--json").objects if each["group"] == group]
    assert (listed["state"], listed["members"], listed["topics"]) == ("Stable", 1, [topic])
    rows = {each["partition"]: each for each in cli.ok("queue", "lag", group, "--json").objects}
    assert (rows[0]["start"], rows[0]["lag"], rows[0]["acquired"]) == (1, 9, 2)
    assert (rows[1]["start"], rows[1]["acquired"]) == (0, 0)
    (answered,) = cli.ok("queue", "describe", group, "--json").objects
    assert (answered["delivery_count_limit"], answered["lock_duration_ms"]) == (5, 30_000)
    (member,) = answered["members"]
    assert (member["client"], member["partitions"]) == ("mailer", [f"{topic}-0", f"{topic}-1"])
    shown = cli.ok("queue", "describe", group).stdout.decode()
    assert "delivered at most 5 times; a lock lasts 30 seconds" in shown
    assert consumer.member_id in shown
    assert group in cli.ok("queue", "list").stdout.decode()
    assert "OLDEST_S" in cli.ok("queue", "lag").lines[0]


def test_peek_takes_nothing(cli: CommandLine, names: tuple[str, str], consumer: ShareConsumer) -> None:
    group, topic = names
    records = take(consumer, 3)
    consumer.acknowledge(records[1], RELEASE)
    settle(consumer)
    for _ in range(2):
        shown = cli.ok("queue", "peek", group, "-n", "3", "--json").objects
        assert [(each["offset"], each["value"], each["deliveries"]) for each in shown] == [
            (1, "mail 1", 1),
            (3, "mail 3", 0),
            (4, "mail 4", 0),
        ]
    assert f"{topic}-0@1  delivered 1  key 'mail 1'" in cli.ok("queue", "peek", group, "--topic", topic).lines[0]
    assert cli.run("queue", "peek", group, "--topic", "other").status == 3


def test_why_a_task_is_not_delivered(cli: CommandLine, names: tuple[str, str], consumer: ShareConsumer) -> None:
    group, topic = names
    records = take(consumer, 5)
    consumer.acknowledge(records[1], RELEASE)
    consumer.acknowledge(records[2], REJECT)
    consumer.acknowledge(records[3], ACCEPT)
    settle(consumer)
    status, state, text = why(cli, group, f"{topic}-0@0")
    assert (status, state) == (0, "acquired")
    assert f"mailer@127.0.0.1 ({consumer.member_id}) has it for" in text
    assert "delivery 1 of 5" in text
    assert why(cli, group, f"{topic}-0@1")[:2] == (0, "available")
    status, state, text = why(cli, group, f"{topic}-0@2")
    assert (status, state) == (5, "rejected")
    assert consumer.member_id in text
    assert why(cli, group, f"{topic}-0@3")[:2] == (0, "accepted")
    assert why(cli, group, f"{topic}-0@5")[1:] == (
        "waiting",
        "it is the next one to be delivered, when a member fetches and its partition has room for a lock",
    )
    assert why(cli, group, f"{topic}-0@9")[1:] == ("waiting", "it was not delivered yet: 4 records before it")
    assert why(cli, group, f"{topic}-0@10")[1:] == ("absent", "there is no such record yet: the log ends at 10")
    assert f"{topic}-0@9: it was not" in cli.ok("queue", "why", group, f"{topic}-0@9").stdout.decode()


def test_why_without_members(cli: CommandLine, node: Any, names: tuple[str, str]) -> None:
    group, topic = names
    with queue.worker(node.bootstrap, group, topic, lambda task: None) as worker:
        eventually(lambda: worker.counts.accepted == 10, "all are done")
    write(node.bootstrap, topic, [b"late"], partition=0)
    assert why(cli, group, f"{topic}-0@10")[1:] == (
        "unread",
        "no member of the group reads its partition: start a worker",
    )
    assert why(cli, group, f"{topic}-0@3")[1] == "accepted", "the leader remembers it"
    assert cli.run("queue", "why", group, f"{topic}-7@3").status == 3
    assert cli.run("queue", "why", "absent", f"{topic}-0@3").status == 3
    assert cli.run("queue", "why", group, "what").status == 2


def test_the_life_of_a_poison_task(cli: CommandLine, node: Any, names: tuple[str, str]) -> None:
    group, topic = names
    seen: list[int] = []
    lock = threading.Lock()

    def handle(task: queue.QueueTask) -> None:
        if task.offset == 4:
            with lock:
                seen.append(task.attempt)
            raise queue.Retry("poison")

    with queue.worker(node.bootstrap, group, topic, handle) as worker:
        eventually(lambda: len(seen) == 5, "the last delivery")
        eventually(lambda: worker.counts.accepted == 9, "the others are done")
    (answered,) = cli.ok("queue", "trace", group, f"{topic}-0@4", "--json").objects
    assert answered["record"]["value"] == "mail 4"
    events = [(each["event"], each["delivery"]) for each in answered["events"]]
    deliveries = [step for number in range(1, 6) for step in (("acquired", number), ("released", None))]
    assert events == [*deliveries, ("archived", 5)]
    assert {each["member"] for each in answered["events"] if each["member"]} == {worker.member_id}
    assert answered["state"] == "archived"
    status, state, text = why(cli, group, f"{topic}-0@4")
    assert (status, state, text) == (5, "archived", "it was archived: delivered 5 times, and never accepted")
    lines = cli.ok("queue", "trace", group, f"{topic}-0@4").lines
    assert "produced, key 'mail 4'" in lines[0]
    assert "acquired (delivery 1 of 5)" in lines[1]
    assert "now: it was archived" in lines[-1]
    found = [each for each in cli.run("doctor", "--json").objects if each["check"] == "queues"]
    assert any(f"{topic}-0@4" in each["text"] and each["level"] == "warning" for each in found), found


def test_doctor_knows_tasks_that_come_again_and_again(
    cli: CommandLine, names: tuple[str, str], consumer: ShareConsumer
) -> None:
    group, topic = names
    for _ in range(4):
        (record,) = take(consumer, 1)
        assert record.offset == 0
        consumer.acknowledge(record, RELEASE)
        settle(consumer)
    found = [each for each in cli.run("doctor", "--json").objects if each["check"] == "queues"]
    answered = [each for each in found if group in each["text"]]
    assert [each["level"] for each in answered] == ["warning"]
    assert f"has delivered 1 task 4 times or more: {topic}-0@0" in answered[0]["text"]


def test_a_cluster_without_share_groups(bootstrap: str) -> None:
    cli = CommandLine(bootstrap)
    assert "no share groups yet" in cli.ok("queue", "list").stderr
    assert cli.run("queue", "describe", "nothing").status in (1, 3)

"""`strandline txn sink` and `txn abort --sink`: how far jobs are, what they left open, how old ones are forgotten."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from tests.cli.conftest import CommandLine
from tests.scenarios.sink_clients import Driver, patiently
from tests.scenarios.transactional_clients import PlainSpoken

import strandline
from strandline.codec.messages.commit_batch_request import CommitBatchRequest, SinkTransaction
from strandline.errors import ErrorCode
from strandline.ids import sink_key
from strandline.local.embedded_broker import EmbeddedBroker

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def node() -> Iterator[EmbeddedBroker]:
    with strandline.embedded() as broker:
        yield broker


@pytest.fixture
def cli(node: EmbeddedBroker) -> CommandLine:
    return CommandLine(node.bootstrap)


@pytest.fixture
def job(node: EmbeddedBroker) -> Iterator[Job]:
    name = f"job-{uuid.uuid4().hex[:8]}"
    node.create_topic(name)
    job = Job(node, name)
    yield job
    job.close()


class Job:
    """A driver and two tasks."""

    def __init__(self, node: EmbeddedBroker, name: str) -> None:
        self.name = name
        self.driver = Driver([node.port], name)
        self.tasks = [PlainSpoken([node.port], f"{sink_key(name)}{number}", timeout_ms=600_000) for number in range(2)]
        for task in self.tasks:
            task.init()

    def write(self, *tasks: PlainSpoken) -> None:
        for task in tasks:
            assert task.produce(self.name, "value") == ErrorCode.NONE

    def commit(self, batch_id: int, *tasks: PlainSpoken) -> None:
        listed = [SinkTransaction(task.transactional_id, task.producer_id, task.epoch) for task in tasks]
        request = CommitBatchRequest(sink_id=self.name, batch_id=batch_id, transactions=listed)
        assert self.driver.ask(request).error_code == ErrorCode.NONE

    def close(self) -> None:
        for task in self.tasks:
            task.close()


def test_sinks_are_listed(cli: CommandLine, job: Job) -> None:
    (before,) = cli.ok("txn", "sink", "list", "--pattern", job.name, "--json").objects
    assert (before["last_batch"], before["committed_ms"], before["transactional_ids"]) == (None, None, 2)
    job.write(*job.tasks)
    job.commit(7, job.tasks[0])
    assert job.tasks[0].end(commits=True).error_code == ErrorCode.NONE
    job.write(job.tasks[0])
    (found,) = cli.ok("txn", "sink", "list", "--pattern", job.name, "--json").objects
    assert (found["sink"], found["last_batch"], found["open"], found["coordinator"]) == (job.name, 7, 1, 1)
    assert found["committed_ms"] > 0
    head, row = cli.ok("txn", "sink", "list", "--pattern", job.name).lines
    assert head.split() == ["SINK", "LAST", "BATCH", "COMMITTED", "IDS", "OPEN", "COORDINATOR"]
    assert row.split()[:2] == [job.name, "7"]
    assert "no sink is like that" in cli.ok("txn", "sink", "list", "--pattern", "none").stderr


def test_a_sink_is_deleted_after_a_yes(cli: CommandLine, job: Job) -> None:
    job.write(*job.tasks)
    job.commit(3, job.tasks[0])
    assert job.tasks[0].end(commits=True).error_code == ErrorCode.NONE
    job.write(job.tasks[0])
    ended = cli.run("txn", "sink", "delete", job.name)
    assert ended.status == 2
    plan = f"delete sink {job.name} (batch 3 was the last) with 2 transactional ids; 1 open transaction will be aborted"
    assert plan in ended.stderr
    assert cli.ok("txn", "sink", "list", "--pattern", job.name, "--json").objects
    assert cli.ok("txn", "sink", "delete", job.name, "--yes").lines == [f"deleted {job.name}"]
    # The last id goes when its marker is written.
    gone = ("txn", "sink", "list", "--pattern", job.name, "--json")
    patiently(lambda: (ErrorCode.CONCURRENT_TRANSACTIONS if cli.ok(*gone).objects else ErrorCode.NONE, None))
    assert not cli.ok("txn", "list", "--pattern", f"*{job.name}*", "--json").objects


def test_nothing_is_deleted_if_one_is_unknown(cli: CommandLine, job: Job) -> None:
    ended = cli.run("txn", "sink", "delete", job.name, job.name[:-1], "--yes")
    assert ended.status == 3
    assert f"there is no sink '{job.name[:-1]}'" in ended.stderr
    assert job.name in ended.stderr
    assert cli.ok("txn", "sink", "list", "--pattern", job.name, "--json").objects


def test_all_that_a_sink_has_open_is_aborted(cli: CommandLine, job: Job) -> None:
    job.write(job.tasks[0])
    job.commit(0, job.tasks[0])
    assert job.tasks[0].end(commits=True).error_code == ErrorCode.NONE
    job.write(*job.tasks)
    asked = cli.run("txn", "abort", "--sink", job.name)
    assert asked.status == 2
    assert job.tasks[0].transactional_id in asked.stderr
    told = cli.ok("txn", "abort", "--sink", job.name, "--yes", "--json").objects
    assert {(each["transactional_id"], each["aborted"]) for each in told} == {
        (task.transactional_id, True) for task in job.tasks
    }
    (found,) = cli.ok("txn", "sink", "list", "--pattern", job.name, "--json").objects
    assert (found["last_batch"], found["open"]) == (0, 0)
    again = cli.run("txn", "abort", "--sink", job.name, "--yes")
    assert again.status == 1
    assert f"sink '{job.name}' has no transaction open" in again.stderr
    assert cli.run("txn", "abort", "--sink", "unknown", "--yes").status == 3
    assert cli.run("txn", "abort", "some-id", "--sink", job.name).status == 2

"""Sinks through the front door: batches of many stock producers, committed all together, in order and once."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from tests.scenarios.sink_clients import Driver, Task
from tests.scenarios.transactional_clients import PATIENCE_S, PlainSpoken, read, refusal, stock_producer, transact

import strandline
from strandline.codec.messages.commit_batch_request import SinkTransaction
from strandline.coordinators.partitioning import sink_key
from strandline.errors import ErrorCode
from strandline.testing.embedded_broker import EmbeddedBroker

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def node() -> Iterator[EmbeddedBroker]:
    with strandline.embedded() as broker:
        yield broker


@pytest.fixture
def sink(node: EmbeddedBroker) -> str:
    """A sink of its own for each test, and a topic of the same name with two partitions."""
    name = uuid.uuid4().hex
    node.create_topic(name, partitions=2)
    return name


@pytest.fixture
def driver(node: EmbeddedBroker, sink: str) -> Driver:
    return Driver([node.port], sink)


def tasks_of(node: EmbeddedBroker, sink: str, count: int) -> list[Task]:
    return [Task(node.bootstrap, sink) for _ in range(count)]


def seen(node: EmbeddedBroker, sink: str, count: int) -> list[str]:
    """What a reader of committed records sees, once nothing before the end is open any more."""
    transact(stock_producer(node.bootstrap, f"last of {sink}"), sink, ["end", "end"], partitions=2)
    found = read(node.bootstrap, sink, count + 2, partitions=2)
    return sorted(value for value in found if value != "end")


def test_a_batch_of_many_producers_is_committed_and_its_producers_go_on(
    node: EmbeddedBroker, sink: str, driver: Driver
) -> None:
    tasks = tasks_of(node, sink, 3)
    for batch_id in range(4):
        for number, task in enumerate(tasks):
            task.write(sink, f"{batch_id} {number}", partition=number % 2)
        answer = driver.commit(batch_id, *tasks)
        assert (answer.error_code, answer.already_committed, answer.last_batch_id) == (ErrorCode.NONE, False, batch_id)
        for task in tasks:
            # Somebody else has committed it, and librdkafka does not mind.
            task.close()
    assert seen(node, sink, 12) == sorted(f"{batch} {number}" for batch in range(4) for number in range(3))


def test_the_batch_is_committed_once_and_what_was_written_again_is_aborted(
    node: EmbeddedBroker, sink: str, driver: Driver
) -> None:
    first, again = tasks_of(node, sink, 2)
    first.write(sink, "first")
    request = driver.request(7, [first])
    assert not driver.ask(request).already_committed
    assert driver.ask(request).already_committed
    again.write(sink, "once more")
    answer = driver.commit(7, again)
    assert (answer.error_code, answer.already_committed, answer.last_batch_id) == (ErrorCode.NONE, True, 7)
    assert refusal(again.producer.commit_transaction, PATIENCE_S).fatal()
    assert seen(node, sink, 1) == ["first"]


def test_what_a_batch_does_not_name_is_aborted(node: EmbeddedBroker, sink: str, driver: Driver) -> None:
    chosen, copy = tasks_of(node, sink, 2)
    stranger = stock_producer(node.bootstrap, f"no task of {sink}")
    stranger.begin_transaction()
    stranger.produce(sink, b"stranger", partition=1)
    assert stranger.flush(PATIENCE_S) == 0
    chosen.write(sink, "chosen")
    copy.write(sink, "copy")
    assert driver.commit(0, chosen).error_code == ErrorCode.NONE
    assert refusal(copy.producer.commit_transaction, PATIENCE_S).fatal()
    stranger.commit_transaction(PATIENCE_S)
    assert seen(node, sink, 2) == ["chosen", "stranger"]


def test_a_batch_of_the_past_is_fenced_and_changes_nothing(node: EmbeddedBroker, sink: str, driver: Driver) -> None:
    late, current = tasks_of(node, sink, 2)
    assert driver.commit(5).error_code == ErrorCode.NONE
    late.write(sink, "late")
    answer = driver.commit(4, late)
    assert (answer.error_code, answer.last_batch_id) == (ErrorCode.PRODUCER_FENCED, 5)
    assert answer.error_message == f"batch 4 of sink {sink} is over: batch 5 was committed"
    assert driver.states(late) == ["Ongoing"]
    # The list is empty, and yet it is a batch: what is open is none of it.
    assert driver.commit(6).last_batch_id == 6
    current.write(sink, "current")
    assert driver.commit(7, current).last_batch_id == 7
    assert seen(node, sink, 1) == ["current"]


def test_all_that_is_listed_has_to_be_open(node: EmbeddedBroker, sink: str, driver: Driver) -> None:
    one, other = tasks_of(node, sink, 2)
    one.write(sink, "one")
    other.write(sink, "other")
    request = driver.request(0, [one, other])
    request.transactions[1].producer_epoch += 1
    answer = driver.ask(request)
    assert (answer.error_code, answer.last_batch_id) == (ErrorCode.INVALID_TXN_STATE, -1)
    assert other.transactional_id in answer.error_message
    other.producer.abort_transaction(PATIENCE_S)
    request.transactions[1].producer_epoch -= 1
    assert driver.ask(request).error_code == ErrorCode.INVALID_TXN_STATE
    request.transactions[1] = request.transactions[0]
    assert driver.ask(request).error_code == ErrorCode.INVALID_REQUEST
    request.transactions[1] = SinkTransaction(transactional_id=f"{sink_key('another')}x", producer_id=1)
    assert driver.ask(request).error_code == ErrorCode.INVALID_REQUEST
    assert driver.states(one) == ["Ongoing"]
    assert driver.commit(0, one).error_code == ErrorCode.NONE
    assert seen(node, sink, 1) == ["one"]


def test_a_producer_of_a_sink_does_not_commit_by_itself(node: EmbeddedBroker, sink: str, driver: Driver) -> None:
    hasty, aborts = tasks_of(node, sink, 2)
    hasty.write(sink, "hasty")
    aborts.write(sink, "aborted")
    error = refusal(hasty.producer.commit_transaction, PATIENCE_S)
    assert error.name() == "INVALID_TXN_STATE", error
    # It may give up, though.
    aborts.producer.abort_transaction(PATIENCE_S)
    aborts.write(sink, "again")
    assert driver.commit(0, aborts).error_code == ErrorCode.NONE
    assert seen(node, sink, 1) == ["again"]


def test_a_producer_of_transactions_v2_goes_on_with_an_epoch_of_its_own(
    node: EmbeddedBroker, sink: str, driver: Driver
) -> None:
    with PlainSpoken([node.port], f"{sink_key(sink)}v2") as producer:
        producer.init()
        for batch_id in range(3):
            epoch = producer.epoch
            assert producer.produce(sink, f"{batch_id}") == ErrorCode.NONE
            assert producer.end(commits=True, goes_on=False).error_code == ErrorCode.INVALID_TXN_STATE
            request = driver.request(batch_id, [])
            request.transactions = [SinkTransaction(producer.transactional_id, producer.producer_id, epoch)]
            assert driver.ask(request).error_code == ErrorCode.NONE
            assert producer.end(commits=True).error_code == ErrorCode.NONE
            assert producer.epoch == epoch + 1
            # The answer was lost, perhaps.
            assert producer.end(commits=True, epoch=epoch).error_code == ErrorCode.NONE
            assert producer.epoch == epoch + 1
    assert seen(node, sink, 3) == ["0", "1", "2"]


def test_time_ends_what_no_driver_decides(node: EmbeddedBroker, sink: str, driver: Driver) -> None:
    left = Task(node.bootstrap, sink, transaction_timeout_ms=1_000, message_timeout_ms=1_000)
    left.write(sink, "left behind")
    request = driver.request(0, [left])
    # A reader waits until it is over.
    assert seen(node, sink, 0) == []
    assert driver.ask(request).error_code == ErrorCode.INVALID_TXN_STATE


def test_a_node_that_is_killed_remembers_its_sinks(node: EmbeddedBroker, sink: str, driver: Driver) -> None:
    task, other = tasks_of(node, sink, 2)
    task.write(sink, "a")
    other.write(sink, "never")
    request = driver.request(3, [task])
    assert driver.ask(request).error_code == ErrorCode.NONE
    node.kill()
    node.start()
    assert driver.ask(request).already_committed
    task.close()
    task.write(sink, "b")
    assert driver.commit(4, task).error_code == ErrorCode.NONE
    assert seen(node, sink, 2) == ["a", "b"]


def test_a_sink_is_looked_at_and_deleted(node: EmbeddedBroker, sink: str, driver: Driver) -> None:
    assert driver.look() is None
    assert not driver.delete().was_known
    task, left = tasks_of(node, sink, 2)
    task.write(sink, "kept")
    assert driver.commit(9, task).error_code == ErrorCode.NONE
    left.write(sink, "dropped")
    found = driver.look()
    assert found is not None
    assert (found.last_batch_id, found.transactional_ids, found.open_transactions) == (9, 2, 1)
    assert driver.delete().was_known
    assert seen(node, sink, 1) == ["kept"]
    assert driver.look() is None

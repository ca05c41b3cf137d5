"""Sinks through the front door: batches of many stock producers, committed all together, in order and once."""

from __future__ import annotations

import contextlib
import dataclasses
import uuid
from collections.abc import Iterator

import pytest
from tests.hostile.peer import Peer, request
from tests.scenarios.sink_clients import Driver, Task, patiently, talk
from tests.scenarios.transactional_clients import PATIENCE_S, PlainSpoken, read, refusal, stock_producer, transact

import strandline
from strandline.codec.messages.commit_batch_request import CommitBatchRequest, SinkTransaction
from strandline.codec.messages.list_sinks_request import ListSinksRequest
from strandline.errors import ErrorCode
from strandline.ids import sink_key
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.local.embedded_cluster import EmbeddedCluster

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


def test_a_note_is_kept_with_the_batch(node: EmbeddedBroker, sink: str, driver: Driver) -> None:
    with_notes = ListSinksRequest(sink_ids=[sink], include_notes=True)
    for batch_id, note in ((0, b"zero"), (1, b"one" * 100_000)):
        batch = CommitBatchRequest(sink_id=sink, batch_id=batch_id, note=note)
        assert driver.ask(batch).error_code == ErrorCode.NONE
        (found,) = driver.ask(with_notes).sinks
        assert (found.last_batch_id, found.note) == (batch_id, note)
    node.kill()
    node.start()
    (found,) = driver.ask(with_notes).sinks
    assert (found.last_batch_id, found.note) == (1, b"one" * 100_000)
    # Only those who ask for notes have to take them.
    looked = driver.look()
    assert looked is not None
    assert looked.note == b""
    for many in (None, [f"{number}" for number in range(17)]):
        answer = driver.ask(ListSinksRequest(sink_ids=many, include_notes=True))
        assert (answer.error_code, answer.sinks) == (ErrorCode.INVALID_REQUEST, [])
    large = driver.ask(CommitBatchRequest(sink_id=sink, batch_id=2, note=b"n" * 600_000))
    assert (large.error_code, large.last_batch_id) == (ErrorCode.MESSAGE_TOO_LARGE, 1)
    elsewhere = driver.ask(CommitBatchRequest(sink_id=sink, batch_id=3, expected_last_batch_id=0))
    assert (elsewhere.error_code, elsewhere.last_batch_id) == (ErrorCode.PRODUCER_FENCED, 1)


# ---- several nodes


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with strandline.embedded(nodes=3) as nodes:
        yield nodes


@dataclasses.dataclass
class Batch:
    """Two tasks that have written, one of which counts, on a partition whose leader is not the sink's coordinator."""

    driver: Driver
    request: CommitBatchRequest
    counts: Task
    partition: int
    leader: int
    coordinator: int
    third: int


@contextlib.contextmanager
def batch_apart(cluster: EmbeddedCluster) -> Iterator[Batch]:
    sink = uuid.uuid4().hex
    cluster.create_topic(sink, partitions=3)
    by_port = {node.port: node_id for node_id, node in cluster.nodes.items()}
    coordinator = by_port[Driver(list(by_port), sink).coordinator_port()]
    leaders = {partition: cluster.leader_of(sink, partition) for partition in range(3)}
    partition, leader = next(each for each in leaders.items() if each[1] != coordinator)
    third = next(node_id for node_id in cluster.nodes if node_id not in (coordinator, leader))
    driver = Driver([cluster.nodes[third].port], sink)
    counts, copy = (Task(cluster.bootstrap, sink) for _ in range(2))
    counts.write(sink, "counts", partition=partition)
    copy.write(sink, "copy", partition=partition)
    yield Batch(driver, driver.request(0, [counts]), counts, partition, leader, coordinator, third)
    cluster.start_all()
    cluster.wait_in_sync(sink)


def goes_on(cluster: EmbeddedCluster, batch: Batch) -> None:
    """The batch is committed, once; the same producer writes the next one, and a reader sees both."""
    assert batch.driver.ask(batch.request).already_committed
    batch.counts.close()
    topic = batch.driver.sink_id
    batch.counts.write(topic, "next", partition=batch.partition)
    assert batch.driver.commit(1, batch.counts).error_code == ErrorCode.NONE
    assert read(cluster.bootstrap, topic, 2, partitions=3) == ["counts", "next"]


@pytest.mark.slow
def test_the_coordinator_is_lost_between_decision_and_markers(cluster: EmbeddedCluster) -> None:
    with batch_apart(cluster) as batch:
        # It takes no marker, and the decision needs only the coordinator and the third node.
        cluster.pause(batch.leader)
        assert not batch.driver.ask(batch.request).already_committed
        cluster.kill(batch.coordinator)
        cluster.resume(batch.leader)
        goes_on(cluster, batch)


@pytest.mark.slow
def test_the_coordinator_is_lost_while_the_decision_waits(cluster: EmbeddedCluster) -> None:
    """Nobody but itself has it, and nobody was told: the driver asks again, and that answer counts."""
    with batch_apart(cluster) as batch:
        port = cluster.nodes[batch.coordinator].port
        cluster.pause(batch.leader)
        cluster.pause(batch.third)
        with talk([port]) as peer, talk([port]) as looking:
            peer.send(request(batch.request, 0))
            patiently(lambda: (ErrorCode.NETWORK_EXCEPTION if last_batch(looking, batch) else ErrorCode.NONE, None))
            cluster.kill(batch.coordinator)
        cluster.resume(batch.third)
        cluster.resume(batch.leader)
        answer = batch.driver.ask(batch.request)
        assert (answer.error_code, answer.last_batch_id) == (ErrorCode.NONE, 0)
        goes_on(cluster, batch)


def last_batch(peer: Peer, batch: Batch) -> int:
    """Of the sink, as its coordinator knows it before anybody else does."""
    (found,) = peer.ask(ListSinksRequest(sink_ids=[batch.driver.sink_id]), 0).sinks
    return int(found.last_batch_id)


@pytest.mark.slow
def test_the_coordinator_is_lost_before_the_decision(cluster: EmbeddedCluster) -> None:
    with batch_apart(cluster) as batch:
        cluster.kill(batch.coordinator)
        assert not batch.driver.ask(batch.request).already_committed
        goes_on(cluster, batch)


@pytest.mark.slow
def test_a_driver_does_not_wait_for_ever(cluster: EmbeddedCluster) -> None:
    """While too few replicas answer nothing can be decided; who asks again later is told what became of it."""
    with batch_apart(cluster) as batch:
        cluster.pause(batch.leader)
        cluster.pause(batch.third)
        with talk([cluster.nodes[batch.coordinator].port]) as peer:
            batch.request.timeout_ms = 1_000
            assert peer.ask(batch.request, 0).error_code == ErrorCode.REQUEST_TIMED_OUT
        cluster.resume(batch.third)
        cluster.resume(batch.leader)
        answer = batch.driver.ask(batch.request)
        assert (answer.error_code, answer.last_batch_id) == (ErrorCode.NONE, 0)
        goes_on(cluster, batch)

"""Tasks, their producers and the driver's decision against a real broker, without Spark around them."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pyarrow as pa
import pytest
from tests.spark.sink_ground import Query, consume, counts, once, options_for, rows, sinks, transactions, until

from strandline.client.connection import BrokerConnection
from strandline.client.failures import ClientFailed
from strandline.codec.message import Message
from strandline.codec.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest
from strandline.codec.messages.commit_batch_response import CommitBatchResponse
from strandline.codec.messages.end_txn_response import EndTxnResponse
from strandline.codec.messages.init_producer_id_response import InitProducerIdResponse
from strandline.codec.messages.produce_response import ProduceResponse
from strandline.codec.record_batch import sequence_after
from strandline.errors import Disconnected
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.spark.sink import driver
from strandline.spark.sink.failures import SinkFailed, SinkRefused, TransactionLost
from strandline.spark.sink.task_writer import Task, write_task
from strandline.testing import embedded


@pytest.fixture(autouse=True)
def _closed_pools() -> Iterator[None]:
    yield
    Query.close_all()


@pytest.fixture(params=[True, False], ids=["v2", "v1"])
def query(request: pytest.FixtureRequest, broker: EmbeddedBroker, topic: str) -> Query:
    broker.create_topic(topic, partitions=3)
    return Query(options_for(broker.bootstrap, topic), raises_epochs=request.param)


def test_nothing_is_seen_before_the_decision_and_all_after_it(query: Query, broker: EmbeddedBroker, topic: str) -> None:
    first, second = query.task(0, 0, ["a", "b"]), query.task(0, 1, ["c"])
    assert counts(broker.bootstrap, topic) == once()
    query.commit(0, first, second)
    until("the markers", lambda: counts(broker.bootstrap, topic) == once("a", "b", "c"))


def test_an_undecided_producer_is_left_alone_until_a_later_batch(
    query: Query, broker: EmbeddedBroker, topic: str
) -> None:
    """Three tasks of a batch in one worker have three transactions, and the next batches need no more ids."""
    expected = []
    for batch in range(6):
        messages = [query.task(batch, part, [f"{batch}-{part}"]) for part in range(3)]
        expected += [f"{batch}-{part}" for part in range(3)]
        assert len({message.transaction.transactional_id for message in messages if message.transaction}) == 3
        query.commit(batch, *messages)
    until("the markers", lambda: counts(broker.bootstrap, topic) == once(*expected))
    assert len(transactions(broker.bootstrap, query.sink_id)) == 3


def test_an_attempt_that_nobody_heard_of_does_not_count(query: Query, broker: EmbeddedBroker, topic: str) -> None:
    query.task(0, 0, ["a", "b"])  # The worker wrote and returned; its message was lost, and the task runs again.
    query.commit(0, query.task(0, 0, ["a", "b"]))
    for batch in (1, 2):
        query.commit(batch, query.task(batch, 0, [f"{batch}-0"]), query.task(batch, 1, [f"{batch}-1"]))
    until("the markers", lambda: counts(broker.bootstrap, topic) == once("a", "b", "1-0", "1-1", "2-0", "2-1"))
    # The id whose transaction was aborted is in use again.
    assert len(transactions(broker.bootstrap, query.sink_id)) == 2


def test_an_attempt_that_fails_half_way_frees_its_readers_and_its_producer(
    query: Query, broker: EmbeddedBroker, topic: str
) -> None:
    def breaking() -> Iterator[pa.RecordBatch]:
        yield rows(["a"])
        yield rows(["b" * 600_000])
        raise OSError("the rows end here")

    for _ in range(3):
        with pytest.raises(OSError, match="the rows end here"):
            write_task(query.pool, query.options, Task(query.sink_id, 0, 0), breaking())
    assert len(transactions(broker.bootstrap, query.sink_id)) == 1
    query.commit(0, query.task(0, 0, ["a", "b"]))
    until("the markers", lambda: counts(broker.bootstrap, topic) == once("a", "b"))


def test_a_batch_that_is_run_again_after_its_commit_with_other_tasks_changes_nothing(
    query: Query, broker: EmbeddedBroker, topic: str
) -> None:
    query.commit(0, query.task(0, 0, ["a"]))
    query.commit(1, query.task(1, 0, ["b"]), query.task(1, 1, ["c"]))
    restarted = Query(query.options)
    restarted.sink_id = query.sink_id
    again = [restarted.task(1, part, [value]) for part, value in enumerate("bc")] + [restarted.task(1, 2, ["b"])]
    restarted.commit(1, *again)
    restarted.commit(2, restarted.task(2, 0, ["d"]))
    until("the markers", lambda: counts(broker.bootstrap, topic) == once("a", "b", "c", "d"))


def test_an_answer_that_was_lost_is_asked_for_again(query: Query, broker: EmbeddedBroker, topic: str) -> None:
    message = query.task(0, 0, ["a"])
    query.commit(0, message)
    query.commit(0, message)
    until("the markers", lambda: counts(broker.bootstrap, topic) == once("a"))


def test_an_older_checkpoint_stops_the_query_and_takes_nothing_away(
    query: Query, broker: EmbeddedBroker, topic: str
) -> None:
    for batch in range(3):
        query.commit(batch, query.task(batch, 0, [f"{batch}"]))
    message = query.task(1, 0, ["again"])
    with pytest.raises(SinkRefused, match=r"Batch 1 was written before.*up to 2.*checkpoint is older than the log"):
        query.commit(1, message)
    driver.abort(query.pool.cluster(query.options), [message])
    until("the markers", lambda: counts(broker.bootstrap, topic) == once("0", "1", "2"))
    assert sinks(broker.bootstrap)[query.sink_id] == 2
    # With the newer checkpoint put back it goes on.
    query.commit(3, query.task(3, 0, ["3"]))
    until("the markers", lambda: counts(broker.bootstrap, topic) == once("0", "1", "2", "3"))


def test_what_the_driver_aborts_is_gone_and_what_it_committed_stays(
    query: Query, broker: EmbeddedBroker, topic: str
) -> None:
    cluster = query.pool.cluster(query.options)
    written = query.task(0, 0, ["a"])
    query.commit(0, written)
    driver.abort(cluster, [written])  # Spark aborts when a commit failed, also one that came through after all.
    lost = query.task(1, 0, ["b"])
    driver.abort(cluster, [lost])
    with pytest.raises(SinkFailed, match="Batch 1 was not written: a transaction of it had ended"):
        query.commit(1, lost)
    until("the markers", lambda: counts(broker.bootstrap, topic) == once("a"))
    query.commit(1, query.task(1, 0, ["b"]))
    until("the markers", lambda: counts(broker.bootstrap, topic) == once("a", "b"))


def test_a_task_without_rows_has_no_transaction_and_the_sink_moves_on(
    query: Query, broker: EmbeddedBroker, topic: str
) -> None:
    empty = query.task(0, 0, [])
    assert empty.transaction is None
    query.commit(0, empty)
    assert sinks(broker.bootstrap)[query.sink_id] == 0
    assert transactions(broker.bootstrap, query.sink_id) == {}
    query.commit(1, query.task(1, 0, []), query.task(1, 1, ["a"]), query.task(1, 2, []))
    until("the markers", lambda: counts(broker.bootstrap, topic) == once("a"))


def test_a_batch_that_takes_longer_than_its_transactions_may_says_so(broker: EmbeddedBroker, topic: str) -> None:
    broker.create_topic(topic)
    query = Query(options_for(broker.bootstrap, topic, transactionTimeoutMs="1000"))
    message = query.task(0, 0, ["a"])
    until("the timeout", lambda: "CompleteAbort" in transactions(broker.bootstrap, query.sink_id).values())
    with pytest.raises(SinkFailed, match=r"longer than transactionTimeoutMs \(1000\)"):
        query.commit(0, message)
    query.commit(0, query.task(0, 1, ["a"]))
    until("the markers", lambda: counts(broker.bootstrap, topic) == once("a"))


def test_the_end_of_a_transaction_in_the_middle_of_a_task_says_so(broker: EmbeddedBroker, topic: str) -> None:
    broker.create_topic(topic)
    query = Query(options_for(broker.bootstrap, topic, transactionTimeoutMs="1000", **{"kafka.batch.size": "10"}))

    def slow() -> Iterator[pa.RecordBatch]:
        yield rows(["a", "b", "c"])
        until("the timeout", lambda: "CompleteAbort" in transactions(broker.bootstrap, query.sink_id).values())
        yield rows(["d"])

    with pytest.raises(TransactionLost, match="raise transactionTimeoutMs"):
        write_task(query.pool, query.options, Task(query.sink_id, 0, 0), slow())


def test_a_producer_cannot_commit_what_the_driver_has_not_decided(query: Query) -> None:
    producer = query.pool.take(query.options, query.sink_id, 0)
    query.pool.leave(query.options, query.sink_id, producer)
    message = query.task(0, 0, ["a"])
    assert message.transaction is not None
    assert message.transaction.transactional_id == producer.transactional_id
    with pytest.raises(TransactionLost, match="INVALID_TXN_STATE"):
        producer.end(committed=True)
    query.commit(0, message)


def test_rows_name_topics_partitions_keys_and_headers(broker: EmbeddedBroker, topic: str) -> None:
    other = f"{topic}-other"
    broker.create_topic(topic, partitions=3)
    broker.create_topic(other, partitions=2)
    query = Query(options_for(broker.bootstrap))
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    batch = rows(
        ["a", "b", "c"],
        key=pa.array(["k", None, "k"], pa.string()),
        topic=pa.array([topic, other, topic], pa.string()),
        partition=pa.array([2, 1, None], pa.int32()),
        headers=pa.array([[{"key": "h", "value": b"1"}], None, []], kind),
    )
    message = write_task(query.pool, query.options, Task(query.sink_id, 0, 0), [batch])
    query.commit(0, message)
    until("the markers", lambda: len(consume(broker.bootstrap, topic)) == 2)
    until("the markers", lambda: len(consume(broker.bootstrap, other)) == 1)
    found = {message.value(): message for message in consume(broker.bootstrap, topic)}
    assert (found[b"a"].partition(), found[b"a"].key(), found[b"a"].headers()) == (2, b"k", [("h", b"1")])
    (there,) = consume(broker.bootstrap, other)
    assert (there.partition(), there.key(), there.headers()) == (1, None, None)


def test_more_than_a_request_holds_arrives_in_order(query: Query, broker: EmbeddedBroker, topic: str) -> None:
    """Twenty megabytes in small and large batches: the queue fills, and the task waits for the broker."""
    values = [f"{number:06}" + "x" * 1000 for number in range(20_000)]
    batches = [
        rows(values[at : at + 1000], partition=pa.array([1] * 1000, pa.int32())) for at in range(0, 20_000, 1000)
    ]
    query.commit(0, write_task(query.pool, query.options, Task(query.sink_id, 0, 0), batches))
    until("the markers", lambda: len(consume(broker.bootstrap, topic)) == len(values))
    assert [message.value().decode() for message in consume(broker.bootstrap, topic)] == values


def test_a_topic_with_small_batches_gets_small_batches(broker: EmbeddedBroker, topic: str) -> None:
    broker.create_topic(topic, partitions=1, max_message_bytes=2000)
    query = Query(options_for(broker.bootstrap, topic))
    values = [f"{number:04}" + "x" * 300 for number in range(100)]
    query.commit(0, query.task(0, 0, values))
    until("the markers", lambda: len(consume(broker.bootstrap, topic)) == 100)
    assert [message.value().decode() for message in consume(broker.bootstrap, topic)] == values
    with pytest.raises(SinkRefused, match=r"larger than topic .* takes: raise its max\.message\.bytes"):
        query.task(1, 0, ["x" * 3000])


def test_a_partition_is_added_to_a_transaction_once(
    broker: EmbeddedBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many batches of a partition may be full at once."""
    broker.create_topic(topic, partitions=2)
    query = Query(options_for(broker.bootstrap, topic, **{"kafka.batch.size": "100"}), raises_epochs=False)
    sent, send = [], BrokerConnection.send

    def seen(connection: BrokerConnection, request: Message, version: int) -> None:
        if isinstance(request, AddPartitionsToTxnRequest):
            sent.extend(place for each in request.v3_and_below_topics for place in each.partitions)
        send(connection, request, version)

    monkeypatch.setattr(BrokerConnection, "send", seen)
    values = [f"{number:050}" for number in range(40)]
    query.commit(0, query.task(0, 0, values))
    assert sorted(sent) == [0, 1]
    until("the markers", lambda: counts(broker.bootstrap, topic) == once(*values))


MOSTLY_V2 = [True, pytest.param(False, marks=pytest.mark.slow)]


@pytest.mark.slow
@pytest.mark.parametrize("raises_epochs", MOSTLY_V2, ids=["v2", "v1"])
def test_a_cluster_that_is_gone_is_not_asked_for_an_abort(
    topic: str, raises_epochs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had its time already, and the user waits for what happened."""
    with embedded() as broker:
        broker.create_topic(topic)
        patient = Query(options_for(broker.bootstrap, topic))
        patient.commit(0, patient.task(0, 0, ["a"]))  # The first transaction of a cluster takes its time.
        settings = {"kafka.delivery.timeout.ms": "5000", "kafka.request.timeout.ms": "2000", "kafka.batch.size": "10"}
        query = Query(options_for(broker.bootstrap, topic, **settings), raises_epochs=raises_epochs)
        query.commit(0, query.task(0, 0, ["a"]))
        aborts: list[str] = []
        monkeypatch.setattr(query.pool, "abort", lambda options, sink_id, producer: aborts.append(sink_id))

        def breaking() -> Iterator[pa.RecordBatch]:
            yield rows(["b"])
            broker.kill()
            yield rows(["c", "d"])

        with pytest.raises(ClientFailed) as failed:
            write_task(query.pool, query.options, Task(query.sink_id, 1, 0), breaking())
        assert not isinstance(failed.value, SinkRefused)
        assert aborts == []
        broker.start()


def test_null_keys_into_a_compacted_topic_are_refused_and_the_sink_goes_on(broker: EmbeddedBroker, topic: str) -> None:
    broker.create_topic(topic, cleanup_policy="compact")
    query = Query(options_for(broker.bootstrap, topic))
    with pytest.raises(SinkRefused, match="if it is compacted, every row needs a key"):
        query.task(0, 0, ["a"])
    keyed = rows(["a"], key=pa.array([b"k"], pa.binary()))
    query.commit(0, write_task(query.pool, query.options, Task(query.sink_id, 0, 0), [keyed]))
    until("the markers", lambda: counts(broker.bootstrap, topic) == once("a"))


@pytest.mark.slow
def test_a_topic_is_created_where_the_broker_does_so_and_missed_where_not(
    topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with embedded() as creating:
        query = Query(options_for(creating.bootstrap, topic))
        query.commit(0, query.task(0, 0, ["a"]))
        until("the markers", lambda: counts(creating.bootstrap, topic) == once("a"))
    monkeypatch.setattr("strandline.spark.sink.cluster.TOPIC_WAIT_S", 0.1)
    with embedded(properties={"auto.create.topics.enable": "false"}) as strict:
        query = Query(options_for(strict.bootstrap, topic))
        with pytest.raises(SinkRefused, match="does not exist and the broker does not create it: create it with"):
            query.task(0, 0, ["a"])
        strict.create_topic(topic)
        query.commit(0, query.task(0, 0, ["a"]))
        until("the markers", lambda: counts(strict.bootstrap, topic) == once("a"))


def test_compressed_batches_are_read_by_everybody(broker: EmbeddedBroker, topic: str) -> None:
    broker.create_topic(topic)
    query = Query(options_for(broker.bootstrap, topic, **{"kafka.compression.type": "zstd"}))
    query.commit(0, query.task(0, 0, ["a" * 1000, "b"]))
    until("the markers", lambda: counts(broker.bootstrap, topic) == once("a" * 1000, "b"))


@pytest.mark.parametrize("raises_epochs", MOSTLY_V2, ids=["v2", "v1"])
def test_a_broker_that_dies_under_a_task_and_a_driver_costs_nothing(topic: str, raises_epochs: bool) -> None:
    with embedded() as broker:
        broker.create_topic(topic, partitions=3)
        query = Query(options_for(broker.bootstrap, topic), raises_epochs=raises_epochs)
        big = ["x" * 500_000 + str(number) for number in range(6)]

        def interrupted() -> Iterator[pa.RecordBatch]:
            yield rows(big[:3])
            broker.kill()
            broker.start()
            yield rows(big[3:])

        message = write_task(query.pool, query.options, Task(query.sink_id, 0, 0), interrupted())
        broker.kill()
        broker.start()
        query.commit(0, message)
        broker.kill()
        broker.start()
        query.commit(0, message)
        query.commit(1, query.task(1, 0, ["last"]))
        until("the markers", lambda: counts(broker.bootstrap, topic) == once(*big, "last"))


def test_any_answer_may_be_lost(
    query: Query, broker: EmbeddedBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A third of all answers to requests that change something is read from the socket and thrown away."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    source = random.Random(seed)
    received = BrokerConnection.receive_message
    changing = (ProduceResponse, CommitBatchResponse, EndTxnResponse, InitProducerIdResponse)

    def losing(connection: BrokerConnection, response_class: type[Message], *, wait_s: float = 0.0) -> Message:
        answer = received(connection, response_class, wait_s=wait_s)
        if response_class in changing and source.random() < 0.33:
            connection.close()
            raise Disconnected("this answer was lost")
        return answer

    monkeypatch.setattr(BrokerConnection, "receive_message", losing)
    expected = []
    for batch in range(8):
        messages = []
        for part in range(2):
            values = [f"{batch}-{part}-{number}" for number in range(30)]
            batches = [rows(values[at : at + 10]) for at in range(0, 30, 10)]
            messages.append(write_task(query.pool, query.options, Task(query.sink_id, batch, part), batches))
            expected += values
        query.commit(batch, *messages)
    monkeypatch.undo()
    until("the markers", lambda: counts(broker.bootstrap, topic) == once(*expected))
    assert len(transactions(broker.bootstrap, query.sink_id)) == 2


def test_a_sink_that_is_deleted_leaves_nothing(query: Query, broker: EmbeddedBroker, topic: str) -> None:
    query.commit(0, query.task(0, 0, ["a"]))
    driver.delete(query.pool.cluster(query.options), query.sink_id)
    # The answer does not wait for the markers of the last batch, behind which its ids go.
    until("the markers", lambda: transactions(broker.bootstrap, query.sink_id) == {})
    assert query.sink_id not in sinks(broker.bootstrap)
    assert counts(broker.bootstrap, topic) == once("a")


def test_a_foreign_process_does_not_go_on_with_anothers_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    from strandline.spark.sink import pool

    mine = pool.worker_pool()
    assert pool.worker_pool() is mine
    monkeypatch.setattr(pool.os, "getpid", lambda: -1)
    assert pool.worker_pool() is not mine


def test_a_timeout_that_the_broker_does_not_allow(broker: EmbeddedBroker, topic: str) -> None:
    broker.create_topic(topic)
    query = Query(options_for(broker.bootstrap, topic, transactionTimeoutMs="100000000"))
    with pytest.raises(SinkRefused, match=r"lower it, or raise transaction\.max\.timeout\.ms"):
        query.task(0, 0, ["a"])


def test_sequences_begin_again_behind_the_largest() -> None:
    assert sequence_after(0x7FFFFFFF, 1) == 0
    assert sequence_after(0x7FFFFFFE, 3) == 1

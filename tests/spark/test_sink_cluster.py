"""Tasks and driver over three brokers, one of which dies at each step of a batch."""

from __future__ import annotations

import contextlib
import random
import threading
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pytest
from tests.spark.sink_ground import counts, fresh_sink, options_for, rows, until

from strandline.spark.sink import driver
from strandline.spark.sink.cluster import SinkCluster
from strandline.spark.sink.pool import Pool
from strandline.spark.sink.task_writer import Task, write_task
from strandline.testing import embedded

STEPS = ("rows", "flushed", "committed")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_broker_that_dies_at_any_step_costs_nothing(topic: str) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    source = random.Random(seed)
    properties = {"transaction.state.log.num.partitions": "3", "offsets.topic.num.partitions": "3"}
    with embedded(nodes=3, properties=properties) as cluster:
        cluster.create_topic(topic, partitions=6, min_insync_replicas=2)
        options = options_for(cluster.bootstrap_servers, topic)
        pool = Pool()
        sink_id = fresh_sink()
        expected: Counter[str] = Counter()
        victim: int | None = None

        def kill() -> None:
            nonlocal victim
            assert victim is None
            victim = source.choice([1, 2, 3])
            cluster.kill(victim)

        def revive() -> None:
            nonlocal victim
            if victim is not None:
                cluster.start(victim)
                cluster.wait_in_sync(topic)
                victim = None

        def values_of(batch: int, part: int, *, dies: bool) -> Iterator[pa.RecordBatch]:
            for at in range(4):
                if dies and at == 2:
                    kill()
                values = [f"{batch}-{part}-{at}-{number}" for number in range(200)]
                yield rows([value + "x" * 500 for value in values])

        try:
            for batch in range(3 * len(STEPS)):
                step = STEPS[batch % len(STEPS)]
                messages = []
                for part in range(3):
                    batches = values_of(batch, part, dies=step == "rows" and part == 1)
                    messages.append(write_task(pool, options, Task(sink_id, batch, part), batches))
                if step == "flushed":
                    kill()
                driver.commit(pool.cluster(options), messages, batch)
                if step == "committed":
                    kill()
                    driver.commit(pool.cluster(options), messages, batch)
                revive()
                expected.update(
                    f"{batch}-{part}-{at}-{number}" + "x" * 500
                    for part in range(3)
                    for at in range(4)
                    for number in range(200)
                )
            until("the markers", lambda: counts(cluster.bootstrap_servers, topic) == expected)
            ids = {message.transaction.transactional_id for message in messages if message.transaction}
            assert len(ids) == 3
        finally:
            pool.close()


@pytest.mark.slow
def test_a_batch_is_committed_when_it_can_be_read(topic: str) -> None:
    """The coordinator decides while the leader of a partition stands still; who is told of the batch looks at once."""
    properties = {
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }
    with embedded(nodes=3, properties=properties) as cluster, contextlib.closing(Pool()) as pool:
        cluster.create_topic(topic, partitions=3, replication_factor=1)
        options = options_for(cluster.bootstrap_servers, topic)
        sink_id = fresh_sink()
        everywhere = rows(["a", "b", "c"], partition=pa.array([0, 1, 2], pa.int32()))
        message = write_task(pool, options, Task(sink_id, 0, 0), [everywhere])
        coordinator = cluster.leader_of("__transaction_state")
        stands = next(
            leader for leader in (cluster.leader_of(topic, each) for each in range(3)) if leader != coordinator
        )
        with contextlib.closing(SinkCluster(options)) as other:
            assert _last_batch_of(other, sink_id) == -1, "and now it knows whom to ask"
            cluster.pause(stands)
            committing = threading.Thread(target=driver.commit, args=(pool.cluster(options), [message], 0))
            committing.start()
            until("the decision", lambda: _last_batch_of(other, sink_id) == 0)
        committing.join(0.5)
        assert committing.is_alive(), "it waits for the markers"
        cluster.resume(stands)
        committing.join()
        assert counts(cluster.bootstrap_servers, topic) == dict.fromkeys("abc", 1)


def _last_batch_of(cluster: SinkCluster, sink_id: str) -> int:
    return max((each.last_batch_id for each in driver.ask_about(cluster, sink_id).sinks), default=-1)

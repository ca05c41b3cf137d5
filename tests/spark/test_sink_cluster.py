"""Tasks and driver over three brokers, one of which dies at each step of a batch."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pytest
from tests.spark.sink_ground import counts, fresh_sink, options_for, rows, until

from strandline.spark.sink import driver
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

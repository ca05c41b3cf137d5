"""Every example with its driver killed at a random batch: started again, it has written what it would have anyway."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from examples.shop import Record
from tests.pipelines.examples.checks import CHECKS, EXAMPLES
from tests.pipelines.examples.ground import read, write
from tests.pipelines.examples.processes import PipelineProcess
from tests.pipelines.examples.running import CHANGING, feed
from tests.spark_fixtures import BROKER_PROPERTIES

from strandline.pipelines.language.loading import load
from strandline.testing import embedded

IN_A_BATCH_S = 0.6
"""About as long as a batch takes, so that any part of it may be hit."""


@pytest.mark.slow
@pytest.mark.parametrize("example", CHECKS)
@pytest.mark.timeout(1500)
def test_an_example_goes_on_after_its_driver_was_killed(example: str, tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print("seed", seed)
    rng = random.Random(seed)
    first, second = feed()
    with embedded(properties=BROKER_PROPERTIES) as node:
        parts = [first] if example == CHANGING else thirds(first + second)
        kill_at_a_random_batch(example, node.bootstrap, tmp_path, rng, parts)
        if example == CHANGING:
            go_on_while_the_table_changes(node.bootstrap, tmp_path, first, second)
        else:
            with PipelineProcess(example, node.bootstrap, tmp_path, "--once", "--takeover") as again:
                again.wait_well()
        CHECKS[example](node.bootstrap, [first, second])


def thirds(records: list[Record]) -> list[list[Record]]:
    size = -(-len(records) // 3)
    return [records[at : at + size] for at in range(0, len(records), size)]


def kill_at_a_random_batch(
    example: str, bootstrap: str, home: Path, rng: random.Random, parts: list[list[Record]]
) -> None:
    dataset = rng.choice([each.name for each in load(EXAMPLES / example).written])
    batch = rng.randrange(len(parts))
    into_it_s = rng.uniform(0, IN_A_BATCH_S)
    print(f"killed {into_it_s:.2f} s after batch {batch} of {dataset} began")
    write(bootstrap, parts[0])
    with PipelineProcess(example, bootstrap, home) as process:
        process.wait_for_batch(dataset, 0)
        for number in range(1, batch + 1):
            # The batch before has begun and cannot take this, so there will be another one.
            write(bootstrap, parts[number])
            process.wait_for_batch(dataset, number)
        # This is where in the batch it is killed, not a wait for something.
        time.sleep(into_it_s)
    for part in parts[batch + 1 :]:
        write(bootstrap, part)


def go_on_while_the_table_changes(bootstrap: str, home: Path, first: list[Record], second: list[Record]) -> None:
    """The stream goes on by itself: orders that were written after a change must see it."""
    orders = sum(record.topic == "orders" for record in first)
    more = sum(record.topic == "orders" for record in second)
    with PipelineProcess(CHANGING, bootstrap, home, "--takeover") as process:

        def are_written(count: int) -> bool:
            return len(read(bootstrap, "customer_orders")) >= count

        process.wait_until(lambda: are_written(orders), "all orders of the morning are written", every_s=0.3)
        write(bootstrap, second)
        process.wait_until(lambda: are_written(orders + more), "all orders are written", every_s=0.3)
        process.stop()

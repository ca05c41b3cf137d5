"""The same pipeline on a standalone Spark: our code and decoder travel to executors that have neither."""

from __future__ import annotations

import os
import random
import signal
import sysconfig
from contextlib import suppress
from pathlib import Path

import pytest
from bench.measure import process_family
from tests.spark.harness.steps import paused_at
from tests.spark.harness.story import Run, Story
from tests.spark.standalone_cluster import StandaloneCluster, bare_python, standalone_cluster

from strandline.testing import embedded

SEED = 20
EXECUTORS = {"spark.executor.memory": "512m", "spark.task.maxFailures": "8", "spark.executor.cores": "1"}


def switch_off(cluster: StandaloneCluster, number: int) -> None:
    """A worker as a machine that loses its power: with its executors and their Python processes."""
    for pid in process_family(cluster.workers[number].pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    cluster.workers[number].wait()


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_a_worker_is_switched_off_in_the_middle_of_a_batch(tmp_path: Path) -> None:
    print("seed", SEED)
    with (
        embedded(nodes=3, properties={"transaction.state.log.num.partitions": "4"}) as log,
        standalone_cluster(tmp_path, workers=2) as cluster,
    ):
        story = Story(log, tmp_path / "story", random.Random(SEED))
        # Spark has one path to Python for all machines. Behind it the driver's has everything, the executors' nearly
        # nothing: the driver's own environment does not reach them, for the workers were started without it.
        story.environ["PYSPARK_PYTHON"] = story.environ["PYSPARK_DRIVER_PYTHON"] = str(bare_python(tmp_path / "bare"))
        story.environ["PYTHONPATH"] = sysconfig.get_paths()["purelib"]
        faults = {f"spark.executorEnv.{name}": value for name, value in story.faults.environ.items()}
        story.run = Run(master=cluster.master, settings=tuple((EXECUTORS | faults).items()), tasks=6)
        try:
            story.go_on(2)
            paused_at(story, "before-flush")
            switch_off(cluster, 0)
            story.faults.let_go("before-flush")
            story.go_on(2)
            cluster.start_worker()
            story.go_on(2)
            story.finish()
            assert story.verdict() == []
        finally:
            story.close()

"""Workers while nodes die: the leader of the tasks, the coordinator of the group, the coordinator of its state."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest
from tests.queues.conftest import EARLIEST, QUICK, eventually, write

import strandline
from strandline import queue

pytestmark = pytest.mark.timeout(240)

TASKS = 400


@pytest.mark.slow
def test_every_task_is_done_though_each_node_dies_once() -> None:
    settings = {**QUICK, "share.coordinator.state.topic.replication.factor": "3"}
    done: Counter[bytes] = Counter()
    lock = threading.Lock()

    def handle(task: queue.QueueTask) -> None:
        with lock:
            done[task.value or b""] += 1

    with strandline.embedded(nodes=3, properties=settings) as cluster:
        cluster.create_topic("tasks", partitions=2, replication_factor=3)
        names = [b"task %d" % number for number in range(TASKS)]
        workers = [
            queue.worker(
                cluster.bootstrap_servers, "workers", "tasks", handle, concurrency=2, group_settings=EARLIEST
            ).start()
            for _ in range(3)
        ]
        # Every node leads something: tasks, positions of the group, or its state.
        for number, node_id in enumerate(sorted(cluster.nodes)):
            write(cluster.bootstrap_servers, "tasks", names[number::3])
            kill(cluster, node_id)
        eventually(lambda: len(done) == TASKS, "every task is done", within_s=120.0)
        for worker in workers:
            worker.stop()
    assert set(done) == set(names)


def kill(cluster: Any, node_id: int) -> None:
    cluster.kill(node_id)
    cluster.start(node_id)
    cluster.wait_in_sync("tasks", timeout_s=60.0)

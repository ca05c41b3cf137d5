"""What is done to a pipeline: each step names the point at which it strikes, and leaves the pipeline running again."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress

from tests.spark.harness.driver import AS_SHUFFLED
from tests.spark.harness.driver_process import DriverFailed, wait_until
from tests.spark.harness.looking import coordinator_of, end_offsets, log_sizes, wait_for_rest
from tests.spark.harness.story import BATCH_TIMEOUT_S, STARTS_MAX, STATE_TOPIC, TARGET, Story, watch_for
from tests.spark.standalone_cluster import standalone_cluster

TASK_POINTS = ("before-produce", "after-produce", "before-flush", "after-flush", "before-return", "after-return")
COMMIT_POINTS = ("before-commit", "commit-sent", "after-commit")
ABORT_POINTS = ("before-abort", "after-abort")
TRANSACTION_TIMEOUT_MS = 10_000
FREE_AFTER_S = 10.0
"""Readers wait for a driver that was given up for the transaction's timeout, and so much longer at most."""

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "200ms",
    "spark.executor.memory": "512m",
}

Step = Callable[[Story], None]


def strike(story: Story, point: str, action: str) -> None:
    """Somebody does `action` at `point`, and the pipeline goes on. A task is tried again, a failed query started."""
    story.faults.arm(point, action)
    come_to(story, point)
    story.go_on(2)
    story.faults.disarm(point)


def come_to(story: Story, point: str) -> None:
    """Return when somebody is at `point`. A query that ends before, for a fault of the step before, is started."""
    for _ in range(STARTS_MAX):
        driver = story.ensure_query()
        if not watch_for(lambda driver=driver: story.faults.was_taken(point) or driver.ended, BATCH_TIMEOUT_S):
            break
        if story.faults.was_taken(point):
            return
    raise DriverFailed(f"nobody came to {point}: {driver.last_words()}")


def strike_abort(story: Story, point: str) -> None:
    """The batch cannot be committed, and who cleans up after it is killed."""
    story.faults.arm("before-commit", "fail")
    strike(story, point, "kill")
    story.faults.disarm("before-commit")


def paused_at(story: Story, point: str) -> None:
    story.faults.arm(point, "pause")
    come_to(story, point)


def kill_coordinator(story: Story, point: str, after_s: float = 0.0) -> None:
    """The sink's coordinator dies while somebody stands at `point`, or so long after it went on."""
    story.go_on(1)
    coordinator = coordinator_of(story.cluster.bootstrap, story.sink_id)
    paused_at(story, point)
    if after_s:
        story.faults.let_go(point)
        time.sleep(after_s)
        story.cluster.kill(coordinator)
    else:
        story.cluster.kill(coordinator)
        story.faults.let_go(point)
    story.go_on(2)
    story.faults.disarm(point)
    story.in_sync()


def kill_coordinator_with_decision(story: Story, *, alone: bool) -> None:
    """The sink's coordinator dies with the decision in its log: in no other log, so that it is lost, or in all."""
    story.go_on(1)
    cluster = story.cluster
    coordinator = coordinator_of(cluster.bootstrap, story.sink_id)
    others = [node for node in cluster.nodes if node != coordinator]
    paused_at(story, "before-commit")
    wait_for_rest(cluster, STATE_TOPIC)
    before = log_sizes(cluster, STATE_TOPIC)
    for node in others if alone else ():
        cluster.pause(node)
    story.faults.let_go("before-commit")
    nodes = [coordinator] if alone else list(cluster.nodes)
    watch_until(story, lambda: all(log_sizes(cluster, STATE_TOPIC)[node] > before[node] for node in nodes))
    cluster.kill(coordinator)
    for node in others:
        cluster.resume(node)
    story.go_on(2)
    story.faults.disarm("before-commit")
    story.in_sync()


def kill_coordinator_at_marker(story: Story) -> None:
    """The sink's coordinator dies as soon as one log has the marker of the batch; others may not have theirs."""
    story.go_on(1)
    cluster = story.cluster
    coordinator = coordinator_of(cluster.bootstrap, story.sink_id)
    paused_at(story, "before-commit")
    wait_for_rest(cluster, TARGET)
    before = log_sizes(cluster, TARGET)
    story.faults.let_go("before-commit")
    watch_until(story, lambda: log_sizes(cluster, TARGET) != before)
    cluster.kill(coordinator)
    story.go_on(2)
    story.faults.disarm("before-commit")
    story.in_sync()


def watch_until(story: Story, condition: Callable[[], bool]) -> None:
    if not watch_for(condition, BATCH_TIMEOUT_S):
        raise DriverFailed(f"CommitBatch left no trace: {story.driver.last_words() if story.driver else ''}")


def kill_replica(story: Story) -> None:
    """A node that does not coordinate the sink dies at some moment of a batch, and comes back later."""
    story.go_on(1)
    coordinator = coordinator_of(story.cluster.bootstrap, story.sink_id)
    node = story.rng.choice([each for each in story.cluster.nodes if each != coordinator])
    time.sleep(story.rng.random())
    story.cluster.kill(node)
    story.go_on(2)
    story.in_sync()


def kill_worker(story: Story) -> None:
    """Any of Spark's Python processes, at any time."""
    driver = story.ensure_query()
    time.sleep(story.rng.random())
    with suppress(ProcessLookupError, IndexError):
        os.kill(story.rng.choice(driver.workers()), signal.SIGKILL)
    story.go_on(2)


def kill_driver(story: Story, point: str) -> None:
    """Spark itself dies while somebody stands at `point`, who goes on without it, beside the next driver."""
    paused_at(story, point)
    dead, story.driver = story.driver, None
    assert dead is not None
    dead.kill_java(leave_workers=True)
    story.faults.let_go(point)
    try:
        reshape(story)
        story.go_on(2)
    finally:
        dead.close()
    story.faults.disarm(point)


def wake_driver(story: Story, point: str) -> None:
    """Spark stands still at `point`, as in a long pause, until another driver did its work; then it goes on."""
    paused_at(story, point)
    late, story.driver = story.driver, None
    assert late is not None
    try:
        late.stand_still()
        reshape(story)
        story.go_on(2)
        story.faults.let_go(point)
        late.wake()
        wait_until("the end of the driver that woke", lambda: late.ended, BATCH_TIMEOUT_S)
    finally:
        late.close()
    story.go_on(2)
    story.faults.disarm(point)


def kill_driver_at_file(story: Story, log: str) -> None:
    """Spark dies as soon as it wrote `offsets/n`, before batch n, or `commits/n`, behind it."""
    driver = story.ensure_query()
    look = story.last_planned if log == "offsets" else story.last_batch
    before = look()
    if not watch_for(lambda: look() > before or driver.ended, BATCH_TIMEOUT_S):
        raise DriverFailed(f"no batch was planned: {driver.last_words()}")
    driver.kill_java()
    story.go_on(2)


def reshape(story: Story) -> None:
    """The pipeline goes on with other tasks: fewer or more than workers, and with some that have no rows."""
    changes = {"tasks": story.rng.choice([AS_SHUFFLED, 1, 2, 5, 8]), "by_key": story.rng.random() < 0.5}
    changes["limit"] = story.rng.choice([3, 24, 60])
    if story.driver is None or not story.driver.is_alive:
        changes |= {"cores": story.rng.choice([1, 2, 3]), "shuffle_partitions": story.rng.choice([1, 2, 4])}
    story.change(**changes)


def other_tasks(story: Story) -> None:
    reshape(story)
    story.go_on(3)


def two_drivers(story: Story) -> None:
    """The same checkpoint by two drivers at once, until one of them gives up."""
    first = story.ensure_query()
    story.feed()
    second = story.new_driver()
    try:
        with suppress(DriverFailed):
            story.start_on(second)
        deadline = time.monotonic() + BATCH_TIMEOUT_S
        while not first.ended and not second.ended:
            if time.monotonic() > deadline:
                raise DriverFailed("two drivers share a checkpoint, and neither gives up")
            story.feed()
            watch_for(lambda: first.ended or second.ended, 0.2)
    finally:
        second.close()
    story.go_on(2)


def speculate(story: Story) -> None:
    """A task stands still, Spark runs a copy of it, and the batch is committed without the first; then it goes on."""
    before = story.run
    executors = {f"spark.executorEnv.{name}": value for name, value in story.faults.environ.items()}
    home = story.home / "standalone"
    home.mkdir(exist_ok=True)
    with standalone_cluster(home, workers=0) as cluster:
        # Spark runs a copy only on another host than the task, and in no local mode.
        for host in ("127.0.0.1", "127.0.0.2"):
            cluster.start_worker(cores=2, host=host)
        settings = {**dict(before.settings), **executors, **SPECULATION}
        story.change(master=cluster.master, settings=tuple(settings.items()), tasks=4, by_key=False, limit=24)
        story.go_on(1)
        for point in ("before-flush", "after-flush"):
            paused_at(story, point)
            story.go_on(1)
            story.faults.let_go(point)
            story.go_on(1)
            story.faults.disarm(point)
        story.close_driver()
    story.change(master=before.master, settings=before.settings)


def restore_older_checkpoint(story: Story) -> None:
    """A checkpoint from a backup is behind what was written: the query stops with a sentence and changes nothing."""
    story.go_on(1)
    story.stop_query()
    backup = story.home / "backup"
    story.copy_checkpoint(backup)
    story.go_on(3)
    story.stop_query()
    driver = story.ensure_driver()
    story.start_on(driver, checkpoint=backup)
    wait_until("the end of the query with the older checkpoint", lambda: driver.ended, BATCH_TIMEOUT_S)
    if "the checkpoint is older than the log" not in (driver.error or ""):
        raise AssertionError(f"an older checkpoint was not refused in words: {driver.error}")
    shutil.rmtree(backup)
    story.go_on(2)


def abandon(story: Story) -> None:
    """A driver and all its workers die with a batch undecided and nobody comes back: readers are free in time."""
    before = story.run
    story.change(transaction_timeout_ms=TRANSACTION_TIMEOUT_MS)
    story.go_on(1)
    paused_at(story, "before-commit")
    assert story.driver is not None
    story.driver.kill_java()
    killed_at = time.monotonic()
    limit_s = TRANSACTION_TIMEOUT_MS / 1000 + FREE_AFTER_S

    def is_free() -> bool:
        bootstrap = story.cluster.bootstrap
        return end_offsets(bootstrap, TARGET, committed=True) == end_offsets(bootstrap, TARGET, committed=False)

    if is_free():
        raise AssertionError("the driver was killed with a batch undecided, but no reader waits for it")
    while not is_free():
        if time.monotonic() - killed_at > limit_s:
            raise AssertionError(f"readers still wait {limit_s:g} s after the driver was given up")
        time.sleep(0.1)
    story.say(f"  readers were free {time.monotonic() - killed_at:.1f} s after the driver was given up")
    story.faults.disarm("before-commit")
    story.change(transaction_timeout_ms=before.transaction_timeout_ms)
    story.go_on(2)


def named_steps() -> dict[str, Step]:
    """Every step by the name that reports show."""
    steps: dict[str, Step] = {}
    for point in TASK_POINTS:
        steps[f"task killed {point}"] = lambda story, point=point: strike(story, point, "kill")
    for point in ("after-produce", "after-flush"):
        steps[f"task fails {point}"] = lambda story, point=point: strike(story, point, "fail")
    for point in COMMIT_POINTS:
        steps[f"committing process killed {point}"] = lambda story, point=point: strike(story, point, "kill")
        steps[f"coordinator killed {point}"] = lambda story, point=point: kill_coordinator(story, point)
        steps[f"driver killed {point}"] = lambda story, point=point: kill_driver(story, point)
    for point in ABORT_POINTS:
        steps[f"aborting process killed {point}"] = lambda story, point=point: strike_abort(story, point)
    for after_ms in (1, 3, 8, 20):
        name = f"coordinator killed {after_ms} ms after CommitBatch left"
        steps[name] = lambda story, after_ms=after_ms: kill_coordinator(story, "before-commit", after_ms / 1000)
    steps["coordinator killed with the decision in its log only"] = lambda story: kill_coordinator_with_decision(
        story, alone=True
    )
    steps["coordinator killed with the decision in all logs"] = lambda story: kill_coordinator_with_decision(
        story, alone=False
    )
    steps["coordinator killed at the first marker"] = kill_coordinator_at_marker
    for point in ("before-flush", "before-commit", "after-commit"):
        steps[f"driver wakes beside another {point}"] = lambda story, point=point: wake_driver(story, point)
    for point in ("before-flush", "before-return"):
        steps[f"driver killed {point} of a task"] = lambda story, point=point: kill_driver(story, point)
        steps[f"coordinator killed {point} of a task"] = lambda story, point=point: kill_coordinator(story, point)
    for log in ("offsets", "commits"):
        steps[f"driver killed behind its file in {log}"] = lambda story, log=log: kill_driver_at_file(story, log)
    return steps | {
        "replica killed": kill_replica,
        "worker killed": kill_worker,
        "other tasks": other_tasks,
        "two drivers": two_drivers,
        "speculation": speculate,
        "older checkpoint": restore_older_checkpoint,
        "abandoned driver": abandon,
    }


RANDOM_STEPS = ("replica killed", "worker killed", "other tasks")

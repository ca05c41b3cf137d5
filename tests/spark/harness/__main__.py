"""`python -m tests.spark.harness`: a pipeline from log to log while everything around it is killed.

Three nodes, a Spark driver and its workers, all as processes. Every named step happens once, in an order from a seed,
with random kills between them, until there were enough batches. The verdict is a stock consumer's.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from bench.spark_jars import spark_jars_setting
from tests.spark.harness.driver_process import DriverFailed
from tests.spark.harness.looking import transactional_ids
from tests.spark.harness.steps import RANDOM_STEPS, Step, named_steps
from tests.spark.harness.story import Run, Story

from strandline.testing import embedded

HOME = Path(__file__).resolve().parents[3] / ".cache" / "spark-chaos"
PROPERTIES = {
    "transaction.state.log.num.partitions": "4",
    "offsets.topic.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
IDS_PER_WORKER_MAX = 8
"""As many tasks as one worker runs in one batch at most."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.harness", description=__doc__)
    parser.add_argument("--batches", type=int, default=200, help="how many at least (200)")
    parser.add_argument("--seed", type=int, default=None, help="the order of steps and all that is random")
    parser.add_argument("--only", action="append", help="steps whose name contains this; may be repeated")
    parser.add_argument("--nodes", type=int, default=3, help="of the cluster (3)")
    parser.add_argument("--source-format", default="strandline", help="`kafka` reads with Spark's own connector")
    parser.add_argument("--calm-batches", type=int, default=0, help="batches without faults, to count ids behind them")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    seed = random.randrange(10**6) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    rng = random.Random(seed)
    steps = named_steps()
    names = [name for name in steps if not options.only or any(part in name for part in options.only)]
    HOME.mkdir(parents=True, exist_ok=True)
    home = Path(tempfile.mkdtemp(prefix="run-", dir=HOME))
    with embedded(nodes=options.nodes, properties=PROPERTIES) as cluster:
        story = Story(cluster, home, rng, say=lambda line: print(line, flush=True))
        if options.source_format == "kafka":
            story.run = Run(source_format="kafka", settings=(("spark.jars", spark_jars_setting()),))
        try:
            play(story, {name: steps[name] for name in names}, options.batches)
            findings = calm(story, options.calm_batches) if options.calm_batches else []
            story.finish()
            findings += story.verdict()
        except (AssertionError, DriverFailed) as reason:
            findings = [str(reason)]
        finally:
            story.close()
        told(story, seed, findings)
        for node_id, text in cluster.stderr_texts().items() if findings else ():
            (home / f"node-{node_id}.log").write_text(text)
    if findings:
        print(f"kept: {home.relative_to(HOME.parent.parent)}")
        return 1
    shutil.rmtree(home)
    return 0


def play(story: Story, steps: Mapping[str, Step], batches: int) -> None:
    """Every step once, then random ones until there were enough batches."""
    story.go_on(2)
    order = list(steps)
    story.rng.shuffle(order)
    while order or story.last_batch() + 1 < batches:
        name = (
            order.pop() if order else story.rng.choice([name for name in RANDOM_STEPS if name in steps] or list(steps))
        )
        started = time.monotonic()
        first = story.last_batch() + 1
        steps[name](story)
        story.done.append(name)
        story.say(f"batch {first:4} {name} ({time.monotonic() - started:.1f} s, then batch {story.last_batch()})")


def calm(story: Story, batches: int) -> list[str]:
    """Batches without faults leave no more ids than the workers of one session need."""
    story.in_sync()
    story.change(limit=8, tasks=4)
    story.go_on(2)
    before = transactional_ids(story.cluster.bootstrap, story.sink_id)
    story.go_on(batches)
    grown = transactional_ids(story.cluster.bootstrap, story.sink_id) - before
    story.say(f"{batches} batches without faults added {len(grown)} ids to {len(before)}")
    limit = story.run.cores * IDS_PER_WORKER_MAX
    return [f"{len(grown)} ids came with {batches} batches, more than {limit}"] if len(grown) > limit else []


def told(story: Story, seed: int, findings: list[str]) -> None:
    print(
        f"{story.last_batch() + 1} batches, {story.fed:,} numbers, {len(story.done)} steps, {story.drivers_started} "
        f"drivers, {story.queries_failed} queries that failed; seed {seed}"
    )
    print("\n".join(f"FOUND: {finding}" for finding in findings) or "Every number came out exactly once.", flush=True)


if __name__ == "__main__":
    sys.exit(main())

"""`python -m demo [SEED] [--no-spark]`: start a node, tell the story, leave nothing behind."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time

from demo.acts import Story
from demo.stage import Stage
from strandline.testing import embedded


def main() -> int:
    arguments = argparse.ArgumentParser(prog="python -m demo", description="A distributed log, told as a story.")
    arguments.add_argument("seed", type=int, nargs="?", default=random.SystemRandom().randrange(10**6))
    arguments.add_argument("--no-spark", action="store_true", help="leave out the act that runs on Spark")
    asked = arguments.parse_args()
    seed = asked.seed
    stage = Stage()
    with tempfile.TemporaryDirectory(prefix="strandline-demo-") as data:
        begin = time.monotonic()
        with embedded(data=data) as node:
            stage.title("Strandline", f"a distributed log that speaks the Kafka protocol (seed {seed})")
            ready_s = time.monotonic() - begin
            stage.say(f"One node: process {node.pid} on {node.bootstrap}, ready {ready_s:.2f} s after it was started.")
            return 0 if Story(node, stage, seed).play(spark=not asked.no_spark) else 1


if __name__ == "__main__":
    sys.exit(main())

"""`python -m demo [SEED] [--no-spark]`: start a node, tell the story, leave nothing behind but a picture."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from demo.acts import Story
from demo.stage import Stage
from strandline.testing import embedded


def main() -> int:
    arguments = argparse.ArgumentParser(prog="python -m demo", description="A distributed log, told as a story.")
    arguments.add_argument("seed", type=int, nargs="?", default=random.SystemRandom().randrange(10**6))
    arguments.add_argument("--no-spark", action="store_true", help="leave out everything that runs on Spark")
    arguments.add_argument("--picture", type=Path, default=Path("build", "demo", "story.png"), metavar="FILE")
    asked = arguments.parse_args()
    stage = Stage()
    with tempfile.TemporaryDirectory(prefix="strandline-demo-", ignore_cleanup_errors=True) as home:
        begin = time.monotonic()
        with embedded(data=Path(home, "node")) as node:
            stage.title("Strandline", f"a distributed log that speaks the Kafka protocol (seed {asked.seed})")
            ready_s = time.monotonic() - begin
            stage.say(f"One node: process {node.pid} on {node.bootstrap}, ready {ready_s:.2f} s after it was started.")
            story = Story(node, stage, asked.seed, Path(home), asked.picture)
            return 0 if story.play(spark=not asked.no_spark) else 1


if __name__ == "__main__":
    sys.exit(main())

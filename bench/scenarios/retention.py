"""What retention costs the loop of a node with 4,000 partitions, and how long it keeps others waiting."""

from __future__ import annotations

from itertools import count as count_up

from bench.client_process import ClientProcess
from bench.figures import Figure, Samples, at_most
from bench.stage import Stage

NAME = "retention"
SUMMARY = "retention over 4,000 partitions: loop time and the longest stall, with nothing and with all to do"
PARTITIONS = 4_000
LOOKS = ("nothing to do", "two segments of each")


def run(stage: Stage) -> list[Figure]:
    stage.put_shared_pair_away()
    partitions = stage.scaled(PARTITIONS, 200)
    samples = Samples()
    directories = count_up()
    for _ in range(min(stage.rounds, 3)):
        directory = stage.root / f"{NAME}-{next(directories)}"
        with ClientProcess("retention", directory=str(directory), partitions=partitions) as client:
            client.wait_ready()
            client.tell()
            result = client.result()
        for look, measured in result["measured"].items():
            stage.say(f"  {look:22} " + "  ".join(f"{key} {figure:.3f}" for key, figure in measured.items()))
            samples.add(look, measured)
    over = f"{partitions:,} partitions"
    figures = []
    for look in LOOKS:
        figures += [
            Figure(
                f"loop time, {look}",
                "s",
                samples.of(look, "loop_s"),
                target=at_most(1.0),
                note=f"{over}, CPU of the loop",
            ),
            Figure(
                f"longest stall, {look}",
                "ms",
                samples.of(look, "stall_ms"),
                samples.of("idle", "stall_ms"),
                "idle",
                at_most(50.0),
                "a timer of 5 ms, by how much it was late",
            ),
        ]
    return figures

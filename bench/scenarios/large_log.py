"""What an append and a seek cost on a log of 50 GB and on one of 1 GB."""

from __future__ import annotations

import shutil

from bench.client_process import ClientProcess
from bench.figures import Figure, Samples, ratio_at_most
from bench.stage import Stage

NAME = "large-log"
SUMMARY = "append to and seek in a log of 50 GB beside one of 1 GB (sparse files; takes 13 GB of disk for a while)"
SEGMENT_BYTES = 1 << 30
SEGMENTS = 50
ON_DISK_SHARE = 0.27
"""A page of four is written, and the indexes."""


def run(stage: Stage) -> list[Figure]:
    stage.put_shared_pair_away()
    segment_bytes = stage.scaled(SEGMENT_BYTES, 1 << 24)
    segments = stage.scaled(SEGMENTS, 10)
    needed = int(segments * segment_bytes * ON_DISK_SHARE)
    free = shutil.disk_usage(stage.root).free
    if free < 2 * needed:
        stage.remarks.append(
            f"{NAME}: not run; it needs {2 * needed / 1e9:.0f} GB of disk, and {free / 1e9:.0f} are free"
        )
        return []
    samples = Samples()
    with ClientProcess(
        "large_log",
        directory=str(stage.root / NAME),
        small=1,
        large=segments,
        segment_bytes=segment_bytes,
        seeks=stage.scaled(20_000, 2_000),
        appends=stage.scaled(5_000, 500),
        rounds=stage.warm_rounds + stage.rounds,
    ) as client:
        client.wait_ready()
        client.tell()
        rounds = client.result()["rounds"]
    for number, measured in enumerate(rounds):
        stage.say("  " + "  ".join(f"{key} {figure:.2f} us" for key, figure in measured.items()))
        if number >= stage.warm_rounds:
            samples.add(NAME, measured)
    size = f"{segments * segment_bytes / (1 << 30):g} GiB"
    beside = f"{segment_bytes / (1 << 30):g} GiB"
    return [
        Figure(
            f"{what}, log of {size}",
            "us",
            samples.of(NAME, f"{what}_large"),
            samples.of(NAME, f"{what}_small"),
            beside,
            ratio_at_most(1.1),
            "the engine alone, pages in the cache",
        )
        for what in ("append", "seek")
    ]

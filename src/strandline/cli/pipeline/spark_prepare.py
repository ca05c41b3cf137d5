"""`strandline spark prepare`."""

from __future__ import annotations

import os
import sys
import time

from strandline.cli.common.options import AsJson
from strandline.cli.common.output import Output
from strandline.cli.pipeline.failures import plain_failures


def prepare(as_json: AsJson = False) -> None:
    """Let Spark start in about half the time, here and for this Python environment: once, and again for a new Java.

    A small stream is run, and Java keeps the classes that it loaded for it, some 170 MB, in the environment's
    directory. Nothing else changes: without it, or with one that does not fit, Spark starts as ever.
    """
    output = Output(as_json=as_json)
    with plain_failures():
        from strandline.spark import class_archive

        output.talk("running a small stream, so that Java can keep Spark's classes: up to a minute, once")
        began = time.monotonic()
        archive = class_archive.make(os.environ, [sys.executable, "-m", "strandline.cli.pipeline.spark_training"])
    took_s, size = time.monotonic() - began, archive.stat().st_size
    if as_json:
        output.json_line({"archive": str(archive), "bytes": size, "seconds": round(took_s, 1)})
    else:
        output.talk(f"Spark starts in about half the time from now on: {archive} ({size / 1e6:.0f} MB, {took_s:.0f} s)")

"""A program that writes numbered records through a sink, from where its target says: tests kill it.

Arguments: module:Class below strandline.connect.sinks, settings as JSON, and how many records there are.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module

from tests.connect.sink_records import PLACE, batch, opened, record


def main(place: str, properties: str, count: str) -> None:
    module, _, name = place.partition(":")
    sink = opened(getattr(import_module(f"strandline.connect.sinks.{module}"), name), json.loads(properties))
    at = sink.resume([PLACE]).get(PLACE, 0)
    for first in range(at, int(count), 20):
        sink.write(batch(*(record(each, str(each), "k") for each in range(first, min(first + 20, int(count))))))
        sink.flush()
    sink.close()


if __name__ == "__main__":
    main(*sys.argv[1:])

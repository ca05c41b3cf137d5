"""Spark source, sink and sessions: data is transformed on Spark, through PySpark.

`sessions` starts Spark (Java, Python, logs) on this machine or on a cluster, and `shipping` sends our code to the
cluster's executors. `source` and `sink` are the format "strandline" of `spark.read` and `df.write`; Spark finds them
through the package `pyspark_strandline`. `error_translation` turns Spark's failures into a sentence, `terminal` shows
the progress of a query. A broker never imports this package: it needs `pip install 'strandline[spark]'`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from strandline.spark.error_translation import SparkFailed, await_end, explain_failure, plainly
    from strandline.spark.positions import settle, watch_positions
    from strandline.spark.registry.functions import from_registry, to_registry
    from strandline.spark.sessions import session
    from strandline.spark.shipping import ship
    from strandline.spark.sink.update_mode import write_updates
    from strandline.spark.terminal import follow

__all__ = [
    "SparkFailed",
    "await_end",
    "explain_failure",
    "follow",
    "from_registry",
    "plainly",
    "session",
    "settle",
    "ship",
    "to_registry",
    "watch_positions",
    "write_updates",
]

_HOMES = {
    "SparkFailed": "strandline.spark.error_translation",
    "await_end": "strandline.spark.error_translation",
    "explain_failure": "strandline.spark.error_translation",
    "follow": "strandline.spark.terminal",
    "from_registry": "strandline.spark.registry.functions",
    "plainly": "strandline.spark.error_translation",
    "session": "strandline.spark.sessions",
    "settle": "strandline.spark.positions",
    "ship": "strandline.spark.shipping",
    "to_registry": "strandline.spark.registry.functions",
    "watch_positions": "strandline.spark.positions",
    "write_updates": "strandline.spark.sink.update_mode",
}


def __getattr__(name: str) -> object:
    """Load what is asked for when it is asked for: Spark's workers import this package once per process."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)

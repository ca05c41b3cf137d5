"""Materialised views: the newest state of every key of a compacted topic, queried with SQL, now or as of a moment.

    with strandline.views.open("totals", bootstrap="localhost:9092") as view:
        view.query("select * from totals where total > 100").rows
        view.get("ada")
        view.query(as_of="2026-03-01T12:00:00Z").rows
        print(view.freshness.words, view.reach.words)

    frame = strandline.views.table(spark, "totals")

Served from Parquet snapshots plus the tail of the log; a snapshot is made from the log and can be made again. DuckDB
runs the queries: needs `pip install 'strandline[spark]'`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from strandline.views.as_of import AtOffsets, AtTime, Freshness, Reach
    from strandline.views.definition import ViewDefinition, define
    from strandline.views.failures import ViewFailed
    from strandline.views.spark_table import table
    from strandline.views.view import View
    from strandline.views.view import open_view as open
    from strandline.views.view_session import Answer
    from strandline.views.view_session import ViewSession as Desk

__all__ = [
    "Answer",
    "AtOffsets",
    "AtTime",
    "Desk",
    "Freshness",
    "Reach",
    "View",
    "ViewDefinition",
    "ViewFailed",
    "define",
    "open",
    "table",
]

_HOMES = {
    "Answer": "view_session:Answer",
    "AtOffsets": "as_of:AtOffsets",
    "AtTime": "as_of:AtTime",
    "Desk": "view_session:ViewSession",
    "Freshness": "as_of:Freshness",
    "Reach": "as_of:Reach",
    "View": "view:View",
    "ViewDefinition": "definition:ViewDefinition",
    "ViewFailed": "failures:ViewFailed",
    "define": "definition:define",
    "open": "view:open_view",
    "table": "spark_table:table",
}


def __getattr__(name: str) -> object:
    """Load what is asked for when it is asked for: pipelines share words with views, and need no DuckDB for them."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = home.partition(":")
    return getattr(import_module(f"strandline.views.{module}"), attribute)

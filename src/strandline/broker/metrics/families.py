"""What `/metrics` and `/public_metrics` show: the tables of all families, and the page made of them.

A family says what it is called, what it means and how to read it from the node; `docs/observability.md` is printed from
the same tables. Nothing here runs until a page is requested.
"""

from __future__ import annotations

from collections.abc import Iterator

from strandline.broker.metrics import client_metrics as metrics_telemetry
from strandline.broker.metrics import groups as metrics_groups
from strandline.broker.metrics import node as metrics_node
from strandline.broker.metrics import objects as metrics_objects
from strandline.broker.metrics import quotas as metrics_quotas
from strandline.broker.metrics import replication as metrics_replication
from strandline.broker.metrics import requests as metrics_requests
from strandline.broker.metrics import shares as metrics_shares
from strandline.broker.metrics import storage as metrics_storage
from strandline.broker.metrics import tiering as metrics_tiering
from strandline.broker.metrics import topics as metrics_topics
from strandline.broker.metrics import transactions as metrics_transactions
from strandline.broker.metrics.scrape import ObservedBroker, Scrape
from strandline.observability.exposition import Histogram, Metric, render

Family = Metric[Scrape] | Histogram[Scrape]

SECTIONS: dict[str, tuple[Family, ...]] = {
    "Requests and connections": metrics_requests.FAMILIES,
    "Quotas": metrics_quotas.FAMILIES,
    "Topics and partitions": metrics_topics.FAMILIES,
    "The files of a log": metrics_storage.FAMILIES,
    "Tiered topics": metrics_tiering.FAMILIES,
    "Object topics": metrics_objects.FAMILIES,
    "Replicas": metrics_replication.FAMILIES,
    "Groups": metrics_groups.FAMILIES,
    "Share groups": metrics_shares.FAMILIES,
    "Transactions": metrics_transactions.FAMILIES,
    "The node": metrics_node.FAMILIES,
    "What clients push": metrics_telemetry.FAMILIES,
}


def families(*, public: bool) -> list[Family]:
    return [family for section in SECTIONS.values() for family in section if family.public or not public]


def page(node: ObservedBroker, *, public: bool) -> Iterator[str]:
    """The text, piece by piece; the caller takes as many as fit into its turn."""
    yield from render(families(public=public), Scrape(node, deep=not public))
    if node.late.telemetry.loaded is not None and not public:
        yield from node.late.telemetry.loaded.store.pieces(node.runtime.now_ms())

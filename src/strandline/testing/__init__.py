"""What users' tests get: pytest fixtures, a workload recorder, and a checker of what clients saw.

`pytest_plugin` offers brokers and clusters of `local/` as fixtures. `workload` runs stock clients against a broker and
records every call and its outcome as a `history`. `checker` (pure) reads a history and names each anomaly with its
evidence: lost, duplicated, reordered or vanished records. The parts load on first use, so that starting a broker does
not import a Kafka client library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from strandline.local.embedded import embedded
    from strandline.local.embedded_broker import EmbeddedBroker
    from strandline.local.embedded_cluster import EmbeddedCluster
    from strandline.local.node_process import BrokerFailed
    from strandline.local.virtual_clock import VirtualClock, VirtualClockBroker
    from strandline.testing.checker import Report, check
    from strandline.testing.history import Op

__all__ = [
    "BrokerFailed",
    "EmbeddedBroker",
    "EmbeddedCluster",
    "Op",
    "Report",
    "VirtualClock",
    "VirtualClockBroker",
    "check",
    "embedded",
]

_HOMES = {
    "BrokerFailed": "strandline.local.node_process",
    "EmbeddedBroker": "strandline.local.embedded_broker",
    "EmbeddedCluster": "strandline.local.embedded_cluster",
    "Op": "strandline.testing.history",
    "Report": "strandline.testing.checker",
    "VirtualClock": "strandline.local.virtual_clock",
    "VirtualClockBroker": "strandline.local.virtual_clock",
    "check": "strandline.testing.checker",
    "embedded": "strandline.local.embedded",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)

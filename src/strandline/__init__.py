"""Strandline: a distributed log that you `pip install`, for every Kafka client.

with strandline.embedded() as log: ...      a real broker for a test or a notebook, on a free port; nodes=3: a cluster
async with strandline.Log(path) as log: ... the storage engine alone, on your own event loop
strandline.queue.worker(...)                a worker of a share group: a handler for each task
strandline.parallel(...)                    a consumer with many handlers at a time, each key in order
strandline.outbox.add(session, ...)         an event that is sent if the transaction of the session commits
strandline.inbox.once(session, message)     whether the effect of a message is to run now, once
strandline.effects.allowed(message)         false if the group ran the effects before it was rewound
"""

from typing import TYPE_CHECKING, Any

from strandline import _twins
from strandline._version import __version__

if TYPE_CHECKING:
    from strandline import effects, inbox, outbox, queue
    from strandline.local.embedded import embedded
    from strandline.local.embedded_broker import EmbeddedBroker
    from strandline.local.embedded_cluster import EmbeddedCluster
    from strandline.log.library import Log
    from strandline.queue.parallel_consumer import parallel

__all__ = [
    "EmbeddedBroker",
    "EmbeddedCluster",
    "Log",
    "__version__",
    "effects",
    "embedded",
    "inbox",
    "outbox",
    "parallel",
    "queue",
]

_twins.choose()

_LAZY = {
    "Log": "strandline.log.library",
    "EmbeddedBroker": "strandline.local.embedded_broker",
    "EmbeddedCluster": "strandline.local.embedded_cluster",
    "embedded": "strandline.local.embedded",
    "parallel": "strandline.queue.parallel_consumer",
}
_PACKAGES = ("effects", "inbox", "outbox", "queue")


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for: a command line that prints help must not load an engine."""
    from importlib import import_module

    if name in _PACKAGES:
        return import_module(f"strandline.{name}")
    if name not in _LAZY:
        raise AttributeError(f"module 'strandline' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)

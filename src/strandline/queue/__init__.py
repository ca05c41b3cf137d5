"""Background jobs on a log: workers in a share group, and consumers that work on many keys at once.

    from strandline import queue

    def send_mail(task):
        ...                                  # returns: done. Raises: delivered again. raise queue.Reject: never again.

    queue.worker("localhost:9092", "mailers", "mails", send_mail, concurrency=20).run()

`worker` needs share groups (Kafka 4.2 or Strandline). `strandline.parallel` works with every group: in the order of
keys, with many records at a time. docs/queues.md tells which one fits.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from strandline.queue.queue_worker import QueueWorker, worker
    from strandline.queue.tasks import QueueTask, Reject, Retry

__all__ = ["QueueTask", "QueueWorker", "Reject", "Retry", "worker"]

_LAZY = {
    "QueueTask": "strandline.queue.tasks",
    "QueueWorker": "strandline.queue.queue_worker",
    "Reject": "strandline.queue.tasks",
    "Retry": "strandline.queue.tasks",
    "worker": "strandline.queue.queue_worker",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for."""
    if name not in _LAZY:
        raise AttributeError(f"module 'strandline.queue' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)

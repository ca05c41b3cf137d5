"""What the upkeep of logs works with: the parts that the cleaner, the scrubber and retention share."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from strandline.broker.environment import Environment
    from strandline.broker.lazy import Lazy
    from strandline.broker.maintenance.storage_worker import StorageWorkers
    from strandline.broker.replicas.checkpoint_writer import CheckpointWriter
    from strandline.broker.replicas.replicas import Replicas
    from strandline.log.flusher import Flusher
    from strandline.log.log_directory import LogDirectory


class LogStorage(NamedTuple):
    """The logs of a broker and what writes their files."""

    environment: Environment
    directory: LogDirectory
    flusher: Flusher
    replicas: Replicas
    checkpoints: CheckpointWriter
    workers: Lazy[StorageWorkers]

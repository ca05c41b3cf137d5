"""How a node stops: leaderships first, then what clients wait for, then every log to the disk, and a mark last.

The mark, `.kafka_cleanshutdown`, says that no log need be recovered. So it is written only when every log was flushed
to its end. Logs are flushed side by side in threads: one after the other, thousands of them would keep a supervisor
waiting until it kills the process, and the next start would have to recover them all.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from strandline.errors import StrandlineError
from strandline.runtime.time_slicing import gradually

if TYPE_CHECKING:
    from collections import deque

    from strandline.broker.audit.node_audit import NodeAudit
    from strandline.broker.kraft.lifecycle import Lifecycle
    from strandline.broker.kraft.membership import Membership
    from strandline.broker.kraft.metadata_quorum import MetadataQuorum
    from strandline.broker.late_parts import LateParts
    from strandline.broker.metrics.watchdog import Watchdog
    from strandline.broker.network.socket_server import SocketServer
    from strandline.broker.replicas.checkpoint_writer import CheckpointWriter
    from strandline.broker.replicas.replicas import Replicas
    from strandline.handlers.support.context import PendingProduce
    from strandline.log.flusher import Flusher
    from strandline.log.log_directory import LogDirectory
    from strandline.partition.reencoding import Reencoder
    from strandline.runtime.process import GcPauses
    from strandline.runtime.runtime import Runtime

log = logging.getLogger("strandline.node")

DRAIN_S_MAX: Final = 10.0
LOOK_S: Final = 0.005
FLUSHES_AT_SHUTDOWN_MAX: Final = 32
"""Flushes side by side at the end. No client is slowed by them any more, and a disk joins syncs that come together."""


class StoppableBroker(Protocol):
    """The parts that a stop goes through."""

    runtime: Runtime
    membership: Membership
    lifecycle: Lifecycle
    metadata: MetadataQuorum
    client_server: SocketServer
    controller_server: SocketServer
    late: LateParts
    directory: LogDirectory
    replicas: Replicas
    checkpoints: CheckpointWriter
    flusher: Flusher
    reencoder: Reencoder
    produce_waits: deque[PendingProduce]
    watchdog: Watchdog
    gc_pauses: GcPauses
    audit: NodeAudit | None

    def stop_ticking(self) -> None: ...


class Shutdown:
    def __init__(self, node: StoppableBroker, on_stopped: Callable[[], object]) -> None:
        self._node = node
        self._on_stopped = on_stopped
        self._is_clean = True

    def begin(self) -> None:
        """Leave the cluster first; the rest follows."""
        self._node.membership.leave(self._end)

    def _end(self) -> None:
        node = self._node
        node.client_server.close()
        node.replicas.recovery.close()
        if node.audit is None:
            self._close_parts()
        else:
            node.audit.stop(self._close_parts)

    def _close_parts(self) -> None:
        node = self._node
        node.late.close()
        self._drain(node.runtime.monotonic() + DRAIN_S_MAX)

    def _drain(self, deadline: float) -> None:
        node = self._node
        if node.runtime.monotonic() < deadline and not self._is_drained():
            node.runtime.call_later(LOOK_S, self._drain, deadline)
            return
        node.controller_server.close()
        for server in (node.client_server, node.controller_server):
            server.hang_up()
        node.stop_ticking()
        node.membership.close()
        # A metadata log whose flush failed is read again at the next start, batch by batch.
        self._is_clean = node.metadata.log.failure is None
        self._try(node.metadata.close, "the metadata log")
        node.flusher.flushes_max = FLUSHES_AT_SHUTDOWN_MAX
        gradually(node.runtime, self._write_out(), lambda _: self._await_flushes())

    def _is_drained(self) -> bool:
        node = self._node
        return (
            node.flusher.is_idle
            and node.checkpoints.is_idle
            and node.reencoder.is_idle
            and all(wait.done for wait in node.produce_waits)
            and not node.client_server.is_congested
        )

    def _write_out(self) -> Iterator[None]:
        """Write what only memory holds, one log for each step, then have every log flushed.

        Not both at once: while a file system syncs, it delays the creation of files.
        """
        replicas = list(self._node.replicas.all())
        for each in replicas:
            if each.log.failure is None:
                self._try(partial(each.log.write_out, keeps_notes=True), repr(each))
            yield
        for each in replicas:
            if each.log.failure is None:
                self._node.flusher.flush_soon(each.log)
            yield

    def _await_flushes(self) -> None:
        if self._node.flusher.is_idle and self._node.checkpoints.is_idle:
            self._close()
        else:
            self._node.runtime.call_later(LOOK_S, self._await_flushes)

    def _close(self) -> None:
        node = self._node
        for each in node.replicas.all():
            # A flush that failed has failed the log, and closing it does not try again.
            self._is_clean = self._is_clean and each.log.failure is None
            self._try(each.log.close, repr(each))
            self._is_clean = self._is_clean and each.log.flushed_offset == each.log.log_end_offset
        node.gc_pauses.stop()
        try:
            node.directory.write_checkpoints(node.replicas.logs(), node.replicas.offline)
        except OSError as error:
            log.warning("checkpoints could not be written, so the next start recovers: %s", error)
            self._is_clean = False
        is_whole = not node.replicas.offline and not node.replicas.recovery.is_pending
        node.directory.close(clean=self._is_clean and is_whole, broker_epoch=node.lifecycle.broker_epoch)
        log.info(
            "stopped; loop stalls above 20 ms: %d, the longest %.0f ms, of our own doing at least %.0f ms",
            node.watchdog.stalls,
            node.watchdog.longest_s * 1000,
            node.watchdog.computed_s * 1000,
        )
        self._on_stopped()

    def _try(self, close: Callable[[], object], what: str) -> None:
        try:
            close()
        except (StrandlineError, OSError) as error:
            log.error("%s was not closed cleanly: %s", what, error)
            self._is_clean = False

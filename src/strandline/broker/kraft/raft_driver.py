"""Drives the Raft core: gives it its inputs, performs what it wants in order, and wakes it in time.

What concerns disk, clock and network is done here; what concerns the metadata (commits, snapshots, who leads) goes to
`on_effect`. An effect that cannot be performed because the disk failed ends all: the log is failed, and from then on
nothing is sent, answered or counted. A disk that is merely full holds the member up: what it has to remember waits for
room, everything behind it waits as well, and requests are refused meanwhile.
"""

from __future__ import annotations

import errno
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar

from strandline.broker.kraft.quorum_peers import Connect, QuorumPeers
from strandline.codec.message import Message
from strandline.errors import DiskFailed, StrandlineError
from strandline.log.flusher import Flusher
from strandline.log.partition_log import PartitionLog
from strandline.observability.log_lines import fields
from strandline.quorum.raft.effects import Effect, Flush, Save, SendRequest
from strandline.quorum.raft.raft import Raft
from strandline.quorum.raft.state_files import QuorumState
from strandline.quorum.raft.voters import Peer
from strandline.runtime.runtime import Runtime, TimerHandle

log = logging.getLogger("strandline.metadata")

QUORUM_STATE: Final = "quorum-state"
FOREVER: Final = float("inf")
ROOM_LOOK_S: Final = 1.0
"""How often a full disk is tried again."""

T = TypeVar("T")


def read_state(metadata_log: PartitionLog) -> QuorumState:
    """What this member must not forget, as it was last saved."""
    disk, path = metadata_log.disk, metadata_log.directory / QUORUM_STATE
    return QuorumState.parse(disk.read_whole(path).decode()) if disk.exists(path) else QuorumState()


class RaftDriver:
    def __init__(
        self,
        raft: Raft,
        metadata_log: PartitionLog,
        runtime: Runtime,
        flusher: Flusher,
        connect: Connect | None,
        on_effect: Callable[[Effect], object],
    ) -> None:
        self.raft = raft
        self._log = metadata_log
        self._runtime = runtime
        self._flusher = flusher
        self._on_effect = on_effect
        self._peers = QuorumPeers(connect, self._on_answer)
        self.on_answered: Callable[[Message, Message], object] = lambda request, response: None
        """Called with every answer of a peer, after the core."""
        self.is_eager = False
        """While a quorum of one starts: flushes are waited for."""
        self._effects: deque[Effect] = deque()
        self._is_performing = False
        self._full: str | None = None
        """Why the next effect waits, if it waits for room on the disk."""
        self._is_closed = False
        self._timer: TimerHandle | None = None
        self._timer_at = FOREVER
        metadata_log.on_flushed = self._on_flushed

    @property
    def is_running(self) -> bool:
        return not self._is_closed and self._log.failure is None

    @property
    def is_held_up(self) -> bool:
        """Whether nothing is heard or said: the disk failed, or has no room."""
        return self._full is not None or not self.is_running

    def check_running(self) -> None:
        if self._log.failure is not None:
            raise self._log.refusal()

    # Inputs

    def step(self, step: Callable[..., T], *args: Any) -> T:
        """Give the core an input and perform what it wants; what it answers. DiskFailed if the disk refuses."""
        self._check_room()
        try:
            result = step(*args, self._runtime.monotonic())
        except OSError as error:
            self.fail(error)
            raise self._log.refusal() from error
        finally:
            self.perform()
        self._check_room()
        return result

    def _check_room(self) -> None:
        self.check_running()
        if self._full is not None:
            raise DiskFailed(self._full)

    def step_quietly(self, step: Callable[..., object], *args: Any) -> None:
        """The same for an input without a waiting caller: a full disk may have room again when the core tries again."""
        if self.is_running and self._full is None:
            try:
                self.step(step, *args)
            except StrandlineError as error:
                log.warning("the metadata quorum met an error: %s", error, extra=fields(reason=str(error)))

    def _on_time(self) -> None:
        self._timer, self._timer_at = None, FOREVER
        self.step_quietly(self.raft.on_time)

    def _on_flushed(self) -> None:
        self.step_quietly(self.raft.on_flushed)

    def _on_answer(self, to: Peer, request: Message, response: Message | None) -> None:
        self.step_quietly(self.raft.on_answer, to, request, response)
        if response is not None:
            self.on_answered(request, response)

    # Effects

    def perform(self) -> None:
        """Perform what the core wants, in order; what comes up meanwhile goes behind."""
        self._effects.extend(self.raft.take_effects())
        if self._is_performing:
            return
        self._is_performing = True
        try:
            while self._effects and self.is_running and self._full is None:
                effect = self._effects.popleft()
                # Of two states to remember right behind each other only the second would ever be read.
                if not (isinstance(effect, Save) and self._effects and isinstance(self._effects[0], Save)):
                    self._perform_one(effect)
                self._effects.extend(self.raft.take_effects())
        except OSError as error:
            # A vote that is not on disk must not leave.
            self.fail(error)
        finally:
            self._is_performing = False
        self._set_timer()

    def _perform_one(self, effect: Effect) -> None:
        if isinstance(effect, Save):
            self._save(effect)
        elif isinstance(effect, SendRequest):
            self._peers.send(effect)
        elif isinstance(effect, Flush):
            self._flush()
        else:
            self._on_effect(effect)

    def _save(self, effect: Save) -> None:
        path = self._log.directory / QUORUM_STATE
        try:
            self._log.disk.write_whole(path, effect.state.text().encode(), sync=True)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            self._full = f"{path}: {error.strerror}"
            log.warning("%s; disk full, quorum member paused", self._full, extra=fields(reason=self._full))
            self._effects.appendleft(effect)
            self._runtime.call_later(ROOM_LOOK_S, self._try_again)

    def _try_again(self) -> None:
        self._full = None
        if self.is_running:
            self.perform()
            # What came meanwhile was not listened to.
            self._on_flushed()
            self.step_quietly(self.raft.on_time)

    def _flush(self) -> None:
        if self.is_eager:
            self._log.flush_now()
        elif self._log.unflushed:
            self._flusher.flush_soon(self._log)
        else:
            self._runtime.call_soon(self._on_flushed)

    def _set_timer(self) -> None:
        """Wake up in time. A timer that comes early finds nothing to do and is set again."""
        deadline = self.raft.deadline if self.is_running else FOREVER
        if deadline >= self._timer_at or deadline == FOREVER:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._runtime.call_later(max(0.0, deadline - self._runtime.monotonic()), self._on_time)

    # Ending

    def fail(self, error: OSError) -> None:
        self._effects.clear()
        self._log.fail(DiskFailed(f"{self._log.directory}: {error}"))

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._peers.close()

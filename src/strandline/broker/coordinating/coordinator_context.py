"""One shard at work: its events, its timers, the requests that it has not answered, and its `PendingAppends`.

When an append fails, the shard knows more than the log does: all pending requests are refused, and the driver drops the
shard.

Groups and transactions are run alike. Effects that only one of them has go to the driver's `on_effect`, which is called
like a reply: when everything that the shard asked to append before is committed.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from strandline.broker.coordinating.pending_appends import InternalPartition, OnCommitted, PendingAppends
from strandline.codec.columns import Columns, decode_batch
from strandline.coordinators.groups.events import (
    Append,
    AppendTransactional,
    AppendWhole,
    CancelTimer,
    Loaded,
    Reply,
    StartTimer,
    Tell,
    TimerFired,
    TransactionEnded,
)
from strandline.coordinators.groups.pending_request import Waiting
from strandline.coordinators.groups.shard_terms import Token
from strandline.errors import BatchTooLarge, DiskFailed, ErrorCode, NotLeader, StrandlineError
from strandline.runtime.runtime import Runtime, TimerHandle

log = logging.getLogger("strandline.groups")

LOAD_RECORDS_PER_TURN_MAX = 500
"""Records replayed before the loop may serve others; a shard can hold millions."""

COMMITTED_LOOK_S = 0.02
"""How soon it is looked again whether all that was loaded is committed; with followers that fetch, it is at once."""


class Shard(Protocol):
    """A state machine on one partition of an internal topic."""

    def load(self, records: Iterable[Any]) -> None:
        """Take what the log says, in its order, before the first event."""

    def step(self, event: Any, now_ms: int) -> list[Any]:
        """Take an event; the effects, to be performed in order."""


ShardT = TypeVar("ShardT", bound=Shard)


class CoordinatorContext(Generic[ShardT]):
    """One shard with everything it waits for: appends under way, replies held for them, timers, parked requests."""

    def __init__(
        self,
        name: str,
        runtime: Runtime,
        shard: ShardT,
        records_of: Callable[[Columns], Iterable[Any]],
        partition: InternalPartition,
        *,
        tell: Callable[[Tell], object],
        on_effect: Callable[[Any], object],
        on_closed: Callable[[], object],
    ) -> None:
        """`records_of` gives what a batch of the log says; effects that only this kind of shard has go to
        `on_effect`, as soon as everything that was to be appended before them is committed."""
        self.name = name
        self.shard = shard
        self.is_loading = True
        self._runtime = runtime
        self._tell = tell
        self._on_effect = _Deferred(on_effect)
        self._partition = partition
        self.appends = PendingAppends(runtime, partition, self._fail)
        self._on_closed = on_closed
        self._closed = False
        self._when_loaded: list[Callable[[bool], object]] = []
        self._batches = partition.read_all()
        self._records_of = records_of
        self._timers: dict[Any, _Timer] = {}
        self._parked: dict[Token, None] = {}
        """Requests that the shard has not answered yet."""
        self._events: deque[Any] = deque()
        self._is_stepping = False
        self._ended_while_loading: list[TransactionEnded] = []

    # ---- events in

    def load_more(self) -> None:
        if self._closed:
            return
        loaded = 0
        try:
            for batch in self._batches:
                columns = decode_batch(batch)
                self.shard.load(self._records_of(columns))
                loaded += columns.count
                if loaded >= LOAD_RECORDS_PER_TURN_MAX:
                    self._runtime.call_soon(self.load_more)
                    return
        except (StrandlineError, OSError) as error:
            log.error("%s cannot be loaded and is not served: %s", self.name, error)
            self.close(ErrorCode.NOT_COORDINATOR)
            return
        if not self._partition.is_committed():
            # A leader that has just begun may hold what its predecessor never committed. Sent to a client, and then
            # taken back by the next election, a committed offset would go back.
            self._runtime.call_later(COMMITTED_LOOK_S, self.load_more)
            return
        self.is_loading = False
        self.step(Loaded())
        # Whether the load came past these markers is not known. To hear of one twice does no harm.
        ended_while_loading, self._ended_while_loading = self._ended_while_loading, []
        for ended in ended_while_loading:
            self.step(ended)
        self._tell_loaded(True)

    def when_loaded(self, then: Callable[[bool], object]) -> None:
        """Call `then` once the load has ended, with False if nothing came of it; at once if it has."""
        if self.is_loading and not self._closed:
            self._when_loaded.append(then)
        else:
            then(not self._closed)

    def _tell_loaded(self, is_loaded: bool) -> None:
        waiting, self._when_loaded = self._when_loaded, []
        for then in waiting:
            then(is_loaded)

    def submit(self, event: _Submitted) -> None:
        self._parked[event.token] = None
        self.step(event)

    def step(self, event: Any) -> None:
        # An answer can make its connection hand us the next request at once. Its turn comes when the effects of this
        # event are all done, for the shard has counted on that.
        self._events.append(event)
        if not self._is_stepping:
            self._step_all()

    def _step_all(self) -> None:
        self._is_stepping = True
        try:
            while self._events and not self._closed:
                self._perform_all(self.shard.step(self._events.popleft(), self._runtime.now_ms()))
        finally:
            self._is_stepping = False

    def _perform_all(self, effects: list[Any]) -> None:
        for effect in effects:
            if self._closed:
                # What an answer led to has closed this shard. Requests that wait were refused.
                return
            self._perform(effect)

    def _perform(self, effect: Any) -> None:
        match effect:
            case Reply(token=token, response=response):
                self._reply(token, response)
            case Append(records=records):
                self.appends.append(records)
            case AppendTransactional() | AppendWhole():
                self.appends.append_apart(effect)
            case StartTimer(key=key, delay_ms=delay_ms):
                self._start_timer(key, delay_ms / 1000)
            case CancelTimer(key=key):
                self._cancel_timer(key)
            case Tell():
                self._tell(effect)
            case _:
                self.appends.hold(self._on_effect, effect)

    # ---- the short way

    @property
    def may_act(self) -> bool:
        """Whether something may be done to the shard outside of `step`, not in the middle of an event's effects."""
        return not (self._is_stepping or self.is_loading)

    def restart_session(self, key: Any, timeout_ms: int) -> None:
        self._start_timer(key, timeout_ms / 1000)

    def _reply(self, token: Token, response: Any) -> None:
        del self._parked[token]
        self.appends.hold(waiting_of(token), response)

    def append_marker(
        self, ended: TransactionEnded, append: Callable[[OnCommitted], object], on_committed: OnCommitted
    ) -> None:
        """Have `append` write a marker into the partition, and the shard know of it; raises what `append` raises.

        Records that the shard has asked for go first. Behind the marker they would begin a transaction that no marker
        ends. And what the shard tells of the end waits, like any answer, until the marker is committed.
        """
        self.appends.flush_all()
        if self._closed or self.is_loading:
            append(on_committed)
            self._ended_while_loading.append(ended)
            return
        # A client that learns at once that the transaction has ended may begin the next one here: that comes after.
        was_stepping, self._is_stepping = self._is_stepping, True
        try:
            self.appends.append_now(lambda committed: append(partial(_call_both, committed, on_committed)))
            self._events.appendleft(ended)
        finally:
            self._is_stepping = was_stepping
            if not was_stepping:
                self._step_all()

    def _fail(self, error: Exception) -> None:
        if not self._closed:
            log.warning("%s: an append failed, it is loaded again: %s", self.name, error)
            self.close(refusal_for(error))

    def close(self, code: ErrorCode, *, keep_held: bool = False) -> None:
        """Stop serving and refuse pending requests; with `keep_held` answers still leave when their append commits."""
        if self._closed:
            return
        self._closed = True
        self._on_closed()
        for key in list(self._timers):
            self._cancel_timer(key)
        parked, self._parked = list(self._parked), {}
        self.appends.close(None if keep_held else code)
        for token in parked:
            waiting_of(token).refuse(code)
        self._tell_loaded(False)

    # ---- timers

    def _start_timer(self, key: Any, delay_s: float) -> None:
        due = self._runtime.monotonic() + delay_s
        timer = self._timers.get(key)
        if timer is not None and timer.wakes <= due:
            # A session starts again with every heartbeat. The handle that runs will see, when it wakes, that it is
            # not time yet; that is cheaper than a new handle each time.
            timer.due = due
            return
        self._cancel_timer(key)
        self._timers[key] = _Timer(due, self._runtime.call_later(delay_s, self._wake, key))

    def _cancel_timer(self, key: Any) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.handle.cancel()

    def _wake(self, key: Any) -> None:
        timer = self._timers.pop(key)
        remaining_s = timer.due - timer.wakes
        if remaining_s > 0:
            self._start_timer(key, max(timer.due - self._runtime.monotonic(), 0.0))
        else:
            self.step(TimerFired(key))


class _Submitted(Protocol):
    @property
    def token(self) -> Token: ...


class _Deferred:
    """An effect in the place of a waiting request: performed when its turn comes, forgotten if the shard is let go."""

    __slots__ = ("_perform",)

    def __init__(self, perform: Callable[[Any], object]) -> None:
        self._perform = perform

    def answer(self, effect: Any) -> None:
        self._perform(effect)

    def refuse(self, code: ErrorCode) -> None:
        """What the log did not keep never was."""


class _Timer:
    __slots__ = ("due", "handle", "wakes")

    def __init__(self, due: float, handle: TimerHandle) -> None:
        self.due = due
        self.wakes = due
        self.handle = handle


def refusal_for(error: Exception) -> ErrorCode:
    """What a client is told whose request was lost with a failed append; each makes it try again, but the last."""
    if isinstance(error, NotLeader | DiskFailed | OSError):
        return ErrorCode.NOT_COORDINATOR
    if isinstance(error, BatchTooLarge):
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.COORDINATOR_NOT_AVAILABLE


def waiting_of(token: Token) -> Waiting:
    waiting: Waiting = token  # type: ignore[assignment]  # The shard does not look into tokens; we made them.
    return waiting


def _call_both(first: OnCommitted, then: OnCommitted, error: Exception | None) -> None:
    first(error)
    then(error)

"""One shard at work: its appends under way, the replies held for them, its timers, and who is parked.

Records that the shard asks for within one turn of the loop go into one batch, and a reply leaves when every batch
before it is committed. When an append fails, the shard knows more than the log does: all who wait are refused, and
the driver lets go of the shard.

Groups and transactions are run alike. Effects that only one of them has go to the driver's `on_effect`, which is called
like a reply: when everything that the shard asked to append before is committed.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from strandline.codec.columns import Columns, decode_batch, encode_batch, encode_record
from strandline.codec.columns import Record as BatchRecord
from strandline.coordinators.groups.events import (
    Append,
    AppendTransactional,
    AppendWhole,
    CancelTimer,
    CoordinatorRecord,
    Loaded,
    Reply,
    StartTimer,
    Tell,
    TimerFired,
    Token,
    TransactionEnded,
)
from strandline.coordinators.groups.pending_request import Waiting
from strandline.errors import BatchTooLarge, DiskFailed, ErrorCode, NotLeader, StrandlineError
from strandline.handlers.support.services import EncodedWait
from strandline.runtime.runtime import Runtime, TimerHandle

log = logging.getLogger("strandline.groups")

BATCH_BYTES_MAX = 512 * 1024
"""Payload after which a batch is closed. A single record may be larger; the partition then judges it."""

RECORDS_PER_TURN_MAX = 2_000
"""Records of one shard that are written in one turn of the loop; each costs it some microseconds."""

LOAD_RECORDS_PER_TURN_MAX = 500
"""Records replayed before the loop may serve others; a shard can hold millions."""

COMMITTED_LOOK_S = 0.02
"""How soon it is looked again whether all that was loaded is committed; with followers that fetch, it is at once."""


OnCommitted = Callable[[Exception | None], None]


class InternalPartition(Protocol):
    """What a partition that this node leads offers to its coordinator."""

    def append_internal(self, batch: bytes, on_committed: OnCommitted, *, guard: Any = None) -> None:
        """Append one batch and call back when it is below the high watermark, or will never be.

        A transactional one may need the `guard` of a verification.
        """

    def read_all(self) -> Iterator[bytes]:
        """Every batch from the log start to the end."""

    def is_committed(self) -> bool:
        """Whether everything in the log is below the high watermark."""


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
        self._on_closed = on_closed
        self._closed = False
        self._when_loaded: list[Callable[[bool], object]] = []
        self._batches = partition.read_all()
        self._records_of = records_of
        self._timers: dict[Any, _Timer] = {}
        self._parked: dict[Token, None] = {}
        """Requests that the shard has not answered yet."""
        self._held: deque[tuple[int, Waiting | EncodedWait, Any]] = deque()
        """Answers that wait until the append with this number is committed."""
        self._unwritten: list[CoordinatorRecord] = []
        """Asked for in this turn of the loop, under the present number."""
        self._writing: deque[tuple[int, list[CoordinatorRecord] | AppendTransactional | AppendWhole]] = deque()
        """By number: asked for in earlier turns, and too much for one turn to write; or in a batch of its own."""
        self._append_number = 0
        self._committed_number = 0
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
                self._begin_append()
                self._unwritten.extend(records)
            case AppendTransactional() | AppendWhole():
                self._write_apart(effect)
            case StartTimer(key=key, delay_ms=delay_ms):
                self._start_timer(key, delay_ms / 1000)
            case CancelTimer(key=key):
                self._cancel_timer(key)
            case Tell():
                self._tell(effect)
            case _:
                self._hold(self._on_effect, effect)

    def _begin_append(self) -> None:
        """Begin an append, with a number of its own, unless this turn has one that takes further records."""
        if not self._unwritten:
            self._append_number += 1
            if not self._writing:
                # Else the next share of what is being written is due, and this comes behind.
                self._runtime.call_soon(self.flush)

    def _write_apart(self, effect: AppendTransactional | AppendWhole) -> None:
        """In a batch that holds nothing else."""
        self._seal()
        self._begin_append()
        self._writing.append((self._append_number, effect))

    # ---- the short way

    @property
    def may_act(self) -> bool:
        """Whether something may be done to the shard outside of `step`, not in the middle of an event's effects."""
        return not (self._is_stepping or self.is_loading)

    def restart_session(self, key: Any, timeout_ms: int) -> None:
        self._start_timer(key, timeout_ms / 1000)

    def append_plain(self, record: CoordinatorRecord, waiting: EncodedWait, response: bytes) -> None:
        """As the effects `Append` and `Reply` of one event: write the record, and answer when it is committed."""
        self._begin_append()
        self._unwritten.append(record)
        self._held.append((self._append_number, waiting, response))

    # ---- appends and the replies that wait for them

    def _reply(self, token: Token, response: Any) -> None:
        del self._parked[token]
        self._hold(waiting_of(token), response)

    def _hold(self, waiting: Waiting | _Deferred, response: Any) -> None:
        """Answer when all that was asked for before is committed."""
        if self._append_number == self._committed_number:
            waiting.answer(response)
        else:
            self._held.append((self._append_number, waiting, response))

    def flush(self) -> None:
        """Append what the shard asked for since the last turn of the loop."""
        if self._closed:
            return
        self._seal()
        written = 0
        while self._writing and written < RECORDS_PER_TURN_MAX and not self._closed:
            number, asked = self._writing.popleft()
            if isinstance(asked, list):
                self._append_share(number, asked)
                break
            if isinstance(asked, AppendWhole):
                self._append_batch(asked.records, partial(self._on_committed, number))
            else:
                self._append_transactional(number, asked)
            written += len(asked.records)
            # A client that was answered at once may have sent more, which saw that this is not over.
            self._seal()
        if self._writing:
            self._runtime.call_soon(self.flush)

    def _append_share(self, number: int, records: list[CoordinatorRecord]) -> None:
        count = 1 if len(records) == 1 else _count_of_share(records)
        on_committed: OnCommitted = partial(self._on_committed, number)
        if count < len(records):
            # A deleted group may leave ten thousand tombstones: others are served before the rest is written.
            self._writing.appendleft((number, records[count:]))
            on_committed = self._on_part_committed
        self._append_batch(records[:count], on_committed)

    def _append_batch(self, records: Sequence[CoordinatorRecord], on_committed: OnCommitted) -> None:
        try:
            self._partition.append_internal(_batch_of(records, self._runtime.now_ms()), on_committed)
        except (StrandlineError, OSError) as error:
            self._fail(error)

    def _seal(self) -> None:
        """What was asked for is complete under its number: what comes next, comes behind it."""
        if self._unwritten:
            self._writing.append((self._append_number, self._unwritten))
            self._unwritten = []

    def flush_all(self) -> None:
        """Append all of it now, because no later turn will."""
        while (self._unwritten or self._writing) and not self._closed:
            self.flush()

    def _append_transactional(self, number: int, effect: AppendTransactional) -> None:
        now_ms = self._runtime.now_ms()
        left = list(effect.records)
        while left and not self._closed:
            # One batch, unless it would be too large. The marker makes one of them in any case.
            count = _count_of_share(left)
            share, left = left[:count], left[count:]
            batch = encode_batch(
                [BatchRecord(timestamp_ms=now_ms, key=key, value=value) for key, value in share],
                producer_id=effect.producer_id,
                producer_epoch=effect.producer_epoch,
                transactional=True,
            )
            on_committed: OnCommitted = self._on_part_committed if left else partial(self._on_committed, number)
            try:
                self._partition.append_internal(batch, on_committed, guard=effect.verified)
            except (StrandlineError, OSError) as error:
                self._fail(error)

    def append_marker(
        self, ended: TransactionEnded, append: Callable[[OnCommitted], object], on_committed: OnCommitted
    ) -> None:
        """Have `append` write a marker into the partition, and the shard know of it; raises what `append` raises.

        Records that the shard has asked for go first. Behind the marker they would begin a transaction that no marker
        ends. And what the shard tells of the end waits, like any answer, until the marker is committed.
        """
        self.flush_all()
        if self._closed or self.is_loading:
            append(on_committed)
            self._ended_while_loading.append(ended)
            return
        # A client that learns at once that the transaction has ended may begin the next one here: that comes after.
        was_stepping, self._is_stepping = self._is_stepping, True
        self._append_number += 1
        try:
            append(partial(self._on_marker_committed, self._append_number, on_committed))
            self._events.appendleft(ended)
        except BaseException:
            self._append_number -= 1
            raise
        finally:
            self._is_stepping = was_stepping
            if not was_stepping:
                self._step_all()

    def _on_marker_committed(self, number: int, on_committed: OnCommitted, error: Exception | None) -> None:
        self._on_committed(number, error)
        on_committed(error)

    def _on_part_committed(self, error: Exception | None) -> None:
        if error is not None:
            self._fail(error)

    def _on_committed(self, number: int, error: Exception | None) -> None:
        if error is not None:
            self._fail(error)
            return
        self._committed_number = max(self._committed_number, number)
        while self._held and self._held[0][0] <= self._committed_number:
            _, waiting, response = self._held.popleft()
            waiting.answer(response)

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
        if not keep_held:
            held, self._held = self._held, deque()
            for _, waiting, _ in held:
                waiting.refuse(code)
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


def _count_of_share(records: list[CoordinatorRecord]) -> int:
    """How many of the records go into the next batch."""
    size = 0
    for count, record in enumerate(records[:RECORDS_PER_TURN_MAX]):
        size += record.size_bytes
        if count and size > BATCH_BYTES_MAX:
            return count
    return min(len(records), RECORDS_PER_TURN_MAX)


def _batch_of(records: Sequence[CoordinatorRecord], now_ms: int) -> bytes:
    if len(records) == 1:
        key, value = records[0]
        return encode_record(value, key, (), now_ms)
    return encode_batch([BatchRecord(timestamp_ms=now_ms, key=key, value=value) for key, value in records])

"""A worker of a share group: fetches as many tasks as it has room for, keeps their locks, acknowledges each.

One thread has the consumer. Handlers run beside it (`handler_pool`), so locks are renewed while they work. A task whose
handler ended is accepted, released for another attempt, or rejected. When the worker stops, it finishes what runs,
releases what it has not begun, and leaves the group.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from queue import Empty
from types import FrameType
from typing import Any, Final

from strandline.client.group_settings import set_group_settings
from strandline.client.security import PLAINTEXT, ClientSecurity
from strandline.client.shares.share_consumer import ShareConsumer
from strandline.client.shares.share_session import SharedRecord
from strandline.client.shares.shared_records import ACCEPT, REJECT, RELEASE
from strandline.queue.background_work import BackgroundWork
from strandline.queue.handler_pool import HandlerPool, failure_of
from strandline.queue.tasks import Handler, QueueTask, Reject, Retry

log = logging.getLogger("strandline.queue")

CONCURRENCY_MAX: Final = 1000
"""Handlers of one worker that run at a time."""
GRACE_S: Final = 30.0
TIMEOUT_S: Final = 1800.0

_IDLE_S: Final = 0.5
"""The longest wait of a fetch while nothing is held."""
_BUSY_S: Final = 0.05
"""The same while handlers run, because what they finish is acknowledged after it."""
_RENEWED_AT: Final = 1 / 3
"""The part of a lock after which it is renewed."""


@dataclass
class WorkerCounts:
    """What became of tasks."""

    accepted: int = 0
    released: int = 0
    rejected: int = 0
    lost: int = 0
    """Acknowledgements that the broker did not store: the lock had ended, or the leader moved. They come again."""


class _Held:
    """A task that the worker holds."""

    __slots__ = ("began_s", "future", "record", "renew_s")

    def __init__(self, record: SharedRecord, now: float) -> None:
        self.record = record
        self.renew_s = now + _RENEWED_AT * record.session.lock_s
        self.began_s = 0.0
        self.future: Future[object] | None = None


class QueueWorker(BackgroundWork[SharedRecord]):
    """One member of a share group that runs a handler for each task. `worker` makes one."""

    def __init__(
        self,
        consumer: ShareConsumer,
        handler: Handler,
        lanes: Sequence[Sequence[str]],
        *,
        concurrency: int,
        prefetch: int,
        retries: int | None,
        timeout_s: float,
        grace_s: float,
    ) -> None:
        super().__init__("queue worker")
        self.counts = WorkerCounts()
        self._consumer = consumer
        self._pool = HandlerPool(handler, concurrency)
        self._lanes = [tuple(topic for lane in lanes[:depth] for topic in lane) for depth in range(1, len(lanes) + 1)]
        """The topics of the first lane, of the first two, and so on."""
        consumer.on_lost = self._on_lost
        self._concurrency = concurrency
        self._prefetch = prefetch
        self._retries = retries
        self._timeout_s = timeout_s
        self._grace_s = grace_s
        self._waiting: dict[str, deque[_Held]] = {topic: deque() for topic in self._lanes[-1]}
        """Tasks that no handler has begun, by topic, those of urgent lanes first."""
        self._running: dict[SharedRecord, _Held] = {}
        self._abandoned: list[Future[object]] = []
        """Handlers that still run although their task was released."""

    @property
    def member_id(self) -> str:
        """Return the id of this member, as `strandline queue describe` shows it."""
        return self._consumer.member_id

    @property
    def running(self) -> int:
        """Return how many handlers run."""
        return len(self._running)

    # Starting and stopping

    def run(self) -> None:
        """Work until SIGTERM, SIGINT or `stop`. Raises ClientFailed if the group cannot be read."""
        former: dict[signal.Signals, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                former[number] = signal.signal(number, self._on_signal)
        try:
            self._work()
        finally:
            for number, before in former.items():
                signal.signal(number, before)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        log.info("worker stops: signal %s", number)
        self.stop(wait=False)

    # The loop

    def _work(self) -> None:
        try:
            while not self._is_stopping.is_set():
                self._settle()
                self._keep()
                room = self._concurrency + self._prefetch - self._held_count - len(self._abandoned)
                if room > 0:
                    self._take(self._next(room))
                else:
                    self._take(self._consumer.poll(records_max=0, wait_s=0))
                    self._wait_done()
            self._drain()
        finally:
            self._pool.close()
            self._consumer.close()

    @property
    def _held_count(self) -> int:
        return len(self._running) + sum(map(len, self._waiting.values()))

    def _next(self, room: int) -> list[SharedRecord]:
        """Fetch tasks: of the first lane if it has any, else of the first two, and so on; the last look waits."""
        records: list[SharedRecord] = []
        for topics in self._lanes:
            is_last = topics is self._lanes[-1]
            wait_s = (_BUSY_S if self._held_count else _IDLE_S) if is_last and not records else 0.0
            records += self._consumer.poll(records_max=room - len(records), wait_s=wait_s, topics=topics)
            if len(records) >= room:
                break
        return records

    def _take(self, records: Sequence[SharedRecord]) -> None:
        now = time.monotonic()
        for record in records:
            self._waiting[record.topic].append(_Held(record, now))
        self._begin()

    def _begin(self) -> None:
        """Run handlers for waiting tasks, those of urgent lanes first."""
        self._abandoned = [future for future in self._abandoned if not future.done()]
        free = self._concurrency - len(self._abandoned)
        for waiting in self._waiting.values():
            while waiting and len(self._running) < free:
                held = waiting.popleft()
                record = held.record
                if not record.session.holds(record):
                    # Its lock is gone, and another worker may have it.
                    continue
                held.began_s = time.monotonic()
                self._running[record] = held
                task = QueueTask(
                    record.topic,
                    record.partition,
                    record.offset,
                    record.key,
                    record.value,
                    record.headers,
                    record.timestamp_ms,
                    record.delivery_count,
                )
                held.future = self._pool.start(task, partial(self._on_done, record))

    def _on_done(self, record: SharedRecord, _: Future[object]) -> None:
        self._done.put(record)

    def _wait_done(self) -> None:
        """Wait until a handler ends, or a lock must be renewed."""
        now = time.monotonic()
        renew_s = min((held.renew_s for held in self._running.values()), default=now + _IDLE_S)
        try:
            record = self._done.get(timeout=min(max(0.0, renew_s - now), _IDLE_S))
        except Empty:
            return
        self._done.put(record)

    def _settle(self) -> None:
        """Acknowledge what handlers have ended, and run others in their place."""
        while True:
            try:
                record = self._done.get_nowait()
            except Empty:
                break
            held = self._running.pop(record, None) if record is not None else None
            if held is not None and held.future is not None:
                self._acknowledge(held.record, self._kind_of(held.record, held.future))
        self._begin()

    def _kind_of(self, record: SharedRecord, future: Future[object]) -> int:
        error = failure_of(future)
        if error is None:
            return ACCEPT
        if isinstance(error, Reject):
            log.info("%r rejected: %s", record, error)
            return REJECT
        is_last = self._retries is not None and record.delivery_count > self._retries
        log.warning(
            "%r failed%s: %s",
            record,
            ", and is rejected" if is_last else "",
            error,
            exc_info=None if isinstance(error, Retry) else error,
        )
        return REJECT if is_last else RELEASE

    def _acknowledge(self, record: SharedRecord, kind: int) -> None:
        if kind == ACCEPT:
            self.counts.accepted += 1
        elif kind == RELEASE:
            self.counts.released += 1
        else:
            self.counts.rejected += 1
        self._consumer.acknowledge(record, kind)

    def _on_lost(self, record: SharedRecord, reason: str) -> None:
        """Count a task whose outcome was not stored."""
        self.counts.lost += 1
        log.warning("%r may be delivered again: %s", record, reason)

    def _keep(self) -> None:
        """Renew locks that will end, and give up tasks whose handlers take too long."""
        now = time.monotonic()
        for held in [*self._running.values(), *(held for lane in self._waiting.values() for held in lane)]:
            if held.began_s and now - held.began_s > self._timeout_s:
                self._give_up(held)
            elif now >= held.renew_s:
                held.renew_s = now + _RENEWED_AT * held.record.session.lock_s
                self._consumer.renew(held.record)

    def _give_up(self, held: _Held) -> None:
        """Release a task whose handler still runs. What the handler returns does not count."""
        log.warning("%r released: its handler has run for %.0f s", held.record, time.monotonic() - held.began_s)
        del self._running[held.record]
        if held.future is not None:
            held.future.cancel()
            self._abandoned.append(held.future)
        self._acknowledge(held.record, RELEASE)

    def _drain(self) -> None:
        """Leave the group, release what was not begun, and wait for handlers; the slow ones lose their task."""
        self._consumer.leave()
        for lane in self._waiting.values():
            for held in lane:
                self._acknowledge(held.record, RELEASE)
            lane.clear()
        until = time.monotonic() + self._grace_s
        while self._running and time.monotonic() < until:
            self._settle()
            self._keep()
            for record in self._consumer.poll(records_max=0, wait_s=0):
                # A fetch that was under way brought it.
                self._acknowledge(record, RELEASE)
            if self._running:
                self._wait_done()
        for held in list(self._running.values()):
            self._give_up(held)


def worker(
    bootstrap: str,
    group: str,
    topics: str | Sequence[str] = (),
    handler: Handler | None = None,
    *,
    lanes: Sequence[str] = (),
    concurrency: int = 8,
    prefetch: int = 0,
    retries: int | None = None,
    timeout_s: float = TIMEOUT_S,
    grace_s: float = GRACE_S,
    group_settings: Mapping[str, str] | None = None,
    properties: Mapping[str, object] | None = None,
) -> QueueWorker:
    """Make a worker: `run()` works until a signal, `with worker(...)` until the block ends.

    handler         function or coroutine function of one task. Returning accepts it, `Reject` rejects it; every other
                    exception releases it for another attempt
    lanes           instead of `topics`: the first one is served first, the next only when there is room left
    concurrency     handlers that run at a time
    prefetch        tasks held beyond that, for short tasks; other workers cannot have them
    retries         attempts after the first before a failing task is rejected. Without it the limit of the group counts
    timeout_s       a handler that runs longer loses its task, which other workers then get
    grace_s         how long `stop` waits for handlers
    group_settings  settings of the group that are set first, as share.auto.offset.reset=earliest
    properties      of the connection: security.protocol, sasl.*, ssl.*
    """
    if handler is None:
        raise TypeError("worker() needs a handler: worker(bootstrap, group, topics, handler)")
    named = [topics] if isinstance(topics, str) else list(topics)
    if bool(named) == bool(lanes):
        raise ValueError("worker() needs either topics or lanes")
    if not 1 <= concurrency <= CONCURRENCY_MAX or prefetch < 0:
        raise ValueError(f"concurrency is 1 to {CONCURRENCY_MAX}, and prefetch not below 0")
    security = PLAINTEXT if properties is None else ClientSecurity.spoken(properties)
    if group_settings:
        set_group_settings(bootstrap, group, group_settings, security)
    return QueueWorker(
        ShareConsumer(bootstrap, group, list(lanes) or named, security=security),
        handler,
        [[topic] for topic in lanes] or [named],
        concurrency=concurrency,
        prefetch=prefetch,
        retries=retries,
        timeout_s=timeout_s,
        grace_s=grace_s,
    )

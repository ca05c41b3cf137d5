"""A consumer in a classic or consumer group that works on many records of a partition at a time, each key in order.

A plain consumer commits one offset, so it works on one record after the other, or loses some when it is killed. This
one commits the lowest unfinished offset, and in the metadata which ones above it are finished (`finished_offsets`).
One thread has the consumer, hands records to handlers and commits; handlers run beside it.

Handlers have the replay guard of the group. Once one has asked `effects.allowed`, each commit first marks the effects
below its offset as run. Until then the guard does nothing.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from heapq import heappop, heappush
from itertools import count
from queue import Empty
from typing import Any, Final, Literal

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from strandline.effects.failures import EffectsUnknown
from strandline.effects.guard import EffectsGuard, guarding, use_guard
from strandline.queue.background_work import BackgroundWork
from strandline.queue.handler_pool import HandlerPool, failure_of
from strandline.queue.key_queues import KeyQueues
from strandline.queue.partition_progress import NO_OFFSET, PartitionProgress
from strandline.queue.tasks import Handler, QueueTask, Reject, Retry

log = logging.getLogger("strandline.queue")

WAITING_PER_WORKER: Final = 20
"""Records that wait for each handler at most, before partitions are paused."""
GRACE_S: Final = 30.0
COMMIT_EVERY_S: Final = 1.0
BACKOFF_S: Final = 0.1
BACKOFF_S_MAX: Final = 30.0
_RECORDS_PER_POLL: Final = 500
_BUSY_S: Final = 0.01
_IDLE_S: Final = 0.05
_CALL_TIMEOUT_S: Final = 10.0
_REFUSED: Final = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED)

Place = tuple[str, int]
Order = Literal["key", "partition", "none"]
OnPoison = Callable[[QueueTask, BaseException], object]


class _Work:
    """A record that was taken, until its handler has done it."""

    __slots__ = ("future", "key", "place", "progress", "task")

    def __init__(self, place: Place, progress: PartitionProgress, key: Hashable | None, task: QueueTask) -> None:
        self.place = place
        self.progress = progress
        """The progress that it counts for. A partition that is assigned again begins another one."""
        self.key = key
        self.task = task
        self.future: Future[object] | None = None


class ParallelConsumer(BackgroundWork[_Work]):
    """A consumer whose handlers run in parallel. `parallel` makes one."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        topics: Sequence[str],
        handler: Handler,
        *,
        workers: int,
        order: Order,
        retries: int | None,
        on_poison: OnPoison | None,
        grace_s: float,
    ) -> None:
        super().__init__("parallel consumer")
        self._consumer = Consumer(
            {
                **settings,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "on_commit": self._on_committed,
            }
        )
        self._topics = list(topics)
        self._guard = EffectsGuard(settings, is_marked_by_worker=True)
        self._pool = HandlerPool(handler, workers, partial(use_guard, self._guard))
        self._workers = workers
        self._order = order
        self._retries = retries
        self._on_poison = on_poison
        self._grace_s = grace_s
        self._progress: dict[Place, PartitionProgress] = {}
        self._stashed: dict[Place, deque[Any]] = {}
        """Records that were read and cannot be taken yet, by paused partitions."""
        self._committed: dict[Place, tuple[int, str]] = {}
        self._queues: KeyQueues[_Work] = KeyQueues()
        self._running: set[_Work] = set()
        self._delayed: list[tuple[float, int, _Work]] = []
        """Work that is tried again at a time, as a heap. Its key waits for it."""
        self._numbers = count()
        self._is_paused = False
        self._commit_s = 0.0

    # Starting and stopping

    def run(self) -> None:
        """Work until `stop` is called on another thread."""
        self._consumer.subscribe(
            self._topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )
        try:
            # Coroutines inherit the context of this thread, which starts them.
            with guarding(self._guard):
                while not self._is_stopping.is_set():
                    self._step()
                self._finish(self._running)
            self._commit(is_last=True)
        finally:
            self._pool.close()
            self._progress.clear()
            self._consumer.close()

    # The loop

    def _step(self) -> None:
        self._settle()
        self._begin()
        self._throttle()
        is_busy = bool(self._running or self._delayed)
        for message in self._consumer.consume(_RECORDS_PER_POLL, _BUSY_S if is_busy else _IDLE_S):
            self._on_message(message)
        self._begin()
        if time.monotonic() >= self._commit_s:
            self._commit()

    def _on_message(self, message: Any) -> None:
        error = message.error()
        if error is not None:
            if error.fatal() or error.code() in _REFUSED:
                raise KafkaException(error)
            log.warning("parallel consumer: %s", error)
            return
        place = message.topic(), message.partition()
        stashed = self._stashed.get(place)
        if stashed is not None:
            stashed.append(message)
        elif place in self._progress and not self._take(place, message):
            self._stashed[place] = deque([message])
            self._consumer.pause([TopicPartition(*place)])

    def _take(self, place: Place, message: Any) -> bool:
        """Queue a record, unless it was finished before. Return False if there is no room for it."""
        progress, offset = self._progress[place], message.offset()
        if not progress.has_room(offset):
            return False
        if progress.take(offset):
            key = message.key()
            order: Hashable | None = None
            if self._order == "partition":
                order = place
            elif self._order == "key" and key is not None:
                order = (*place, key)
            task = QueueTask(
                *place, offset, key, message.value(), tuple(message.headers() or ()), message.timestamp()[1], 1
            )
            self._queues.add(order, _Work(place, progress, order, task))
        return True

    def _throttle(self) -> None:
        """Pause and resume partitions, so that a bounded number of records waits."""
        for place, stashed in list(self._stashed.items()):
            while stashed and self._take(place, stashed[0]):
                stashed.popleft()
            if not stashed:
                del self._stashed[place]
                if not self._is_paused:
                    self._consumer.resume([TopicPartition(*place)])
        limit = WAITING_PER_WORKER * self._workers
        if not self._is_paused and self._queues.count >= limit:
            self._is_paused = True
            self._consumer.pause([TopicPartition(*place) for place in self._progress])
        elif self._is_paused and self._queues.count <= limit // 2:
            self._is_paused = False
            self._consumer.resume([TopicPartition(*place) for place in self._progress if place not in self._stashed])

    def _begin(self) -> None:
        now = time.monotonic()
        while len(self._running) < self._workers:
            if self._delayed and self._delayed[0][0] <= now:
                work: _Work | None = heappop(self._delayed)[2]
            else:
                work = self._queues.begin()
            if work is None:
                return
            self._running.add(work)
            work.future = self._pool.start(work.task, partial(self._on_done, work))

    def _on_done(self, work: _Work, _: Future[object]) -> None:
        self._done.put(work)

    def _settle(self) -> None:
        while True:
            try:
                work = self._done.get_nowait()
            except Empty:
                return
            if work is not None and work in self._running:
                self._running.remove(work)
                self._on_ended(work)

    def _on_ended(self, work: _Work) -> None:
        assert work.future is not None
        if self._progress.get(work.place) is not work.progress:
            # The partition is another member's now, which works on the record again.
            self._queues.end(work.key)
            return
        error = failure_of(work.future)
        if error is not None and self._is_tried_again(work, error):
            attempt = work.task.attempt
            work.task = work.task._replace(attempt=attempt + 1)
            delay_s = min(BACKOFF_S_MAX, BACKOFF_S * 2 ** min(attempt - 1, 20))
            heappush(self._delayed, (time.monotonic() + delay_s, next(self._numbers), work))
            return
        if error is not None and self._on_poison is not None:
            self._on_poison(work.task, error)
        work.progress.finish(work.task.offset)
        self._queues.end(work.key)

    def _is_tried_again(self, work: _Work, error: BaseException) -> bool:
        is_last = isinstance(error, Reject) or (self._retries is not None and work.task.attempt > self._retries)
        log.warning(
            "%s failed%s: %s",
            work.task.name,
            ", and is given up" if is_last else "",
            error,
            exc_info=None if isinstance(error, Reject | Retry) else error,
        )
        return not is_last

    def _finish(self, running: set[_Work]) -> None:
        """Wait for handlers, at most for the grace time. What does not end is worked again by the next consumer."""
        until = time.monotonic() + self._grace_s
        awaited = set(running)
        while awaited & self._running and (left_s := until - time.monotonic()) > 0:
            try:
                self._done.put(self._done.get(timeout=min(left_s, _IDLE_S)))
            except Empty:
                continue
            self._settle()

    # Commits

    def _commit(self, places: Sequence[Place] | None = None, *, is_last: bool = False) -> None:
        self._commit_s = time.monotonic() + COMMIT_EVERY_S
        changed = []
        for place in self._progress if places is None else places:
            progress = self._progress[place]
            state = progress.committable, progress.metadata()
            if state[0] != NO_OFFSET and state != self._committed.get(place):
                self._committed[place] = state
                changed.append(TopicPartition(*place, *state))
        if not changed:
            return
        try:
            self._mark_effects(changed)
            if is_last:
                self._consumer.commit(offsets=changed, asynchronous=False)
            else:
                self._consumer.commit(offsets=changed)
        except (KafkaException, EffectsUnknown) as error:
            self._on_committed(error, changed)

    def _mark_effects(self, changed: Sequence[Any]) -> None:
        """Store that effects below these offsets ran, so that no commit is ahead of its mark."""
        if self._guard.is_used:
            for each in changed:
                self._guard.mark(each.topic, each.partition, each.offset)
            self._guard.flush()

    def _on_committed(self, error: object, partitions: Sequence[Any]) -> None:
        """Have the next commit repeat what was not stored: the coordinator moves, or the group rebalances."""
        if error is not None:
            log.warning("parallel consumer: cannot commit: %s", error)
            for each in partitions:
                self._committed.pop((each.topic, each.partition), None)

    # Assignment

    def _on_assign(self, consumer: Any, partitions: Sequence[Any]) -> None:
        found = consumer.committed(list(partitions), timeout=_CALL_TIMEOUT_S) if partitions else []
        if self._guard.is_used:
            self._guard.assigned((each.topic, each.partition) for each in partitions)
        for each in found:
            place = each.topic, each.partition
            if each.error is not None:
                raise KafkaException(each.error)
            if each.offset >= 0:
                self._progress[place] = PartitionProgress(each.offset, each.metadata or "")
                self._committed[place] = each.offset, each.metadata or ""
            else:
                self._progress[place] = PartitionProgress(NO_OFFSET)
                self._committed.pop(place, None)

    def _on_revoke(self, consumer: Any, partitions: Sequence[Any]) -> None:
        places = [place for each in partitions if (place := (each.topic, each.partition)) in self._progress]
        gone = set(places)
        self._drop(gone)
        self._finish({work for work in self._running if work.place in gone})
        # What failed meanwhile is not tried again here.
        self._drop(gone)
        self._commit(places, is_last=True)
        self._forget(gone)

    def _on_lost(self, consumer: Any, partitions: Sequence[Any]) -> None:
        gone = {(each.topic, each.partition) for each in partitions}
        self._drop(gone)
        self._forget(gone)

    def _drop(self, places: set[Place]) -> None:
        """Drop what was not begun in partitions that are another member's now."""
        self._queues.drop(lambda work: work.place in places)
        delayed, self._delayed = self._delayed, []
        for due_s, number, work in delayed:
            if work.place in places:
                self._queues.end(work.key)
            else:
                heappush(self._delayed, (due_s, number, work))

    def _forget(self, places: set[Place]) -> None:
        # librdkafka would keep their pause, and read nothing when they come back.
        self._consumer.resume([TopicPartition(*place) for place in places])
        for place in places:
            self._progress.pop(place, None)
            self._stashed.pop(place, None)
            self._committed.pop(place, None)


def parallel(
    settings: Mapping[str, Any],
    topics: str | Sequence[str],
    handler: Handler,
    *,
    workers: int = 16,
    order: Order = "key",
    retries: int | None = None,
    on_poison: OnPoison | None = None,
    grace_s: float = GRACE_S,
) -> ParallelConsumer:
    """Make a consumer that runs up to `workers` handlers at a time: `with parallel(...)`, or `.run()`.

    settings    of librdkafka's consumer, with bootstrap.servers and group.id. Offsets are committed by the consumer
    handler     function or coroutine function of one record; returning finishes it
    order       "key": records of a key one after the other, others meanwhile; records without a key in any order.
                "partition": one record of a partition at a time. "none": in any order
    retries     attempts after the first; without it a record is tried until it is done, and only its key waits
    on_poison   called with a record and its error when there are no attempts left, or the handler raised `Reject`;
                the record counts as finished then
    grace_s     how long `stop`, and a rebalance, wait for handlers that run
    """
    if workers < 1:
        raise ValueError("parallel() needs at least one worker")
    if order not in ("key", "partition", "none"):
        raise ValueError(f'order is "key", "partition" or "none", not {order!r}')
    return ParallelConsumer(
        settings,
        [topics] if isinstance(topics, str) else topics,
        handler,
        workers=workers,
        order=order,
        retries=retries,
        on_poison=on_poison,
        grace_s=grace_s,
    )

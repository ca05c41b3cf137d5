"""The replay guard: which effects a group has run.

A mark is the offset behind the highest one whose effects ran, and never goes back. `marks_topic` keeps marks on the
log. It is loaded by the first question, so a consumer that never asks pays nothing for its guard.
"""

from __future__ import annotations

import inspect
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from strandline.effects.failures import EffectsUnknown
from strandline.effects.messages import place_of

if TYPE_CHECKING:
    from strandline.effects.marks_topic import MarksTopic, StoredMark

FLUSH_EVERY_S: Final = 1.0
"""How old a mark that `done` noted becomes at most, if effects go on, before it is written."""
READ_EVERY_S: Final = 1.0

Place = tuple[str, int]


class EffectsGuard:
    """The marks of one group. Several threads may use it.

    `settings` are those of a client of librdkafka, with bootstrap.servers; `group` is group.id of them by default. With
    `is_marked_by_worker` the consumer that runs handlers marks what they have done, and `done` does nothing.
    """

    def __init__(
        self, settings: Mapping[str, Any], group: str | None = None, *, is_marked_by_worker: bool = False
    ) -> None:
        self.group = str(group or settings.get("group.id", ""))
        if not self.group:
            raise ValueError("the guard needs the name of the consumer group: group.id, or group=")
        self._settings = settings
        self._is_marked_by_worker = is_marked_by_worker
        self._lock = threading.Lock()
        self._marks: dict[Place, int] = {}
        """The next offset whose effects may run, by partitions that were looked up."""
        self._changed: set[Place] = set()
        self._ids: dict[str, str] = {}
        self._stored: Mapping[Place, StoredMark] = {}
        """What was read last, so that partitions that are assigned together are read together."""
        self._read_s = -math.inf
        self._topic: MarksTopic | None = None
        self._flushed_s = time.monotonic()

    @property
    def is_used(self) -> bool:
        """Return whether a mark was asked for or set. Until then a worker has nothing to mark or to flush."""
        return self._topic is not None

    def allowed(self, message: Any) -> bool:
        """Return whether the effects of a message may run: its offset is above the group's mark."""
        topic, partition, offset = place_of(message)
        with self._lock:
            mark = self._marks.get((topic, partition))
            if mark is None:
                mark = self._look_up((topic, partition))
            return offset >= mark

    def done(self, message: Any) -> None:
        """Note that the effects of a message, and of all before it in its partition, ran. It is written by `flush`."""
        if self._is_marked_by_worker:
            return
        topic, partition, offset = place_of(message)
        self.mark(topic, partition, offset + 1)
        if time.monotonic() - self._flushed_s > FLUSH_EVERY_S:
            self.flush()

    def mark(self, topic: str, partition: int, next_offset: int) -> None:
        """Note that all effects below an offset ran. A lower offset than before changes nothing."""
        place = topic, partition
        with self._lock:
            mark = self._marks.get(place)
            if mark is None:
                mark = self._look_up(place)
            if next_offset > mark:
                self._marks[place] = next_offset
                self._changed.add(place)

    def flush(self) -> None:
        """Write what changed. Call it before offsets are committed, so that no commit is ahead of its mark."""
        with self._lock:
            self._flushed_s = time.monotonic()
            changed, self._changed = self._changed, set()
            try:
                if changed:
                    self._marks_topic.write({each: (self._marks[each], self._topic_id(each[0])) for each in changed})
            except EffectsUnknown:
                self._changed |= changed
                raise

    def assigned(self, partitions: Iterable[Any]) -> None:
        """Read the marks of these partitions again before they are used: another member may have moved them.

        They are pairs, or what the callback of a client has: objects with `topic` and `partition`.
        """
        places = [each if isinstance(each, tuple) else (each.topic, each.partition) for each in partitions]
        self.flush()
        with self._lock:
            self._read_s = -math.inf
            self._ids.clear()
            for each in places:
                self._marks.pop(each, None)

    def reset(self, topic: str, partition: int) -> None:
        """Forget a mark, so that effects run again. For an operator who wants just that."""
        with self._lock:
            self._marks_topic.write({(topic, partition): None})
            self._changed.discard((topic, partition))
            self._marks[topic, partition] = 0

    def _look_up(self, place: Place) -> int:
        """Read the mark of a partition from the topic."""
        if time.monotonic() - self._read_s > READ_EVERY_S:
            self._stored = self._marks_topic.read()
            self._read_s = time.monotonic()
        next_offset, topic_id = self._stored.get(place, (0, ""))
        self._marks[place] = next_offset if topic_id == self._topic_id(place[0]) else 0
        return self._marks[place]

    def _topic_id(self, topic: str) -> str:
        if topic not in self._ids:
            self._ids[topic] = self._marks_topic.id_of_topic(topic)
        return self._ids[topic]

    @property
    def _marks_topic(self) -> MarksTopic:
        if self._topic is None:
            from strandline.effects.marks_topic import MarksTopic

            self._topic = MarksTopic(self._settings, self.group)
        return self._topic


_current: ContextVar[EffectsGuard | None] = ContextVar("strandline_effects", default=None)
_installed: EffectsGuard | None = None


def install(settings: Mapping[str, Any], group: str | None = None) -> EffectsGuard:
    """Make the guard of a group that `allowed` and `done` use in this process, where no worker set another one."""
    global _installed
    _installed = EffectsGuard(settings, group)
    return _installed


@contextmanager
def guarding(guard: EffectsGuard) -> Iterator[EffectsGuard]:
    """Have `allowed` and `done` use a guard within the block, in this thread or task."""
    token = _current.set(guard)
    try:
        yield guard
    finally:
        _current.reset(token)


def use_guard(guard: EffectsGuard) -> None:
    """Have `allowed` and `done` use a guard in this thread from now on. For threads of a worker."""
    _current.set(guard)


def guarded(guard: EffectsGuard, handler: Callable[..., Any]) -> Callable[..., Any]:
    """Return a handler, or coroutine function, within which `allowed` and `done` use a guard. For workers."""
    if inspect.iscoroutinefunction(handler):

        async def run_async(*given: Any) -> Any:
            with guarding(guard):
                return await handler(*given)

        return run_async

    def run(*given: Any) -> Any:
        with guarding(guard):
            return handler(*given)

    return run


def allowed(message: Any) -> bool:
    """Return whether the effects of a message may run. It is false if the group ran them before it was rewound."""
    return _guard().allowed(message)


def done(message: Any) -> None:
    """Note that the effects of a message ran. A worker that sets the guard does this itself."""
    _guard().done(message)


def _guard() -> EffectsGuard:
    guard = _current.get() or _installed
    if guard is None:
        raise RuntimeError(
            "no guard knows the group: call effects.install({'bootstrap.servers': ..., 'group.id': ...}) first"
        )
    return guard

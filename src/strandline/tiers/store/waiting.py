"""Waiting without a particular event loop: in asyncio's tasks, and in the simulator.

A `Signal` is a result that arrives later. It has the protocol of asyncio's futures, so a task can await it. `start`
runs a coroutine by the callbacks of a `Runtime` alone. It can wait for a `Signal` and for a future of asyncio.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextvars import Context
from typing import Any, Generic, Protocol, TypeVar

from strandline.runtime.runtime import Runtime

T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)


class LateAnswer(Exception):
    """A limit passed before the result was there."""


class Pending(Protocol[R_co]):
    """What `within` can wait for: a `Signal`, or a future of asyncio."""

    def __await__(self) -> Generator[Any, None, R_co]: ...

    def cancel(self) -> bool: ...


class Signal(Generic[T]):
    """A result that arrives later, for any number of waiters. The first `set`, `fail` or `cancel` counts."""

    _asyncio_future_blocking = False

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._result: T | None = None
        self._error: BaseException | None = None
        self._is_done = False
        self._callbacks: list[tuple[Callable[[Any], object], Context | None]] = []

    def set(self, result: T) -> None:
        if not self._is_done:
            self._result = result
            self._finish()

    def fail(self, error: BaseException) -> None:
        if not self._is_done:
            self._error = error
            self._finish()

    def cancel(self, msg: object = None) -> bool:
        """Let the waiters fail with CancelledError. Return whether the result had not arrived."""
        if self._is_done:
            return False
        self.fail(asyncio.CancelledError())
        return True

    def done(self) -> bool:
        return self._is_done

    def result(self) -> T:
        assert self._is_done
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]

    def exception(self) -> BaseException | None:
        assert self._is_done
        if self.cancelled():
            self.result()
        return self._error

    def cancelled(self) -> bool:
        return isinstance(self._error, asyncio.CancelledError)

    def __await__(self) -> Generator[Any, None, T]:
        if not self._is_done:
            self._asyncio_future_blocking = True
            yield self
        return self.result()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        # A task asks whether the future is of its own loop.
        return asyncio.get_running_loop()

    def add_done_callback(self, callback: Callable[[Any], object], *, context: Context | None = None) -> None:
        self._callbacks.append((callback, context))
        if self._is_done:
            self._call_waiters()

    def remove_done_callback(self, callback: Callable[[Any], object]) -> int:
        kept = [each for each in self._callbacks if each[0] != callback]
        removed, self._callbacks = len(self._callbacks) - len(kept), kept
        return removed

    def _finish(self) -> None:
        self._is_done = True
        self._call_waiters()

    def _call_waiters(self) -> None:
        # Later, because the caller may be in the middle of a step of the waiter.
        callbacks, self._callbacks = self._callbacks, []
        for callback, context in callbacks:
            if context is None:
                self._runtime.call_soon(callback, self)
            else:
                self._runtime.call_soon(context.run, callback, self)


class Started(Generic[T]):
    """A coroutine that runs by callbacks. `outcome` gets what it returns or raises."""

    def __init__(self, runtime: Runtime, coroutine: Coroutine[Any, Any, T]) -> None:
        self.outcome: Signal[T] = Signal(runtime)
        self._runtime = runtime
        self._coroutine = coroutine
        self._waits_for: Any = None
        self._is_cancelled = False
        self._is_ended = False
        self._step()

    def cancel(self) -> None:
        """Raise CancelledError in the coroutine, at the place where it waits."""
        # Not by its outcome, which a waiter may have cancelled for itself.
        if not self._is_ended:
            self._is_cancelled = True
            if self._waits_for is not None:
                self._waits_for.cancel()

    def _step(self, _: object = None) -> None:
        self._waits_for = None
        cancelled, self._is_cancelled = self._is_cancelled, False
        try:
            if cancelled:
                waits_for = self._coroutine.throw(asyncio.CancelledError())
            else:
                waits_for = self._coroutine.send(None)
        except StopIteration as end:
            self._is_ended = True
            self.outcome.set(end.value)
        except BaseException as error:
            self._is_ended = True
            self.outcome.fail(error)
            if not isinstance(error, (Exception, asyncio.CancelledError)):
                raise
        else:
            if waits_for is None:
                self._runtime.call_soon(self._step)
                return
            waits_for._asyncio_future_blocking = False
            self._waits_for = waits_for
            waits_for.add_done_callback(self._step)
            if self._is_cancelled:
                waits_for.cancel()


def start(
    runtime: Runtime,
    coroutine: Coroutine[Any, Any, T],
    done: Callable[[T | None, BaseException | None], object] | None = None,
) -> Started[T]:
    """Run a coroutine now, up to its first wait, and on by callbacks. `done(result, error)` is called at its end."""
    started = Started(runtime, coroutine)
    if done is not None:
        started.outcome.add_done_callback(lambda outcome: _report(outcome, done))
    return started


def _report(outcome: Signal[T], done: Callable[[T | None, BaseException | None], object]) -> None:
    try:
        result = outcome.result()
    except BaseException as error:
        done(None, error)
    else:
        done(result, None)


async def together(runtime: Runtime, coroutines: Sequence[Coroutine[Any, Any, T]]) -> Sequence[T | BaseException]:
    """Run coroutines beside each other. Return what each returned or raised, in their order."""
    started = [start(runtime, each) for each in coroutines]
    ended: list[T | BaseException] = []
    try:
        for each in started:
            try:
                ended.append(await each.outcome)
            except Exception as error:
                ended.append(error)
    finally:
        for each in started:
            each.cancel()
    return ended


async def pause(runtime: Runtime, seconds: float) -> None:
    """Wait for a time."""
    signal: Signal[None] = Signal(runtime)
    timer = runtime.call_later(seconds, signal.set, None)
    try:
        await signal
    finally:
        timer.cancel()


async def within(runtime: Runtime, limit_s: float, pending: Pending[T]) -> T:
    """Return the result of `pending`. Cancel it and raise LateAnswer when the limit has passed."""
    is_late = False

    def cancel() -> None:
        nonlocal is_late
        # False if the result has just arrived.
        is_late = pending.cancel()

    timer = runtime.call_later(max(0.0, limit_s), cancel)
    try:
        return await pending
    except asyncio.CancelledError:
        if is_late:
            raise LateAnswer from None
        raise
    finally:
        timer.cancel()


def in_thread(runtime: Runtime, work: Callable[[], T]) -> Signal[T]:
    """Run `work` off the loop. Return its outcome to come; a cancelled one lets the work go on unseen."""
    signal: Signal[T] = Signal(runtime)

    def done(result: T | None, error: BaseException | None) -> None:
        if error is None:
            signal.set(result)  # type: ignore[arg-type]
        else:
            signal.fail(error)

    runtime.in_thread(work, done)
    return signal


class Deadline:
    """The end of a call, for calls that take several steps."""

    __slots__ = ("_at", "_runtime")

    def __init__(self, runtime: Runtime, seconds: float) -> None:
        self._runtime = runtime
        self._at = runtime.monotonic() + seconds

    @property
    def left_s(self) -> float:
        """Return the seconds that are left, or zero."""
        return max(0.0, self._at - self._runtime.monotonic())

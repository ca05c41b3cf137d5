"""Long decisions of the controller, a step per write: each list of records is in the log before the next is decided.

Unlike `shares.decide`, what comes later may depend on where the earlier records lie: a broker's epoch is the offset of
its registration, which comes after whatever its former life left behind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from strandline.errors import RequestError
from strandline.handlers.support.context import BrokerServices
from strandline.handlers.support.time_slicing import TURN_S_MAX
from strandline.quorum.controller.state import Steps

T = TypeVar("T")


def run_steps(node: BrokerServices, steps: Steps[T], then: Callable[[T | None, BaseException | None], object]) -> None:
    """Take all steps, some per turn of the loop; `then(outcome, None)` when everything is committed and in effect, or
    `then(None, error)` for a refusal or for the first write that failed."""
    failures: list[BaseException] = []

    def on_written(error: BaseException | None) -> None:
        if error is not None:
            failures.append(error)

    def go_on() -> None:
        until = node.runtime.monotonic() + TURN_S_MAX
        try:
            while not failures:
                node.controller_write(next(steps), on_written)
                if node.runtime.monotonic() > until:
                    node.runtime.call_soon(go_on)
                    return
        except StopIteration as end:
            outcome: T = end.value
            # Nothing more to write: this waits for everything that was written before.
            node.controller_write([], lambda error: finish(outcome, error))
        except RequestError as refusal:
            then(None, refusal)
        else:
            steps.close()
            then(None, failures[0])

    def finish(outcome: T, error: BaseException | None) -> None:
        if error is None and failures:
            error = failures[0]
        then(outcome if error is None else None, error)

    go_on()

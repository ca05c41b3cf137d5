"""What a task tells the driver, and all that the driver ever hears of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import WriterCommitMessage

from strandline.runtime.fault_points import fault_point
from strandline.spark.sink.failures import SinkFailed


@dataclass(frozen=True)
class OpenTransaction:
    """A transaction that waits for the driver's decision."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True)
class TaskWritten(WriterCommitMessage):
    sink_id: str
    rows: int
    transaction: OpenTransaction | None
    """None for a task without rows, and for one that has committed by itself (`is_decided`)."""
    is_decided: bool = False
    """The broker has no request for a whole batch, so the task decided for itself."""
    is_first: bool = False
    """Of its process with this cluster."""

    def __getstate__(self) -> dict[str, Any]:
        # Spark packs the message when the task has returned it, which no code of ours sees otherwise.
        fault_point("after-return")
        return vars(self)


def told(messages: Iterable[WriterCommitMessage | None]) -> list[TaskWritten]:
    """Those of tasks that came to their end."""
    return [message for message in messages if isinstance(message, TaskWritten)]


def told_by_all(messages: Sequence[WriterCommitMessage | None]) -> list[TaskWritten]:
    """Those of a batch to be committed. A task that is passed over would have its rows aborted with the others' end."""
    found = told(messages)
    if len(found) != len(messages):
        raise SinkFailed(
            f"The batch was not committed: Spark brings word of {len(found)} of its {len(messages)} tasks; "
            "start the query again, nothing is lost."
        )
    return found

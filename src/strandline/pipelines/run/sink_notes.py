"""What the log knows of a query: the last batch of its sink, and the note that was kept with it.

A process that goes on from a note first seals the sink: an empty batch, two numbers on, that is decided only if no
batch was written in between. A driver that is still alive somewhere is then behind, and what it writes is refused.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from strandline.client.coordinators import ask_coordinator
from strandline.client.failures import ClusterFailed
from strandline.codec.messages.commit_batch_request import CommitBatchRequest
from strandline.codec.messages.commit_batch_response import CommitBatchResponse
from strandline.errors import ErrorCode, named
from strandline.ids import sink_key
from strandline.pipelines.run.checkpoint_files import Note
from strandline.spark.sink.cluster import SinkCluster
from strandline.spark.sink.driver import ask_about
from strandline.spark.sink.options import SinkOptions

NO_BATCH: Final = -1
SEAL_STEP: Final = 2
"""Not one: a driver at the next batch would be told that it is committed already, and go on."""
SEALINGS_MAX: Final = 20
"""How often a sink that moves on is read again."""


@dataclass(frozen=True)
class LastBatch:
    batch_id: int = NO_BATCH
    note: Note | None = None

    @property
    def wrote_nothing(self) -> bool:
        """Whether no batch was ever committed; a seal is none."""
        return self.batch_id == NO_BATCH or (self.note is not None and self.note.wrote_nothing)


class SinkNotes:
    """Of one cluster; `close` it, or use it in a `with`."""

    def __init__(self, bootstrap: str) -> None:
        self._options = SinkOptions(bootstrap, client_id="strandline-recovery")
        self._cluster = SinkCluster(self._options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._cluster.close()

    @property
    def are_kept(self) -> bool:
        """Apache Kafka knows neither sinks nor notes."""
        return self._cluster.commits_batches

    def last(self, sink_id: str) -> LastBatch:
        for sink in ask_about(self._cluster, sink_id, include_notes=True).sinks:
            if sink.sink_id == sink_id:
                return LastBatch(sink.last_batch_id, Note.parse(bytes(sink.note)))
        return LastBatch()

    def seal(self, sink_id: str) -> tuple[LastBatch, int]:
        """What was the last batch, and the number of the one that is now the last: from here on the sink is ours."""
        seal = uuid.uuid4().hex
        for _ in range(SEALINGS_MAX):
            found = self.last(sink_id)
            batch_id = found.batch_id + SEAL_STEP
            note = found.note or Note("", wrote_nothing=found.batch_id == NO_BATCH)
            if self._decide(sink_id, batch_id, note.sealed_by(seal), expected=found.batch_id):
                # An answer that says it was there before may mean our own, which was lost, or another's.
                now = self.last(sink_id)
                if now.batch_id == batch_id and (now.note is None or now.note.seal == seal):
                    return found, batch_id
        raise ClusterFailed(
            f"sink {sink_id} is written by another process all the time: stop it, then say --recover again"
        )

    def begin(self, sink_id: str, batch_id: int, note: Note) -> None:
        """A sink that has a last batch before anything was written to it."""
        self._decide(sink_id, batch_id, note, expected=NO_BATCH)

    def _decide(self, sink_id: str, batch_id: int, note: Note, *, expected: int) -> bool:
        """Return whether it is decided; else another process was first."""
        answer = ask_coordinator(
            self._cluster.client,
            "take the sink over",
            sink_key(sink_id),
            CommitBatchRequest(
                sink_id=sink_id,
                batch_id=batch_id,
                timeout_ms=self._options.request_timeout_ms // 2,
                note=note.to_bytes(),
                expected_last_batch_id=expected,
            ),
            CommitBatchResponse,
            lambda told: told.error_code,
        )
        code = named(answer.error_code)
        if code not in (ErrorCode.NONE, ErrorCode.PRODUCER_FENCED):
            words = f": {answer.error_message}" if answer.error_message else ""
            raise ClusterFailed(f"sink {sink_id} cannot be taken over ({code.name}{words}): try again")
        return code == ErrorCode.NONE

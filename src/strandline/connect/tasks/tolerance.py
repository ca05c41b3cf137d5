"""What happens to a record that cannot be converted, transformed or written: `errors.tolerance` and dead letters."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from strandline.client.security import librdkafka_of
from strandline.connect.failures import ConnectFailed, RetriableFailure
from strandline.connect.herder.config_state import TaskId
from strandline.connect.herder.state_topics import quiet, translated
from strandline.connect.tasks.metrics import TaskMetrics
from strandline.connect.tasks.settings import MESSAGE_BYTES_MAX, ConnectTaskSettings

log = logging.getLogger("strandline.connect")

PREFIX: Final = "__connect.errors."
FLUSH_S: Final = 30.0
KEY_CONVERTER: Final = "KEY_CONVERTER"
VALUE_CONVERTER: Final = "VALUE_CONVERTER"
HEADER_CONVERTER: Final = "HEADER_CONVERTER"
TRANSFORMATION: Final = "TRANSFORMATION"
TASK_PUT: Final = "TASK_PUT"


@dataclass(frozen=True)
class RawRecord:
    """A record of a topic as it is there."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]

    @property
    def place(self) -> str:
        return f"{self.topic}-{self.partition} at offset {self.offset}"


@dataclass(frozen=True)
class _DeadLetter:
    """A record on its way to the topic of dead letters."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp_ms: int


class BadRecord(ConnectFailed):
    """A record that failed at one stage."""

    def __init__(self, stage: str, place: str, error: Exception) -> None:
        # Most errors of sinks name the record themselves.
        of_place = "" if place in str(error) else f" of {place}"
        super().__init__(f"{_STAGES.get(stage, stage)}{of_place} failed: {error}")
        self.stage = stage
        self.error = error


_STAGES: Final = {
    KEY_CONVERTER: "converting the key",
    VALUE_CONVERTER: "converting the value",
    HEADER_CONVERTER: "converting the headers",
    TRANSFORMATION: "transforming",
    TASK_PUT: "writing",
}


class Tolerance:
    """Decides about bad records of one task, and keeps those of a sink as dead letters."""

    def __init__(
        self, bootstrap: str, task: TaskId, class_name: str, settings: ConnectTaskSettings, metrics: TaskMetrics
    ) -> None:
        self._bootstrap = bootstrap
        self._task = task
        self._class_name = class_name
        self._settings = settings
        self._metrics = metrics
        self._producer: Any = None
        self._failed: list[tuple[Any, _DeadLetter]] = []
        """Dead letters that were not stored, each with the error of librdkafka."""

    def take(self, bad: BadRecord, raw: RawRecord | None) -> None:
        """Leave a record out, or raise what failed. A dead letter is sent before its offset is committed."""
        self._metrics.failures += 1
        settings = self._settings
        if settings.errors_log_enable:
            content = f"; {raw!r}" if settings.errors_log_include_messages else ""
            log.error("%s: %s%s", self._task, bad, content)
        if settings.errors_tolerance != "all":
            raise bad
        self._metrics.skipped += 1
        if settings.dead_letters and raw is not None:
            self._send(bad, raw)

    def flush(self) -> None:
        """Wait until every dead letter is stored. Raise ConnectFailed if one is not.

        After a RetriableFailure the next call sends again what was not stored.
        """
        failed, self._failed = self._failed, []
        try:
            for _, letter in failed:
                self._produce(letter)
        except RetriableFailure:
            self._failed = failed + self._failed
            raise
        if self._producer is None:
            return
        what = f"dead letters cannot be written to {self._settings.dead_letters}"
        left = self._producer.flush(FLUSH_S)
        if self._failed:
            # librdkafka cannot always go on with an idempotent producer whose record was refused.
            self._producer = None
            raise translated(import_module("confluent_kafka").KafkaException(self._failed[0][0]), what)
        if left:
            raise RetriableFailure(f"{what}: {left} are on their way after {FLUSH_S:g} s")

    def _send(self, bad: BadRecord, raw: RawRecord) -> None:
        headers: list[tuple[str, bytes | None]] = list(raw.headers)
        if self._settings.dead_letter_headers:
            headers += self._context(bad, raw)
        self._produce(_DeadLetter(raw.key, raw.value, tuple(headers), max(raw.timestamp_ms, 0)))
        self._metrics.dead_letters += 1

    def _produce(self, letter: _DeadLetter) -> None:
        topic = self._settings.dead_letters

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                self._failed.append((error, letter))

        kafka = import_module("confluent_kafka")
        try:
            if self._producer is None:
                settings = {
                    "client.id": f"connector-dlq-producer-{self._task}",
                    "log_level": 0,
                    "enable.idempotence": True,
                    "message.max.bytes": MESSAGE_BYTES_MAX,
                }
                self._producer = kafka.Producer(librdkafka_of(self._bootstrap) | settings, logger=quiet)
            self._producer.produce(
                topic,
                key=letter.key,
                value=letter.value,
                headers=list(letter.headers),
                timestamp=letter.timestamp_ms,
                on_delivery=delivered,
            )
            self._producer.poll(0)
        except (kafka.KafkaException, BufferError) as error:
            raise translated(error, f"a dead letter cannot be written to {topic}") from error

    def _context(self, bad: BadRecord, raw: RawRecord) -> list[tuple[str, bytes | None]]:
        told = {
            "topic": raw.topic,
            "partition": str(raw.partition),
            "offset": str(raw.offset),
            "connector.name": self._task.connector,
            "task.id": str(self._task.task),
            "stage": bad.stage,
            "class.name": self._class_name,
            "exception.class.name": type(bad.error).__name__,
            "exception.message": str(bad.error),
            "exception.stacktrace": "".join(traceback.format_exception(bad.error)),
        }
        return [(PREFIX + name, value.encode()) for name, value in told.items()]

"""Dead letters as their headers describe them (pure): of share groups, of pipelines, and of Kafka Connect.

A share group's has `__dlq.errors.*`, and ours beside them `strandline.dlq.*`; a pipeline's `source.*` and `reason`; a
connector's `__connect.errors.*`. Pipelines and connectors copy key and value. Share groups do if they are told to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from strandline.cli.records.record import Headers, ReadRecord, json_bytes

SHARE_BEGIN: Final = "__dlq.errors."
OWN_BEGIN: Final = "strandline.dlq."
OWN_HEADER_BEGIN: Final = "strandline.dlq.header."
PIPELINE_BEGIN: Final = "source."
PIPELINE_REASON: Final = "reason"
CONNECT_BEGIN: Final = "__connect.errors."
REDRIVE_BEGIN: Final = "strandline.redrive."
ROUNDS: Final = "strandline.redrive.rounds"
"""How often a record was redriven, on the record itself."""
FROM: Final = "strandline.redrive.from"
"""The dead letter that a record was redriven from: topic, partition and offset."""


@dataclass(frozen=True)
class DeadLetter:
    """One record of a dead-letter topic."""

    record: ReadRecord
    kind: str
    """`share group`, `pipeline` or `connector`."""
    topic: str
    partition: int
    offset: int
    """Where the record was that it is about; an offset of -1 is not known."""
    by: str
    """The share group or the connector that gave the record up; empty for a pipeline."""
    reason: str
    deliveries: int | None
    member: str
    source_ms: int | None
    """The timestamp of the record."""
    ended_ms: int | None
    """When it was given up."""
    has_copy: bool
    rounds: int
    """How often the record was redriven before."""

    @property
    def place(self) -> str:
        return f"{self.record.partition}:{self.record.offset}"

    @property
    def source(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset if self.offset >= 0 else '?'}"

    def original_headers(self) -> Headers:
        """Return the headers of the record, as far as they were copied, without those of a redrive."""
        found = self.record.headers
        if self.kind == "share group":
            kept = [
                (name.removeprefix(OWN_HEADER_BEGIN), value)
                for name, value in found
                if name.startswith(OWN_HEADER_BEGIN)
            ]
        elif self.kind == "connector":
            kept = [(name, value) for name, value in found if not name.startswith(CONNECT_BEGIN)]
        else:
            own = {f"{PIPELINE_BEGIN}{name}" for name in ("topic", "partition", "offset")} | {PIPELINE_REASON}
            kept = [(name, value) for name, value in found if name not in own]
        return [(name, value) for name, value in kept if not name.startswith(REDRIVE_BEGIN)]


def dead_letter_of(record: ReadRecord) -> DeadLetter | None:
    """Return what the headers of a record say; None if it is no dead letter."""
    said = {name: _text(value) for name, value in record.headers}
    if f"{SHARE_BEGIN}topic" in said:
        return _of_share_group(record, said)
    if f"{CONNECT_BEGIN}topic" in said:
        return _of_connector(record, said)
    if f"{PIPELINE_BEGIN}topic" in said and f"{PIPELINE_BEGIN}offset" in said:
        return _of_pipeline(record, said)
    return None


def _of_share_group(record: ReadRecord, said: dict[str, str]) -> DeadLetter:
    rounds = said.get(f"{OWN_HEADER_BEGIN}{ROUNDS}", "")
    is_copied = record.key is not None or record.value is not None
    if f"{OWN_BEGIN}copy" not in said and any(name.startswith(OWN_BEGIN) for name in said):
        # A record without key and value, copied as it is.
        is_copied = True
    return DeadLetter(
        record=record,
        kind="share group",
        topic=said[f"{SHARE_BEGIN}topic"],
        partition=_number(said.get(f"{SHARE_BEGIN}partition"), -1),
        offset=_number(said.get(f"{SHARE_BEGIN}offset"), -1),
        by=said.get(f"{SHARE_BEGIN}group", ""),
        reason=said.get(f"{SHARE_BEGIN}message", ""),
        deliveries=_maybe_number(said.get(f"{SHARE_BEGIN}delivery.count")),
        member=said.get(f"{OWN_BEGIN}member", ""),
        source_ms=_maybe_number(said.get(f"{OWN_BEGIN}timestamp")),
        ended_ms=_maybe_number(said.get(f"{OWN_BEGIN}ended")),
        has_copy=is_copied,
        rounds=_number(rounds, 0),
    )


def _of_connector(record: ReadRecord, said: dict[str, str]) -> DeadLetter:
    reason = said.get(f"{CONNECT_BEGIN}exception.message") or said.get(f"{CONNECT_BEGIN}exception.class.name", "")
    stage = said.get(f"{CONNECT_BEGIN}stage", "")
    return DeadLetter(
        record=record,
        kind="connector",
        topic=said[f"{CONNECT_BEGIN}topic"],
        partition=_number(said.get(f"{CONNECT_BEGIN}partition"), -1),
        offset=_number(said.get(f"{CONNECT_BEGIN}offset"), -1),
        by=said.get(f"{CONNECT_BEGIN}connector.name", ""),
        reason=f"{stage}: {reason}" if stage else reason,
        deliveries=None,
        member="",
        source_ms=None,
        ended_ms=None,
        has_copy=True,
        rounds=_number(said.get(ROUNDS), 0),
    )


def _of_pipeline(record: ReadRecord, said: dict[str, str]) -> DeadLetter:
    return DeadLetter(
        record=record,
        kind="pipeline",
        topic=said[f"{PIPELINE_BEGIN}topic"],
        partition=_number(said.get(f"{PIPELINE_BEGIN}partition"), -1),
        offset=_number(said.get(f"{PIPELINE_BEGIN}offset"), -1),
        by="",
        reason=said.get(PIPELINE_REASON, ""),
        deliveries=None,
        member="",
        source_ms=None,
        ended_ms=None,
        has_copy=True,
        rounds=_number(said.get(ROUNDS), 0),
    )


def with_redrive_headers(headers: Headers, letter: DeadLetter, rounds: int) -> Headers:
    """Return the headers of a redriven record."""
    record = letter.record
    came_from = f"{record.topic}-{record.partition}@{record.offset}"
    kept = [(name, value) for name, value in headers if not name.startswith(REDRIVE_BEGIN)]
    return [*kept, (ROUNDS, b"%d" % rounds), (FROM, came_from.encode())]


def rounds_of(headers: Headers) -> int:
    """Return how often a record was redriven, by its own headers."""
    return next((_number(_text(value), 0) for name, value in headers if name == ROUNDS), 0)


def letter_object(letter: DeadLetter, *, is_handled: bool) -> dict[str, Any]:
    """Return a dead letter as JSON."""
    record = letter.record
    return {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "kind": letter.kind,
        "source_topic": letter.topic,
        "source_partition": letter.partition,
        "source_offset": letter.offset if letter.offset >= 0 else None,
        "source_timestamp": letter.source_ms,
        "by": letter.by or None,
        "reason": letter.reason,
        "deliveries": letter.deliveries,
        "member": letter.member or None,
        "ended": letter.ended_ms,
        "has_copy": letter.has_copy,
        "rounds": letter.rounds,
        "handled": is_handled,
        **json_bytes("key", record.key),
        **json_bytes("value", record.value),
        "headers": [{"key": key, **json_bytes("value", value)} for key, value in letter.original_headers()],
    }


LetterFilter = Callable[[DeadLetter], bool]


def letter_filter(
    *, by: str | None, topic: str | None, reason: str | None, where: Callable[[ReadRecord], bool] | None
) -> LetterFilter:
    """Return a function that says whether a dead letter is wanted; None leaves a condition out."""

    def is_wanted(letter: DeadLetter) -> bool:
        return (
            (by is None or letter.by == by)
            and (topic is None or letter.topic == topic)
            and (reason is None or reason.lower() in letter.reason.lower())
            and (where is None or where(letter.record))
        )

    return is_wanted


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode(errors="replace")


def _maybe_number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def _number(text: str | None, default: int) -> int:
    number = _maybe_number(text)
    return default if number is None else number

"""A workload as a person describes it, or as a running cluster shows it.

None means: not described, and not measured. A judgement says which answers it lacked, instead of guessing them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from strandline.documents.fields import Fields
from strandline.documents.units import Rate, parse_duration_ms, parse_rate, parse_retention_ms, parse_size

ACCESS: Final = ("stream", "lookup", "update", "query", "row-lifecycle")
ORDER: Final = ("none", "key", "global")
WORTH: Final = ("business", "derived", "scratch")
STATE: Final = ("derived", "primary")
PER_RECORD: Final = ("acknowledge", "retry", "lease")
ACKS: Final = ("all", "1", "0")


@dataclass(frozen=True)
class WorkloadReader:
    """One independent reader of the workload, usually a consumer group."""

    name: str
    members: int | None = None
    rate_per_partition: Rate | None = None
    """What one of its members can process of one partition."""
    lag_ms: int | None = None
    """How far behind it usually may be."""


@dataclass(frozen=True)
class Safety:
    """What is done for safe operation, where it is known."""

    owner: str | None = None
    schema: str | None = None
    compatibility: str | None = None
    outbox: bool | None = None
    idempotent_consumers: bool | None = None
    lag_objective_ms: int | None = None
    state: str | None = None
    acks: str | None = None
    min_insync_replicas: int | None = None
    unclean_election: bool | None = None


@dataclass(frozen=True)
class WorkloadProfile:
    """A workload. `measured` names the fields that a running cluster supplied."""

    name: str
    about: str = ""
    access: str | None = None
    current_state: bool | None = None
    """Whether readers also ask for the newest record of a key."""
    reply_within_ms: int | None = None
    keep_requests: bool | None = None
    per_record: tuple[str, ...] = ()
    priority: bool | None = None
    routing: bool | None = None
    ttl_per_record: bool | None = None
    write: Rate | None = None
    record_bytes: int | None = None
    readers: tuple[WorkloadReader, ...] | None = None
    workers: int | None = None
    order: str | None = None
    key: str | None = None
    replay: bool | None = None
    buffer: bool | None = None
    teams: int | None = None
    audit: bool | None = None
    multi_entity_updates: bool | None = None
    exactly_once_outside: bool | None = None
    zones: int | None = None
    latency_ms: int | None = None
    retention_ms: int | None = None
    partitions: int | None = None
    replicas: int | None = None
    brokers: int | None = None
    worth: str | None = None
    safety: Safety = field(default_factory=Safety)
    measured: frozenset[str] = frozenset()
    is_described: bool = True
    """False if all of it was measured: what callers and workers want cannot be seen from outside."""

    @property
    def records_per_s(self) -> float | None:
        if self.write is None:
            return None
        if self.write.records_per_s is not None:
            return self.write.records_per_s
        if self.write.bytes_per_s is not None and self.record_bytes:
            return self.write.bytes_per_s / self.record_bytes
        return None

    @property
    def bytes_per_s(self) -> float | None:
        if self.write is None:
            return None
        if self.write.bytes_per_s is not None:
            return self.write.bytes_per_s
        if self.write.records_per_s is not None and self.record_bytes:
            return self.write.records_per_s * self.record_bytes
        return None

    @property
    def reader_count(self) -> int | None:
        return None if self.readers is None else len(self.readers)

    @property
    def largest_group(self) -> int | None:
        members = [each.members for each in self.readers or () if each.members is not None]
        return max([*members, *([self.workers] if self.workers else [])], default=None)


def read_workload(value: Any) -> WorkloadProfile:
    """Return the workload of a document. DocumentFailed says which field is wrong, and what it takes."""
    fields = Fields(value, of="a workload")
    workload = WorkloadProfile(
        name=fields.needed_text("workload", "clickstream"),
        about=fields.text("about") or "",
        access=fields.choice("access", ACCESS),
        current_state=fields.flag("current_state"),
        reply_within_ms=fields.parsed("reply_within", parse_duration_ms),
        keep_requests=fields.flag("keep_requests"),
        per_record=_per_record(fields),
        priority=fields.flag("priority"),
        routing=fields.flag("routing_by_content"),
        ttl_per_record=fields.flag("ttl_per_record"),
        write=fields.parsed("write", parse_rate),
        record_bytes=fields.parsed("record_size", parse_size),
        readers=_readers(fields),
        workers=fields.whole("workers", least=1),
        order=fields.choice("order", ORDER),
        key=fields.text("key"),
        replay=fields.flag("replay"),
        buffer=fields.flag("buffer"),
        teams=fields.whole("teams", least=1),
        audit=fields.flag("audit"),
        multi_entity_updates=fields.flag("multi_entity_updates"),
        exactly_once_outside=fields.flag("exactly_once_outside"),
        zones=fields.whole("zones", least=1),
        latency_ms=fields.parsed("latency", parse_duration_ms),
        retention_ms=fields.parsed("retention", parse_retention_ms),
        partitions=fields.whole("partitions", least=1),
        replicas=fields.whole("replication", least=1),
        brokers=fields.whole("brokers", least=1),
        worth=fields.choice("worth", WORTH),
        safety=_safety(fields.part("safety", of="safety")),
    )
    fields.done()
    return workload


def _per_record(fields: Fields) -> tuple[str, ...]:
    found = fields.texts("per_record")
    for each in found:
        if each not in PER_RECORD:
            raise fields.failure("per_record", f"per_record has some of {', '.join(PER_RECORD)}, not {each!r}")
    return tuple(found)


def _readers(fields: Fields) -> tuple[WorkloadReader, ...] | None:
    names: list[WorkloadReader] = []
    given = False
    for part in fields.parts("readers", of="a reader"):
        given = True
        names.append(
            WorkloadReader(
                name=part.needed_text("name", "search"),
                members=part.whole("members", least=1),
                rate_per_partition=part.parsed("rate_per_partition", parse_rate),
                lag_ms=part.parsed("lag", parse_duration_ms),
            )
        )
        part.done()
    return tuple(names) if given else None


def _safety(fields: Fields | None) -> Safety:
    if fields is None:
        return Safety()
    safety = Safety(
        owner=fields.text("owner"),
        schema=fields.text("schema"),
        compatibility=fields.text("compatibility"),
        outbox=fields.flag("outbox"),
        idempotent_consumers=fields.flag("idempotent_consumers"),
        lag_objective_ms=fields.parsed("lag_objective", parse_duration_ms),
        state=fields.choice("state", STATE),
        acks=fields.parsed("acks", _acks),
        min_insync_replicas=fields.whole("min_insync_replicas", least=1),
        unclean_election=fields.flag("unclean_election"),
    )
    fields.done()
    return safety


def _acks(text: str) -> str:
    if text == "-1":
        return "all"
    if text not in ACKS:
        raise ValueError(f"{text!r} is none of {', '.join(ACKS)}")
    return text

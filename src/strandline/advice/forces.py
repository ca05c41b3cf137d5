"""What speaks for a log, as a score, and what speaks against one, with its class.

A limit is inherent if the structure makes it: append-only, order per partition, position instead of key, retention per
topic, a broker that does not look inside. Then a design goes around it. It is mitigated if a feature gives what is
missing at a stated price, and tunable if it is a setting.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from strandline.advice.description import WorkloadProfile
from strandline.documents.units import byte_rate_words, duration_words, record_rate_words

SUSTAINED_BYTES_PER_S: Final = 1e6
SUSTAINED_RECORDS_PER_S: Final = 1_000.0
LATENCY_FLOOR_MS: Final = 10
MOST: Final = 7


class LimitClass(StrEnum):
    """Whether a limit can be moved, and by what."""

    INHERENT = "inherent"
    MITIGATED = "mitigated"
    TUNABLE = "tunable"


@dataclass(frozen=True)
class Force:
    """A force for a log. `holds` is None if the description does not say."""

    name: str
    holds: bool | None
    why: str


@dataclass(frozen=True)
class Limit:
    """A force against a log that applies to the workload."""

    name: str
    limit_class: LimitClass
    why: str
    moved_by: str


def forces_for(workload: WorkloadProfile) -> list[Force]:
    """Return the seven forces; each that holds scores one."""
    readers = workload.reader_count
    return [
        _throughput(workload),
        _flag("replay", workload.replay, "records are read again"),
        Force(
            "fan-out",
            None if readers is None else readers >= 2,
            "readers are not described"
            if readers is None
            else f"{readers} independent reader{'' if readers == 1 else 's'}",
        ),
        _flag("durable buffer", workload.buffer, "it holds back what comes faster than it is processed"),
        Force(
            "order per key",
            None if workload.order is None else workload.order == "key",
            _order_words(workload),
        ),
        Force(
            "decoupled teams",
            None if workload.teams is None else workload.teams >= 2,
            "teams are not described" if workload.teams is None else f"{workload.teams} teams",
        ),
        _flag("audit", workload.audit, "what happened must be shown later"),
    ]


def _flag(name: str, holds: bool | None, why: str) -> Force:
    if holds is None:
        return Force(name, None, f"{name} is not described")
    return Force(name, holds, why if holds else "not asked for")


def _order_words(workload: WorkloadProfile) -> str:
    if workload.order is None:
        return "order is not described"
    return f"by {workload.key or 'a key that is not named'}" if workload.order == "key" else "not asked for"


def _throughput(workload: WorkloadProfile) -> Force:
    bytes_per_s, records_per_s = workload.bytes_per_s, workload.records_per_s
    if bytes_per_s is None and records_per_s is None:
        return Force("sustained throughput", None, "write is not described")
    holds = (bytes_per_s or 0) >= SUSTAINED_BYTES_PER_S or (records_per_s or 0) >= SUSTAINED_RECORDS_PER_S
    words = byte_rate_words(bytes_per_s) if bytes_per_s is not None else record_rate_words(records_per_s or 0)
    return Force("sustained throughput", holds, f"{words} written")


def limits(workload: WorkloadProfile) -> list[Limit]:
    """Return what speaks against a log for this workload."""
    return [*_of_structure(workload), *_of_processing(workload), *_of_keeping(workload), *_of_cluster(workload)]


def _of_structure(workload: WorkloadProfile) -> list[Limit]:
    found = []
    waits_ms = min((each for each in (workload.reply_within_ms, workload.latency_ms) if each is not None), default=None)
    if waits_ms is not None:
        found.append(
            Limit(
                "latency of request and response",
                LimitClass.INHERENT,
                f"{duration_words(waits_ms)} are asked for; the floor is inherent, the margin above it tunable",
                "linger.ms=0, fetch.min.bytes=1 and acks move the margin; nothing makes it a round trip",
            )
        )
    if workload.priority or workload.routing:
        found.append(
            Limit(
                "routing, priority, selective reading",
                LimitClass.INHERENT,
                "a reader gets every record of its partitions, in order",
                "a topic for each lane, or a routing broker",
            )
        )
    if workload.access not in (None, "stream") or workload.current_state:
        found.append(
            Limit(
                "point queries",
                LimitClass.INHERENT,
                "a log finds records by position, not by key",
                "a view of the topic (`strandline view create`), or a database that the topic feeds",
            )
        )
    if workload.multi_entity_updates:
        found.append(
            Limit(
                "updates of several entities at once",
                LimitClass.INHERENT,
                "a transaction of the log ends at the log",
                "transactions inside the log; outbox and inbox across a database, never two-phase commit",
            )
        )
    return found


def _of_processing(workload: WorkloadProfile) -> list[Limit]:
    found = []
    if workload.per_record:
        found.append(
            Limit(
                "acknowledge or lease per record; one slow record blocks those behind it",
                LimitClass.MITIGATED,
                "a group commits a position, not single records",
                "a share group, at the price of order; or a consumer that processes keys in parallel",
            )
        )
    if workload.exactly_once_outside:
        found.append(
            Limit(
                "exactly once across systems",
                LimitClass.INHERENT,
                "no transaction spans the log and another system",
                "targets that take a record twice without harm, or offsets stored with the data",
            )
        )
    if (workload.largest_group or 0) > 1:
        found.append(
            Limit(
                "rebalances that stop the group",
                LimitClass.MITIGATED,
                f"{workload.largest_group:,} members share partitions",
                "group.protocol=consumer, or the cooperative assignor; static members for restarts",
            )
        )
    return found


def _of_keeping(workload: WorkloadProfile) -> list[Limit]:
    found = []
    if workload.ttl_per_record:
        found.append(
            Limit(
                "time to live per record",
                LimitClass.INHERENT,
                "retention is for a topic; tombstones are per key and take effect eventually",
                "a topic for each time to live, or tombstones on a compacted topic",
            )
        )
    if workload.retention_ms is not None and workload.retention_ms >= 0 and (workload.audit or workload.replay):
        found.append(
            Limit(
                "retention deletes what was stored",
                LimitClass.TUNABLE,
                f"records are deleted after {duration_words(workload.retention_ms)}",
                "retention.ms=-1, or cleanup.policy=compact for the newest record of each key; tiers for a long past",
            )
        )
    if workload.worth == "business":
        found.append(
            Limit(
                "durable means the page caches of the replicas",
                LimitClass.TUNABLE,
                "with several replicas, an acknowledged record is in their memory and not yet on their disks",
                "flush.mode=ack, or flush.messages=1: each acknowledgement then waits for the disk",
            )
        )
    return found


def _of_cluster(workload: WorkloadProfile) -> list[Limit]:
    found = []
    if (workload.zones or 1) > 1:
        found.append(
            Limit(
                "cost across zones",
                LimitClass.MITIGATED,
                f"replicas and readers in {workload.zones} zones pay for bytes between them; that they do is inherent",
                "readers that fetch from the nearest replica, where the cluster offers it",
            )
        )
    if (workload.partitions or 0) > 4_000:
        found.append(
            Limit(
                "partitions per node and cluster",
                LimitClass.TUNABLE,
                f"{workload.partitions:,} partitions; about 4,000 a broker was the old rule",
                "fewer, larger partitions; recovery of the controller, open files and rebalances set the bound",
            )
        )
    rate, readers = workload.records_per_s, workload.reader_count
    if rate is not None and rate < 1 and (readers or 0) <= 1:
        found.append(
            Limit(
                "tiny scale",
                LimitClass.MITIGATED,
                f"{record_rate_words(rate)} do not need a cluster; the overhead is inherent",
                "one node or an embedded one, or a managed service",
            )
        )
    return found

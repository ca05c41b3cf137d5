"""What `doctor` and `cluster health` ask about the files of a cluster: damage, cleaning that stopped, room to come.

Only Strandline's brokers tell it; on other clusters there is nothing to say.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from strandline.cli.common.client import Cluster
from strandline.cli.common.conversation import Conversation, is_spoken
from strandline.cli.common.failures import Unreachable
from strandline.cli.common.plain_words import count, size
from strandline.cli.doctor.disk_forecast import UPTIME_S_MIN, Growth, forecast, growth
from strandline.cli.doctor.findings import Finding, ok, problem, warning
from strandline.cli.doctor.object_store import tier_findings
from strandline.cli.topic.storage_reading import StoredReplica
from strandline.cli.topic.storage_words import damage_words, is_compacted, reason_words
from strandline.codec.messages.describe_storage_request import DescribeStorageRequest
from strandline.codec.messages.describe_storage_response import DescribeStorageResponse, StoredPartition
from strandline.lag.verdict import span

Address = tuple[str, int]

TIMEOUT_S = 5.0
"""A broker that is down or hangs does not keep the rest from being reported."""
NAMES_SHOWN = 3
DAMAGES_SHOWN = 5
FULL_SOON_S = 86_400.0
"""A disk that is full within a day is a problem; later than in a month, it is not reported."""
FULL_LATE_S = 30 * 86_400.0


def storage_findings(cluster: Cluster, addresses: Iterable[Address]) -> Iterator[Finding]:
    """Asked of the brokers; nothing is said where they do not tell."""
    cluster = replace(cluster, timeout_s=min(TIMEOUT_S, cluster.timeout_s))
    answers = list(_ask_all(cluster, addresses))
    if answers:
        yield from findings_of(answers)


def findings_of(answers: list[DescribeStorageResponse]) -> Iterator[Finding]:
    """Judge what the brokers reported (pure)."""
    replicas = [StoredReplica(part, answer) for answer in answers for part in answer.partitions]
    found = [
        *offline_findings(replicas),
        *damage_findings(replicas),
        *cleaning_findings(replicas),
        *forecast_findings(answers),
        *tier_findings(answers),
    ]
    yield from found
    if not found:
        yield ok("storage", f"{count(len(replicas), 'log')}: no damage is known, and nothing keeps the cleaner")


def _ask_all(cluster: Cluster, addresses: Iterable[Address]) -> Iterator[DescribeStorageResponse]:
    if not is_spoken(cluster):
        return
    for host, port in addresses:
        try:
            with Conversation(host, port, cluster.timeout_s, cluster.security) as conversation:
                answer = conversation.ask(DescribeStorageRequest(), DescribeStorageResponse)
        except Unreachable:
            continue  # That is a finding of those who look at the ways to the brokers.
        if answer is None:
            return
        yield answer


def offline_findings(replicas: list[StoredReplica]) -> Iterator[Finding]:
    failed = [replica for replica in replicas if replica.part.error_code and not replica.is_being_recovered]
    for replica in failed[:DAMAGES_SHOWN]:
        yield problem(
            "offline-log",
            f"{replica.name} on broker {replica.node.node_id} is offline: {reason_words(replica.part.error_message)}",
            "mend the disk, or put its files back from a replica or a backup; then start the broker again",
        )
    if len(failed) > DAMAGES_SHOWN:
        yield problem("offline-log", f"{count(len(failed) - DAMAGES_SHOWN, 'more log')} offline", "see above")


def damage_findings(replicas: list[StoredReplica]) -> Iterator[Finding]:
    damaged = [(replica, damage) for replica in replicas for damage in replica.part.damages]
    for replica, damage in damaged[:DAMAGES_SHOWN]:
        where = f"{replica.name} on broker {replica.node.node_id}"
        yield problem(
            "damage",
            f"{where} is damaged: {damage_words(damage, replica.node)}",
            "look at the disk (`dmesg`, SMART); a replica repairs itself from the leader, a single copy cannot: "
            "put the file back from a backup, or go on behind it with `strandline topic trim`",
        )
    if len(damaged) > DAMAGES_SHOWN:
        more = count(len(damaged) - DAMAGES_SHOWN, "more damaged place")
        yield problem("damage", more, "`strandline topic describe NAME --storage` shows those of a topic")


def cleaning_findings(replicas: list[StoredReplica]) -> Iterator[Finding]:
    by_reason: dict[str, list[str]] = {}
    off: dict[int, list[str]] = {}
    for replica in replicas:
        if replica.part.cleaning_state == "set aside":
            reason = reason_words(replica.part.cleaning_reason)
            by_reason.setdefault(reason, []).append(f"{replica.name} on broker {replica.node.node_id}")
        elif replica.part.cleaning_state == "off" and is_compacted(replica.part) and replica.part.size_bytes:
            off.setdefault(replica.node.node_id, []).append(replica.name)
    for reason, names in by_reason.items():
        yield problem(
            "cleaning",
            f"compaction of {_listed(names)} is set aside: {reason}",
            "nothing is lost, but these logs grow: mend the cause, then `strandline topic compact NAME --now`",
        )
    for broker_id, names in off.items():
        grow = "only grows" if len(names) == 1 else "only grow"
        yield warning(
            "cleaning",
            f"the cleaner of broker {broker_id} is off, so {_listed(names)} {grow}",
            f"set log.cleaner.enable=true in the properties of broker {broker_id}, and start it again",
        )


def forecast_findings(answers: list[DescribeStorageResponse]) -> Iterator[Finding]:
    rates = _rates(answers)
    for answer in answers:
        if answer.usable_bytes < 0:
            continue
        logs = [log for part in answer.partitions if (log := _growth(part, rates)) is not None]
        found = forecast(logs, answer.usable_bytes)
        if found is None or found.full_in_s > FULL_LATE_S:
            continue
        wanted = "without end" if found.wanted_bytes == math.inf else f"{size(round(found.wanted_bytes))} more"
        text = (
            f"the disk of broker {answer.node_id} is full in {span(found.full_in_s)} at the rate since it started "
            f"({size(round(found.bytes_per_s))} a second): {size(answer.usable_bytes)} are left, and retention lets "
            f"logs grow {'' if found.wanted_bytes == math.inf else 'by '}{wanted}"
        )
        advice = "add room, or shorten retention.ms, or set retention.bytes; the largest topics: " + _largest(answer)
        yield (problem if found.full_in_s < FULL_SOON_S else warning)("disk-forecast", text, advice)


def _rates(answers: list[DescribeStorageResponse]) -> dict[tuple[str, int], float]:
    """Bytes a second of each partition, which its leader counts; followers get the same."""
    rates: dict[tuple[str, int], float] = {}
    for answer in answers:
        uptime_s = (answer.now_ms - answer.started_ms) / 1000
        if answer.started_ms < 0 or uptime_s < UPTIME_S_MIN:
            continue
        for part in answer.partitions:
            place = part.topic, part.partition
            rates[place] = max(rates.get(place, 0.0), part.bytes_in / uptime_s)
    return rates


def _growth(part: StoredPartition, rates: dict[tuple[str, int], float]) -> Growth | None:
    return growth(
        size_bytes=part.size_bytes,
        bytes_per_s=rates.get((part.topic, part.partition), 0.0),
        cleanup_policy=part.cleanup_policy,
        retention_ms=part.retention_ms,
        retention_bytes=part.retention_bytes,
        segment_ms=part.segment_ms,
        segment_bytes=part.segment_bytes,
    )


def _largest(answer: DescribeStorageResponse) -> str:
    sizes: dict[str, int] = {}
    for part in answer.partitions:
        sizes[part.topic] = sizes.get(part.topic, 0) + part.size_bytes
    largest = sorted(sizes.items(), key=lambda each: -each[1])[:NAMES_SHOWN]
    return ", ".join(f"{name} ({size(size_bytes)})" for name, size_bytes in largest)


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:NAMES_SHOWN])
    more = len(names) - NAMES_SHOWN
    return shown if more <= 0 else f"{shown} and {count(more, 'more partition')}"

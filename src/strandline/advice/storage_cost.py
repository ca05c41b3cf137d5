"""What a topic costs a month as a local, a tiered and an object topic: requests, bytes and money, each by a formula.

local     each replica keeps all records on its disk, and each but the first is sent to another zone
tiered    replicas keep what local retention keeps; each sealed segment is two objects, written once
object    nodes write the records of all their partitions together; replicas keep nothing but the newest
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Final

MONTH_S: Final = 730 * 3600
GB: Final = 1e9
BLOCK_BYTES: Final = 4 << 20
"""Bytes of one read of the store."""
OBJECT_BYTES_MAX: Final = 8 << 20
"""An object of object topics is written when it has so many bytes, also before its interval is over."""
MERGED_BYTES: Final = 64 << 20
OBJECTS_OF_SEGMENT: Final = 2


@dataclass(frozen=True)
class Prices:
    """US dollars: S3 standard in us-east, without charge between its zones and the store; a disk of a cloud."""

    put_per_1000: float = 0.005
    get_per_1000: float = 0.0004
    store_gb_month: float = 0.023
    disk_gb_month: float = 0.08
    inter_zone_gb: float = 0.02
    """Both directions together."""


@dataclass(frozen=True)
class TopicLoad:
    """What a topic does, and how it is set."""

    bytes_per_s: float
    records_per_s: float
    retained_s: float | None
    """None: records are kept for ever; then the cost is that of what is stored now, and one more month."""
    stored_bytes: float
    local_retained_s: float | None
    partitions: int
    replicas: int
    segment_bytes: int
    segment_s: float
    nodes: int = 1
    zones: int = 3
    reads: float = 1.0
    """How often each record is read from the store, long after it was written; tail readers read from memory."""
    interval_s: float = 0.25


@dataclass(frozen=True)
class KindCost:
    """One kind of topic, a month. Money in US dollars, bytes as they are."""

    kind: str
    put_requests: float
    get_requests: float
    store_bytes: float
    disk_bytes: float
    inter_zone_bytes: float
    request_cost: float
    store_cost: float
    disk_cost: float
    inter_zone_cost: float

    @property
    def total(self) -> float:
        return self.request_cost + self.store_cost + self.disk_cost + self.inter_zone_cost


def costs(load: TopicLoad, prices: Prices) -> list[KindCost]:
    """Return the cost as a local, a tiered and an object topic."""
    written = load.bytes_per_s * MONTH_S
    kept = kept_bytes(load, load.retained_s)
    local = min(kept, kept_bytes(load, load.local_retained_s))
    copies = load.replicas - 1 if load.zones > 1 else 0
    read = written * load.reads
    segments = segments_a_month(load)
    objects = objects_a_month(load)
    merged = written / MERGED_BYTES
    return [
        _cost(prices, "local", disk=kept * load.replicas, inter_zone=written * copies),
        _cost(
            prices,
            "tiered",
            put=OBJECTS_OF_SEGMENT * segments,
            get=read / BLOCK_BYTES + (segments * load.reads),
            store=kept,
            disk=local * load.replicas,
            inter_zone=written * copies,
        ),
        # Each byte is read and written once more when small objects are merged.
        _cost(
            prices,
            "object",
            put=objects + OBJECTS_OF_SEGMENT * merged,
            get=read / BLOCK_BYTES + max(objects, written / BLOCK_BYTES),
            store=kept,
        ),
    ]


def kept_bytes(load: TopicLoad, retained_s: float | None) -> float:
    """Return the bytes that a retention keeps in the long run."""
    if retained_s is None:
        return load.stored_bytes + load.bytes_per_s * MONTH_S
    return load.bytes_per_s * retained_s


def segments_a_month(load: TopicLoad) -> float:
    """Return how many segments are sealed: full ones, or those that are old enough in a slow partition."""
    if load.bytes_per_s <= 0:
        return 0.0
    by_size = load.bytes_per_s * MONTH_S / load.segment_bytes
    by_age = load.partitions * MONTH_S / load.segment_s if load.segment_s > 0 else 0.0
    return max(by_size, min(by_age, load.records_per_s * MONTH_S))


def objects_a_month(load: TopicLoad) -> float:
    """Return how many objects of records are written: one an interval and node, more if there is much, none if idle."""
    by_interval = load.nodes * MONTH_S / load.interval_s
    by_size = load.bytes_per_s * MONTH_S / OBJECT_BYTES_MAX
    return max(by_size, min(by_interval, load.records_per_s * MONTH_S))


def _cost(
    prices: Prices,
    kind: str,
    *,
    put: float = 0.0,
    get: float = 0.0,
    store: float = 0.0,
    disk: float = 0.0,
    inter_zone: float = 0.0,
) -> KindCost:
    return KindCost(
        kind,
        put,
        get,
        store,
        disk,
        inter_zone,
        put / 1000 * prices.put_per_1000 + get / 1000 * prices.get_per_1000,
        store / GB * prices.store_gb_month,
        disk / GB * prices.disk_gb_month,
        inter_zone / GB * prices.inter_zone_gb,
    )


def changed_prices(prices: Prices, given: Mapping[str, str]) -> Prices:
    """Return prices of which some are replaced. Raise ValueError for a name or a number that is none."""
    known = [each.name for each in fields(Prices)]
    changes: dict[str, float] = {}
    for name, text in given.items():
        key = name.strip().replace(".", "_").replace("-", "_")
        if key not in known:
            raise ValueError(f"{name!r} is no price; there are {', '.join(known)}")
        try:
            changes[key] = float(text)
        except ValueError:
            raise ValueError(f"{name}={text} is no price; write a number of US dollars, for example 0.023") from None
        if not 0 <= changes[key] < 1e9:
            raise ValueError(f"{name}={text} is no price; write a number of US dollars, for example 0.023")
    return replace(prices, **changes)


def assumptions(load: TopicLoad, prices: Prices) -> list[str]:
    """Return in words what the figures stand on and what they leave out."""
    return [
        f"prices in US dollars: {', '.join(f'{each.name}={getattr(prices, each.name):g}' for each in fields(Prices))}",
        f"a month has 730 hours, all like the measured time; {load.nodes} node(s), {load.zones} zone(s)",
        f"each record is read {load.reads:g} time(s) from the store, {BLOCK_BYTES >> 20} MiB a request; readers at the "
        "end read from memory",
        f"object: one object each {load.interval_s * 1000:g} ms and node for all its object topics together, counted "
        "here as if this were the only one; each byte is merged once; its commit log is left out",
        "left out: processors, memory, room that disks keep free, producers and consumers in other zones",
    ]

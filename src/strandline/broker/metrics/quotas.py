"""Families about quotas: who is above its own, by how much, and how long its clients wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import nlargest
from typing import TYPE_CHECKING, Final

from strandline.broker.metrics.scrape import Scrape
from strandline.config.quota_keys import CONNECTION_CREATION_RATE
from strandline.observability.exposition import Metric, Sample, label
from strandline.security.quotas.rate_bucket import RateBucket

if TYPE_CHECKING:
    from strandline.security.quotas.token_bucket import TokenBucket

QUOTAS_SHOWN_MAX: Final = 100
"""Users, client ids and addresses with lines of their own: those whose clients waited longest."""
LABELS: Final = ("quota", "user", "client_id", "ip")


def _each(read: Callable[[RateBucket | TokenBucket, float], float | None]) -> Callable[[Scrape], Iterator[Sample]]:
    def samples(scrape: Scrape) -> Iterator[Sample]:
        throttling = scrape.node.throttling
        now_ms = throttling.now_ms()
        shown = nlargest(QUOTAS_SHOWN_MAX, throttling.buckets(), key=lambda each: each[2].throttled_ms)
        for key, (name, client_id), bucket in shown:
            user, ip = ("", name) if key == CONNECTION_CREATION_RATE else (name, "")
            value = read(bucket, now_ms)
            if value is not None:
                yield label(quota=key, user=user, client_id=client_id, ip=ip), value

    return samples


def _rate(bucket: RateBucket | TokenBucket, now_ms: float) -> float | None:
    return bucket.rate(now_ms) if isinstance(bucket, RateBucket) else None


def _tokens(bucket: RateBucket | TokenBucket, now_ms: float) -> float | None:
    return None if isinstance(bucket, RateBucket) else bucket.left(now_ms)


FAMILIES: Final[tuple[Metric[Scrape], ...]] = (
    Metric(
        "strandline_quota_throttle_seconds_total",
        "counter",
        "Throttle times that clients were told, by the quota that they were above.",
        _each(lambda bucket, _: bucket.throttled_ms / 1000),
        LABELS,
    ),
    Metric(
        "strandline_quota_rate",
        "gauge",
        "What clients with a quota use, in its unit: bytes, percent or connections a second.",
        _each(_rate),
        LABELS,
    ),
    Metric(
        "strandline_quota_tokens",
        "gauge",
        "Partitions that clients may still create or delete at once; below zero they wait. On the active controller.",
        _each(_tokens),
        LABELS,
    ),
    Metric(
        "strandline_quota_limit",
        "gauge",
        "The quota itself, in the same unit.",
        _each(lambda bucket, _: bucket.limit),
        LABELS,
    ),
    Metric(
        "strandline_connections_muted",
        "gauge",
        "Connections that are not read because their client is above a quota.",
        lambda scrape: [("", len(scrape.node.dispatcher.limits.muted))],
        public=True,
    ),
)

"""The buckets of one kind of quota, by the clients that share each.

Clients make up their ids, so the number of buckets is bounded. When there are too many, those that count nothing any
more are dropped. If none can be dropped, new clients share one bucket of the entity that their quota belongs to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from strandline.security.quotas.limits import BucketKey, Entity, EntityPart, Match

BUCKETS_MAX: Final = 10_000
SWEEP_MS: Final = 1000.0
"""The least time between two searches for buckets to drop."""


class Bucket(Protocol):
    """Something that counts the use of a quota."""

    def set_limit(self, limit: float) -> None: ...

    def is_idle(self, now_ms: float) -> bool: ...


B = TypeVar("B", bound=Bucket)
TableKey = tuple[BucketKey | None, Entity | None]
"""The clients that share a bucket, or the entity whose other clients all share one."""


class BucketTable(Generic[B]):
    """The buckets of one kind of quota."""

    def __init__(self, make: Callable[[float, float], B], *, buckets_max: int = BUCKETS_MAX) -> None:
        self._make = make
        """Makes a bucket, given the limit and the time."""
        self._buckets_max = buckets_max
        self._swept_ms: float | None = None
        self.buckets: dict[TableKey, B] = {}

    def bucket_of(self, match: Match, now_ms: float) -> B:
        """Return the bucket of a client, with the limit that is in force now."""
        key: TableKey = match.bucket, None
        bucket = self.buckets.get(key)
        if bucket is None:
            if len(self.buckets) >= self._buckets_max and not self._sweep(now_ms):
                key = None, match.entity
                bucket = self.buckets.get(key)
            if bucket is None:
                bucket = self.buckets[key] = self._make(match.limit, now_ms)
        bucket.set_limit(match.limit)
        return bucket

    def _sweep(self, now_ms: float) -> bool:
        """Drop buckets that count nothing any more; return whether there is room."""
        if self._swept_ms is None or now_ms - self._swept_ms >= SWEEP_MS:
            self._swept_ms = now_ms
            for key in [key for key, bucket in self.buckets.items() if bucket.is_idle(now_ms)]:
                del self.buckets[key]
        return len(self.buckets) < self._buckets_max


def name_of(key: TableKey) -> tuple[str, str]:
    """Return user and client id for logs and metrics: empty if shared by all, `<default>` and `<others>` as needed."""
    clients, entity = key
    if clients is not None:
        return clients[0] or "", clients[1] or ""
    assert entity is not None
    names = [
        "" if part is EntityPart.ABSENT else "<others>" if part is EntityPart.DEFAULT else str(part) for part in entity
    ]
    return names[0], names[1]

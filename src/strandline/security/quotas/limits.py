"""The quotas in force, and which of them holds for a client.

A quota belongs to an entity: a user, a client id, both, or an IP address. Each part has a name or is the default of its
type. The most specific entity that has a value for a key wins, in the order of `_candidates`. That order is Kafka's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any, NamedTuple

from strandline.config.quota_keys import CLIENT_ID, CLIENT_KEYS, CONNECTION_CREATION_RATE, IP, USER


class EntityPart(Enum):
    """A part of an entity that has no name."""

    ABSENT = 0
    DEFAULT = 1


Entity = tuple[str | EntityPart, str | EntityPart]
"""User and client id."""
BucketKey = tuple[str | None, str | None]
"""The user and the client id that share one bucket; None where it is shared by all of that type."""


class Match(NamedTuple):
    """The quota of a client: its value, the entity that has it, and the bucket that its use is counted in."""

    limit: float
    entity: Entity
    bucket: BucketKey


class QuotaLimits:
    """The values of all quota records."""

    def __init__(self, records: Iterable[Any] = ()) -> None:
        self._by_key: dict[str, dict[Entity, float]] = {key: {} for key in CLIENT_KEYS}
        self._by_ip: dict[str | EntityPart, float] = {}
        for record in records:
            self._add(record)

    def _add(self, record: Any) -> None:
        user = client_id = ip = EntityPart.ABSENT
        for part in record.entity:
            name = EntityPart.DEFAULT if part.entity_name is None else part.entity_name
            if part.entity_type == USER:
                user = name
            elif part.entity_type == CLIENT_ID:
                client_id = name
            elif part.entity_type == IP:
                ip = name
            else:
                # A type of a newer version: what it means is unknown.
                return
        if ip is not EntityPart.ABSENT:
            if record.key == CONNECTION_CREATION_RATE:
                self._by_ip[ip] = record.value
        elif record.key in self._by_key:
            self._by_key[record.key][user, client_id] = record.value

    @property
    def has_client_quotas(self) -> bool:
        return any(self._by_key.values())

    @property
    def has_ip_quotas(self) -> bool:
        return bool(self._by_ip)

    def of_client(self, key: str, user: str, client_id: str) -> Match | None:
        """Return the quota that holds for a client; None without one."""
        limits = self._by_key[key]
        if limits:
            for entity, bucket in _candidates(user, client_id):
                limit = limits.get(entity)
                if limit is not None:
                    return Match(limit, entity, bucket)
        return None

    def of_ip(self, address: str) -> float | None:
        """Return how many connections an address may open in a second; None without a quota."""
        return self._by_ip.get(address, self._by_ip.get(EntityPart.DEFAULT))


def _candidates(user: str, client_id: str) -> Iterator[tuple[Entity, BucketKey]]:
    """Yield the entities that a client belongs to, the most specific first, each with the bucket of the client.

    The default of a type gives each of its members a bucket of its own.
    """
    yield (user, client_id), (user, client_id)
    yield (user, EntityPart.DEFAULT), (user, client_id)
    yield (user, EntityPart.ABSENT), (user, None)
    yield (EntityPart.DEFAULT, client_id), (user, client_id)
    yield (EntityPart.DEFAULT, EntityPart.DEFAULT), (user, client_id)
    yield (EntityPart.DEFAULT, EntityPart.ABSENT), (user, None)
    yield (EntityPart.ABSENT, client_id), (None, client_id)
    yield (EntityPart.ABSENT, EntityPart.DEFAULT), (None, client_id)

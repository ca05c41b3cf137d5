"""The metrics that clients have pushed, as a limited number of `/metrics` lines named `kafka_client_...`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Final
from uuid import UUID

from strandline.observability.exposition import escaped, escaped_help
from strandline.observability.otlp import Point

CLIENT_FAMILIES_MAX: Final = 1_000
CLIENT_SERIES_MAX: Final = 50_000
"""Series of all clients. More are dropped and counted."""
SERIES_PER_CLIENT_MAX: Final = 500
FAMILY_NAME_MAX: Final = 120

PREFIX: Final = "kafka_client_"
_THEIR_PREFIX: Final = "org.apache.kafka."
_RESOURCE_LABELS: Final = ("client_rack", "group_id", "transactional_id")
"""The attributes of a client that label each of its series. The others change too often."""
_UNFIT: Final = re.compile(r"[^a-zA-Z0-9_]")

Key = tuple[UUID, str]


class _Family:
    __slots__ = ("help", "kind", "values")

    def __init__(self, kind: str, text: str) -> None:
        self.kind = kind
        self.help = text
        self.values: dict[Key, float] = {}


class _Client:
    __slots__ = ("expires_ms", "keys", "labels")

    def __init__(self, labels: str) -> None:
        self.labels = labels
        self.keys: dict[tuple[str, str], None] = {}
        self.expires_ms = 0


class ClientSeries:
    """The series of all clients, each until its client stops pushing."""

    def __init__(self) -> None:
        self._families: dict[str, _Family] = {}
        self._clients: dict[UUID, _Client] = {}
        self.series = 0
        self.left_out = 0
        """Points dropped for lack of room, or because another client uses their name for another kind of metric."""

    def __len__(self) -> int:
        return len(self._clients)

    def begin(self, instance_id: UUID, client_id: str | None, *, expires_ms: int) -> None:
        """Begin a push of a client, whose series are removed unless it pushes again by `expires_ms`."""
        client = self._clients.get(instance_id)
        if client is None:
            labels = f'client_instance_id="{instance_id}",client_id="{escaped(client_id or "")}"'
            client = self._clients[instance_id] = _Client(labels)
        client.expires_ms = expires_ms

    def add(self, instance_id: UUID, point: Point) -> None:
        client = self._clients.get(instance_id)
        if client is None or not math.isfinite(point.value):
            return
        kind = "counter" if point.is_monotonic else "gauge"
        name = family_name(point.name, kind)
        family = self._families.get(name)
        if family is None and len(self._families) < CLIENT_FAMILIES_MAX:
            family = self._families[name] = _Family(kind, f"Pushed by clients as {point.name}.")
        if family is None or family.kind != kind:
            self.left_out += 1
            return
        labels = client.labels + _more_labels(point)
        key = (instance_id, labels)
        if key not in family.values:
            if self.series >= CLIENT_SERIES_MAX or len(client.keys) >= SERIES_PER_CLIENT_MAX:
                self.left_out += 1
                return
            self.series += 1
            client.keys[name, labels] = None
        before = family.values.get(key, 0.0)
        family.values[key] = before + point.value if point.is_delta else point.value

    def expire(self, now_ms: int) -> None:
        for instance_id, client in list(self._clients.items()):
            if client.expires_ms <= now_ms:
                self.forget(instance_id)

    def forget(self, instance_id: UUID) -> None:
        client = self._clients.pop(instance_id, None)
        if client is None:
            return
        self.series -= len(client.keys)
        for name, labels in client.keys:
            family = self._families[name]
            del family.values[instance_id, labels]
            if not family.values:
                del self._families[name]

    def pieces(self, now_ms: int) -> Iterator[str]:
        """Yield the lines, family by family."""
        self.expire(now_ms)
        for name, family in list(self._families.items()):
            yield f"# HELP {name} {escaped_help(family.help)}\n# TYPE {name} {family.kind}\n"
            for (_, labels), value in list(family.values.items()):
                yield f"{name}{{{labels}}} {value}\n"


def family_name(name: str, kind: str) -> str:
    plain = _UNFIT.sub("_", name.removeprefix(_THEIR_PREFIX))[:FAMILY_NAME_MAX]
    return f"{PREFIX}{plain}_total" if kind == "counter" and not plain.endswith("_total") else f"{PREFIX}{plain}"


def _more_labels(point: Point) -> str:
    taken = {"client_instance_id", "client_id"}
    parts = []
    resource = [(key, value) for key, value in point.resource if key in _RESOURCE_LABELS]
    for key, value in (*point.attributes, *resource):
        name = _UNFIT.sub("_", key)
        if name in taken or name[0].isdigit() or name.startswith("__"):
            continue
        taken.add(name)
        parts.append(f',{name}="{escaped(value)}"')
    return "".join(parts)

"""Client metrics subscriptions (KIP-714): which client pushes which metrics, how often, and which push is rejected.

Subscriptions are the CLIENT_METRICS resources of the cluster's configs. A client instance is a UUID that a client
chooses. It is remembered until its connection closes or three of its intervals pass. The caller passes the time;
nothing here reads a clock or the metrics themselves.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from strandline.codec.checksum import crc32c
from strandline.config.resource_settings import parse_match
from strandline.errors import ErrorCode, InvalidConfig, RequestError
from strandline.ids import ZERO_UUID
from strandline.runtime.bounded_patterns import matches

CLIENT_INSTANCES_MAX: Final = 16_384
"""Kafka's number. The instance that was silent for longest is removed."""
INTERVAL_MS_DEFAULT: Final = 300_000
EXPIRY_MS_MIN: Final = 60_000
ALL_METRICS: Final = "*"
ONE_UUID: Final = UUID(int=1)
"""Reserved by Kafka for the metadata topic, so no client may use it."""
CODECS_ACCEPTED: Final = (4, 3, 1, 2)
"""zstd, lz4, gzip, snappy: Kafka's order of preference."""
CODEC_LAST: Final = 4


class ClientConnection(Protocol):
    """The connection of a client instance."""

    closed: bool


class Client(NamedTuple):
    """The properties of a client that a subscription can match."""

    client_id: str = ""
    client_software_name: str = ""
    client_software_version: str = ""
    client_source_address: str = ""
    client_source_port: str = ""


class MetricsSubscription(NamedTuple):
    """One CLIENT_METRICS resource: metrics, interval and the clients that it matches."""

    metrics: tuple[str, ...]
    interval_ms: int
    match: Mapping[str, re.Pattern[str]]

    @classmethod
    def parse(cls, settings: Mapping[str, str]) -> MetricsSubscription:
        def words(name: str) -> tuple[str, ...]:
            return tuple(word.strip() for word in settings.get(name, "").split(",") if word.strip())

        return cls(words("metrics"), int(settings.get("interval.ms", INTERVAL_MS_DEFAULT)), parse_match(words("match")))

    def fits(self, instance_id: UUID, client: Client) -> bool:
        facts = {**client._asdict(), "client_instance_id": kafka_text(instance_id)}
        return all(matches(pattern, facts[selector]) for selector, pattern in self.match.items())


class ClientInstance:
    """One client instance with its subscription and the times of its requests."""

    __slots__ = (
        "got_ms",
        "id",
        "interval_ms",
        "is_terminating",
        "last_error",
        "metrics",
        "owner",
        "pushed_ms",
        "subscription_id",
        "used_ms",
        "version",
    )

    def __init__(
        self, instance_id: UUID, owner: ClientConnection, metrics: tuple[str, ...], interval_ms: int, version: int
    ) -> None:
        self.id = instance_id
        self.owner = owner
        self.metrics = metrics
        self.interval_ms = interval_ms
        self.version = version
        self.subscription_id = subscription_id(metrics, interval_ms, instance_id)
        self.got_ms = self.pushed_ms = self.used_ms = 0
        self.is_terminating = False
        self.last_error = ErrorCode.NONE

    @property
    def expires_ms(self) -> int:
        return self.used_ms + max(EXPIRY_MS_MIN, 3 * self.interval_ms)

    def admit_get(self, now_ms: int) -> bool:
        """Return whether a GetTelemetrySubscriptions is not too early, and note its time if so."""
        if now_ms - max(self.got_ms, self.pushed_ms) < self.interval_ms:
            return False
        self.got_ms = now_ms
        return True

    def admit_push(self, now_ms: int) -> bool:
        """Return whether a PushTelemetry is not too early, and note its time if so."""
        # The first push after a subscription may come early: clients spread theirs over 0.5 to 1.5 intervals.
        if self.got_ms <= self.pushed_ms and now_ms - self.pushed_ms < self.interval_ms:
            return False
        self.pushed_ms = now_ms
        return True


class ClientTelemetry:
    """The subscriptions of the cluster and the client instances of this node."""

    def __init__(self) -> None:
        self._instances: OrderedDict[UUID, ClientInstance] = OrderedDict()
        self._subscriptions: dict[str, MetricsSubscription] = {}
        self._configs: dict[str, dict[str, str]] = {}
        self._version = 0
        self.throttled = 0

    def __len__(self) -> int:
        return len(self._instances)

    def subscribe(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """Replace all subscriptions, name -> settings. Clients get the change with their next request."""
        wanted = {name: dict(settings) for name, settings in configs.items()}
        if wanted == self._configs:
            return
        self._configs = wanted
        self._version += 1
        self._subscriptions = {}
        for name, settings in wanted.items():
            try:
                self._subscriptions[name] = MetricsSubscription.parse(settings)
            except (InvalidConfig, ValueError):
                # The controller rejects such settings, but an older log may hold some. They match no client.
                continue

    def knows(self, instance_id: UUID) -> bool:
        return instance_id in self._instances

    def get(self, instance_id: UUID, client: Client, owner: ClientConnection, now_ms: int) -> ClientInstance:
        """Return the instance with its subscription. Raise RequestError if it asks too often."""
        instance = self._instance(instance_id, client, owner, now_ms)
        if not instance.admit_get(now_ms) and instance.last_error not in (
            ErrorCode.UNKNOWN_SUBSCRIPTION_ID,
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ):
            self.throttled += 1
            raise RequestError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "asked again before the push interval was over")
        instance.last_error = ErrorCode.NONE
        return instance

    def push(
        self,
        instance_id: UUID,
        client: Client,
        owner: ClientConnection,
        now_ms: int,
        *,
        asked_subscription_id: int,
        is_terminating: bool,
        codec: int,
        size_bytes: int,
        size_bytes_max: int,
    ) -> ClientInstance:
        """Return the instance whose metrics may be read. Raise RequestError if the push is rejected."""
        if instance_id in (ZERO_UUID, ONE_UUID):
            raise RequestError(ErrorCode.INVALID_REQUEST, "no client instance has this id")
        instance = self._instance(instance_id, client, owner, now_ms)
        try:
            self._check_push(instance, now_ms, asked_subscription_id, is_terminating, codec, size_bytes, size_bytes_max)
        except RequestError as error:
            instance.last_error = error.code
            raise
        finally:
            instance.is_terminating = is_terminating
        instance.last_error = ErrorCode.NONE
        return instance

    def _check_push(
        self,
        instance: ClientInstance,
        now_ms: int,
        asked_subscription_id: int,
        is_terminating: bool,
        codec: int,
        size_bytes: int,
        size_bytes_max: int,
    ) -> None:
        if instance.is_terminating:
            raise RequestError(ErrorCode.INVALID_REQUEST, "the client had said that it pushes for the last time")
        # A client that terminates may push once more at any time.
        if not instance.admit_push(now_ms) and not is_terminating:
            self.throttled += 1
            raise RequestError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "pushed before the push interval was over")
        if asked_subscription_id != instance.subscription_id:
            raise RequestError(
                ErrorCode.UNKNOWN_SUBSCRIPTION_ID, f"subscription {asked_subscription_id} is not current"
            )
        if not 0 <= codec <= CODEC_LAST:
            raise RequestError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression type {codec}")
        if size_bytes > size_bytes_max:
            raise RequestError(ErrorCode.TELEMETRY_TOO_LARGE, f"{size_bytes} bytes; {size_bytes_max} are allowed")

    def _instance(self, instance_id: UUID, client: Client, owner: ClientConnection, now_ms: int) -> ClientInstance:
        instance = self._instances.get(instance_id)
        if instance is not None and (instance.owner.closed or instance.expires_ms <= now_ms):
            instance = None
        if instance is None or instance.version < self._version:
            metrics, interval_ms = self._wanted_of(instance_id, client)
            instance = ClientInstance(instance_id, owner, metrics, interval_ms, self._version)
            self._instances[instance_id] = instance
        instance.used_ms = now_ms
        self._instances.move_to_end(instance_id)
        if len(self._instances) > CLIENT_INSTANCES_MAX:
            self._instances.popitem(last=False)
        return instance

    def _wanted_of(self, instance_id: UUID, client: Client) -> tuple[tuple[str, ...], int]:
        """Return the metrics of all matching subscriptions, and the shortest of their intervals."""
        metrics: dict[str, None] = {}
        interval_ms = INTERVAL_MS_DEFAULT
        for subscription in self._subscriptions.values():
            if subscription.fits(instance_id, client):
                metrics.update(dict.fromkeys(subscription.metrics))
                interval_ms = min(interval_ms, subscription.interval_ms)
        return ((ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics))), interval_ms


def subscription_id(metrics: tuple[str, ...], interval_ms: int, instance_id: UUID) -> int:
    """Return a number that changes with the subscription: its CRC-32C, mixed with the hash of the instance."""
    text = f"[{', '.join(metrics)}]{interval_ms}"
    halves = (instance_id.int >> 64) ^ (instance_id.int & 0xFFFFFFFFFFFFFFFF)
    mixed = crc32c(text.encode()) ^ (halves >> 32) ^ (halves & 0xFFFFFFFF)
    return mixed - (1 << 32) if mixed >= 1 << 31 else mixed


def kafka_text(value: UUID) -> str:
    """Format a UUID as Kafka does, and as patterns for `client_instance_id` match it."""
    from base64 import urlsafe_b64encode

    return urlsafe_b64encode(value.bytes).rstrip(b"=").decode()

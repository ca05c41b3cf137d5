"""The share partitions whose data this broker leads, and the sessions of the members that read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from strandline.broker.coordinating.delivery_watch import DeliveryWatch, ShareCounts
from strandline.broker.coordinating.group_topics import overrides_of_group
from strandline.broker.coordinating.led_share_partition import LedSharePartition
from strandline.broker.coordinating.state_persister import StatePersister
from strandline.broker.environment import Environment
from strandline.config.node_config import BrokerConfig
from strandline.coordinators.shares.delivery.delivery_history import DeliveryHistory
from strandline.coordinators.shares.delivery.share_sessions import PartitionName, ShareSession, ShareSessions
from strandline.coordinators.shares.delivery.share_settings import ShareSettings
from strandline.handlers.support.services import SessionConnection
from strandline.partition.partition import Partition
from strandline.quorum.image.cluster_image import SHARE_VERSION, ClusterImage

if TYPE_CHECKING:
    from strandline.broker.coordinating.dead_letters.dead_letter_writer import DeadLetters

DEAD_LETTERS_FROM: Final = 2
"""The level of `share.version` from which on groups have dead letters."""

_DEFAULTS: Final = ShareSettings()

HISTORIES_MAX: Final = 1_000
"""Share partitions whose history is kept, the last ones that were loaded."""


class ShareDelivery:
    """Delivers records of the partitions that this broker leads to the members of share groups."""

    def __init__(
        self,
        environment: Environment,
        persister: StatePersister,
        dead_letters: Callable[[], DeadLetters] | None = None,
    ) -> None:
        self._config = environment.config
        self._image = environment.image
        self._runtime = environment.runtime
        self._persister = persister
        self._dead_letters = dead_letters
        self.sessions: ShareSessions[SessionConnection] = ShareSessions(
            lambda: environment.config().group_share_max_share_sessions
        )
        self.counts = ShareCounts()
        self._groups: dict[str, dict[PartitionName, LedSharePartition]] = {}
        self._histories: dict[tuple[str, PartitionName], DeliveryHistory] = {}
        """What happened lately, also of share partitions that no member reads now; the last loaded one is the last."""
        self._settings: dict[str, tuple[BrokerConfig, ClusterImage, int, ShareSettings]] = {}
        """Settings of groups with sessions, with the configuration and the version of the image that they are from."""

    def close(self) -> None:
        for led in list(self.loaded()):
            led.drop()

    def settings_of(self, group_id: str) -> ShareSettings:
        """Return the settings of a group as they are now."""
        config, image = self._config(), self._image()
        known = self._settings.get(group_id)
        if known is not None and known[0] is config and known[1] is image and known[2] == image.version:
            return known[3]
        settings = _settings(config, overrides_of_group(self._image, group_id))
        if self._dead_letters is None or image.features.get(SHARE_VERSION, 0) < DEAD_LETTERS_FROM:
            settings = settings._replace(dead_letter_topic="")
        if self.sessions.has_group(group_id):
            self._settings[group_id] = config, image, image.version, settings
        return settings

    def find(self, group_id: str, name: PartitionName) -> LedSharePartition | None:
        """Return a share partition that was asked for before."""
        group = self._groups.get(group_id)
        return None if group is None else group.get(name)

    def loaded(self) -> Iterator[LedSharePartition]:
        """Yield the share partitions of all groups, with those that are being loaded."""
        for group in self._groups.values():
            yield from group.values()

    def open(self, group_id: str, partition: Partition) -> LedSharePartition:
        """Begin to load a share partition of a partition that this broker leads."""
        name = partition.topic_id.bytes, partition.index
        led = LedSharePartition(
            group_id,
            partition,
            self._persister,
            DeliveryWatch(self.counts, self._history_for(group_id, name), self._runtime.now_ms),
            settings_of=self.settings_of,
            on_dropped=self._on_dropped,
            dead_letters=self._dead_letters,
        )
        self._groups.setdefault(group_id, {})[name] = led
        led.load()
        return led

    def history_of(self, group_id: str, name: PartitionName) -> DeliveryHistory | None:
        """Return what happened lately in a share partition."""
        return self._histories.get((group_id, name))

    def _history_for(self, group_id: str, name: PartitionName) -> DeliveryHistory:
        history = self._histories.pop((group_id, name), None) or DeliveryHistory(self._runtime.now_ms())
        self._histories[group_id, name] = history
        if len(self._histories) > HISTORIES_MAX:
            del self._histories[next(iter(self._histories))]
        return history

    def _on_dropped(self, led: LedSharePartition) -> None:
        group = self._groups.get(led.group_id)
        name = led.partition.topic_id.bytes, led.partition.index
        if group is not None and group.get(name) is led:
            del group[name]
            if not group:
                del self._groups[led.group_id]

    # Sessions

    def open_session(
        self, group_id: str, member_id: str, connection: SessionConnection
    ) -> ShareSession[SessionConnection]:
        """Begin a session of a member; a former one ends. Raises RequestError if there are too many."""
        former = self.sessions.get(group_id, member_id)
        if former is not None:
            self.end_session(former)
        is_known = bool(self.sessions.of_connection(connection))
        session = self.sessions.open(group_id, member_id, connection)
        if not is_known:
            connection.when_closed(partial(self._on_disconnected, connection))
        for led in self._groups.get(group_id, {}).values():
            led.is_retiring = False
        return session

    def _on_disconnected(self, connection: SessionConnection) -> None:
        for session in self.sessions.of_connection(connection):
            self.end_session(session)

    def end_session(self, session: ShareSession[SessionConnection]) -> None:
        """End a session: what its member holds is available again."""
        if not self.sessions.end(session):
            return
        group_id = session.group_id
        group = list(self._groups.get(group_id, {}).values())
        for led in group:
            led.release(session.member_id)
        if not self.sessions.has_group(group_id):
            # Offsets of an empty group may be altered, and only what is loaded afterwards knows of it.
            self._settings.pop(group_id, None)
            for led in group:
                led.retire()


def _settings(config: BrokerConfig, overrides: Mapping[str, str]) -> ShareSettings:
    def number(name: str, default: int, least: int, most: int) -> int:
        given = overrides.get(name)
        # The limits of the node may have become narrower than what the group was given.
        return default if given is None else min(max(int(given), least), most)

    return ShareSettings(
        number(
            "share.delivery.count.limit",
            config.group_share_delivery_count_limit,
            config.group_share_min_delivery_count_limit,
            config.group_share_max_delivery_count_limit,
        ),
        number(
            "share.record.lock.duration.ms",
            config.group_share_record_lock_duration_ms,
            config.group_share_min_record_lock_duration_ms,
            config.group_share_max_record_lock_duration_ms,
        ),
        number(
            "share.partition.max.record.locks",
            config.group_share_partition_max_record_locks,
            config.group_share_min_partition_max_record_locks,
            config.group_share_max_partition_max_record_locks,
        ),
        overrides.get("share.auto.offset.reset", "latest"),
        overrides.get("share.isolation.level", "read_uncommitted").lower() == "read_committed",
        overrides.get("share.renew.acknowledge.enable", "true").strip().lower() == "true",
        dead_letter_topic=overrides.get("errors.deadletterqueue.topic.name", "").strip(),
        copies_dead_letters=_is_true(overrides.get("errors.deadletterqueue.copy.record.enable")),
        is_key_ordered=overrides.get("share.order", "none").lower() == "key",
        backoff_ms=int(overrides.get("strandline.share.backoff.ms", _DEFAULTS.backoff_ms)),
        backoff_max_ms=int(overrides.get("strandline.share.backoff.max.ms", _DEFAULTS.backoff_max_ms)),
        waiting_records_max=config.strandline_share_partition_max_waiting_records,
    )


def _is_true(text: str | None) -> bool:
    return text is not None and text.strip().lower() == "true"

"""Finds the shard of a group and runs it: which partition of `__consumer_offsets`, loaded or not, led here or not.

A shard is loaded when the first request for one of its groups comes; `coordinator_context` does the work from there on.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from functools import partial
from typing import Protocol

from strandline.broker.coordinating.coordinator_context import CoordinatorContext
from strandline.broker.coordinating.coordinator_runtime import (
    CoordinatorRuntime,
    CoordinatorTopic,
    CoordinatorTopicOfNode,
)
from strandline.broker.coordinating.group_log import GroupLog
from strandline.broker.coordinating.group_topics import TopicsOfNode, overrides_of_group
from strandline.broker.coordinating.pending_appends import InternalPartition, OnCommitted
from strandline.broker.coordinating.share_conversations import ShareConversation, ShareStates
from strandline.broker.environment import Environment
from strandline.config.node_config import BrokerConfig
from strandline.coordinators.groups.events import (
    DeleteShareState,
    InitializeShareState,
    TopicDeleted,
    TopicsChanged,
    TransactionEnded,
)
from strandline.coordinators.groups.group_config import (
    ConsumerSettings,
    GroupConfig,
    MigrationPolicy,
    Overrides,
    no_overrides,
)
from strandline.coordinators.groups.group_shard import GroupShard
from strandline.coordinators.groups.history.group_history import GroupHistory
from strandline.coordinators.groups.replay import replay
from strandline.coordinators.groups.topics import FixedTopics, Topics
from strandline.coordinators.offsets.plain_commit import PlainCommit
from strandline.coordinators.partitioning import CONSUMER_OFFSETS_TOPIC, partition_of_group
from strandline.handlers.support.auto_creation import create_missing
from strandline.handlers.support.context import BrokerServices
from strandline.handlers.support.services import EncodedWait
from strandline.runtime.runtime import Runtime

log = logging.getLogger("strandline.groups")


def groups_of_node(
    environment: Environment, services: BrokerServices, share_states: Callable[[], ShareStates]
) -> GroupDriver:
    """The groups of a real node."""
    config = group_config(
        environment.config(),
        overrides=partial(overrides_of_group, environment.image),
        has_access_rules=services.authorizer is not None,
    )
    return GroupDriver(
        environment.runtime,
        config,
        OffsetsTopicOfNode(environment, services),
        TopicsOfNode(environment.image),
        share_states,
    )


def group_config(
    settings: BrokerConfig, *, overrides: Overrides = no_overrides, has_access_rules: bool = False
) -> GroupConfig:
    return GroupConfig(
        has_access_rules=has_access_rules,
        min_session_timeout_ms=settings.group_min_session_timeout_ms,
        max_session_timeout_ms=settings.group_max_session_timeout_ms,
        initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
        group_size_max=settings.group_max_size,
        offset_metadata_size_max=settings.offset_metadata_max_bytes,
        offsets_retention_ms=settings.offsets_retention_minutes * 60_000,
        offsets_retention_check_interval_ms=settings.offsets_retention_check_interval_ms,
        is_consumer_protocol_enabled="consumer" in settings.group_coordinator_rebalance_protocols,
        consumer=ConsumerSettings(
            settings.group_consumer_session_timeout_ms,
            settings.group_consumer_heartbeat_interval_ms,
            settings.group_consumer_assignment_interval_ms,
        ),
        consumer_min=ConsumerSettings(
            settings.group_consumer_min_session_timeout_ms,
            settings.group_consumer_min_heartbeat_interval_ms,
            settings.group_consumer_min_assignment_interval_ms,
        ),
        consumer_max=ConsumerSettings(
            settings.group_consumer_max_session_timeout_ms,
            settings.group_consumer_max_heartbeat_interval_ms,
            settings.group_consumer_max_assignment_interval_ms,
        ),
        consumer_group_size_max=settings.group_consumer_max_size,
        consumer_assignors=settings.group_consumer_assignors,
        consumer_migration_policy=MigrationPolicy(settings.group_consumer_migration_policy.lower()),
        share=ConsumerSettings(
            settings.group_share_session_timeout_ms,
            settings.group_share_heartbeat_interval_ms,
            settings.group_share_assignment_interval_ms,
        ),
        share_min=ConsumerSettings(
            settings.group_share_min_session_timeout_ms,
            settings.group_share_min_heartbeat_interval_ms,
            settings.group_share_min_assignment_interval_ms,
        ),
        share_max=ConsumerSettings(
            settings.group_share_max_session_timeout_ms,
            settings.group_share_max_heartbeat_interval_ms,
            settings.group_share_max_assignment_interval_ms,
        ),
        share_group_size_max=settings.group_share_max_size,
        share_assignor=settings.group_share_assignors[0],
        overrides=overrides,
    )


class OffsetsTopic(CoordinatorTopic, Protocol):
    """`__consumer_offsets` as this node sees it."""

    def hash_level(self) -> int:
        """Which hash finds the partition of a group; the same as long as the cluster exists."""

    def partition(self, index: int) -> InternalPartition | None:
        """The partition if this node leads it."""

    def create(self) -> None:
        """Have the topic created if it does not exist; returns at once."""


class GroupDriver(CoordinatorRuntime[GroupShard]):
    _topic: OffsetsTopic

    def __init__(
        self,
        runtime: Runtime,
        config: GroupConfig,
        topic: OffsetsTopic,
        topics: Topics | None = None,
        share_states: Callable[[], ShareStates] | None = None,
    ) -> None:
        """`share_states` is called when the first share group needs them; without it there are no share groups."""
        super().__init__()
        self._share_states = share_states
        self._runtime = runtime
        self._config = config
        self._topic = topic
        self._topics = FixedTopics() if topics is None else topics
        self._group_log = GroupLog(runtime)
        self.plain_commits: dict[tuple[int, bytes], PlainCommit] = {}
        """By version and the bytes before the offset: what `handlers.support.plain_commits` remembers."""

    def configure(self, settings: BrokerConfig) -> None:
        """Obey the settings of the node as they are now."""
        self._config = group_config(
            settings, overrides=self._config.overrides, has_access_rules=self._config.has_access_rules
        )
        for hosted in self._hosted.values():
            hosted.shard.config = self._config

    @property
    def history(self) -> GroupHistory:
        """What this node saw of its groups, to look at and not to touch."""
        return self._group_log.history

    def partition_index(self, group_id: str) -> int:
        """The partition whose leader coordinates the group; FindCoordinator answers with that leader."""
        return partition_of_group(
            group_id, partition_count=self._topic.partition_count(), hash_level=self._topic.hash_level()
        )

    def ensure_topic(self) -> None:
        self._topic.create()

    def commit_plain(self, plain: PlainCommit, offset: int, leader_epoch: int, waiting: EncodedWait) -> bool:
        """Commit a position; `waiting` is answered or refused later. Return False, with nothing changed, if the
        request must be submitted instead."""
        hosted = self._hosted.get(plain.group_hash % self._topic.partition_count())
        if hosted is None or not hosted.may_act:
            return False
        committed = hosted.shard.commit_plain(plain, offset, leader_epoch, self._runtime.now_ms())
        if committed is None:
            return False
        record, session_timeout_ms = committed
        if session_timeout_ms is not None:
            hosted.restart_session(plain.session_key, session_timeout_ms)
        hosted.appends.append_plain(record, waiting, plain.response)
        return True

    def on_topic_deleted(self, name: str, topic_id: uuid.UUID) -> None:
        """Forget the offsets of a deleted topic, in shards that are being loaded too.

        A shard that is loaded later keeps them; the topic id makes them void.
        """
        event = TopicDeleted(name, topic_id)
        for hosted in list(self._hosted.values()):
            # A shard that is closed before it is loaded takes no step.
            hosted.when_loaded(partial(_step, hosted, event))

    def on_topics_changed(self, names: tuple[str, ...]) -> None:
        """Topics came, went, or have more partitions. A shard that is not loaded looks when it is."""
        event = TopicsChanged(frozenset(names))
        for hosted in list(self._hosted.values()):
            if not hosted.is_loading:
                hosted.step(event)

    def append_marker(
        self, index: int, ended: TransactionEnded, append: Callable[[OnCommitted], object], on_committed: OnCommitted
    ) -> None:
        """Have `append` write the marker of a transaction into a partition that is led here, in step with its groups.

        `append` is given what to call back when the marker is committed, and what it raises is raised. A shard that is
        not loaded will read the marker when it is.
        """
        hosted = self._hosted.get(index)
        if hosted is None:
            append(on_committed)
        else:
            hosted.append_marker(ended, append, on_committed)

    def _host(self, index: int) -> CoordinatorContext[GroupShard] | None:
        partition = self._topic.partition(index)
        if partition is None:
            return None
        shard = GroupShard(self._config, self._runtime.random, self._topics, self._group_log.history)

        def on_closed() -> None:
            self._hosted.pop(index, None)
            self._group_log.interrupt(shard.groups)

        hosted = CoordinatorContext(
            f"{CONSUMER_OFFSETS_TOPIC}-{index}",
            self._runtime,
            shard,
            replay,
            partition,
            tell=self._group_log.tell,
            on_effect=lambda effect: self._converse(hosted, effect),
            on_closed=on_closed,
        )
        self._hosted[index] = hosted
        hosted.load_more()
        return self._hosted.get(index)

    def _converse(
        self, hosted: CoordinatorContext[GroupShard], effect: InitializeShareState | DeleteShareState
    ) -> None:
        assert self._share_states is not None
        # A shard that is closed meanwhile takes no step, and the next one asks again.
        ShareConversation(effect, self._share_states(), hosted.step).begin()


def _step(hosted: CoordinatorContext[GroupShard], event: TopicDeleted, is_loaded: bool) -> None:
    if is_loaded:
        hosted.step(event)


class OffsetsTopicOfNode(CoordinatorTopicOfNode):
    """`__consumer_offsets` of a real node."""

    def __init__(self, environment: Environment, services: BrokerServices) -> None:
        super().__init__(
            environment, services.partition, CONSUMER_OFFSETS_TOPIC, lambda config: config.offsets_topic_num_partitions
        )
        self._services = services

    def create(self) -> None:
        create_missing(self._services, [CONSUMER_OFFSETS_TOPIC], _log_failure)


def _log_failure(refused: dict[str, int]) -> None:
    for name, code in refused.items():
        log.error("%s could not be created: error code %d", name, code)

"""What all commands of the controller share: the cluster with everything that was decided, sessions, settings.

`image` is the controller's own: it holds what was decided and is not committed yet. Asking for it on a node that is
not the active controller raises NOT_CONTROLLER, and so does every command.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar

from strandline.codec.messages.partition_change_record import PartitionChangeRecord
from strandline.config.node_config import BrokerConfig
from strandline.errors import ErrorCode, RequestError
from strandline.quorum.controller.brokers.broker_liveness import BrokerLiveness
from strandline.quorum.controller.brokers.broker_sessions import BrokerSessions
from strandline.quorum.controller.new_topics import IN_SYNC_MIN
from strandline.quorum.controller.partition_changes import Election, PartitionChange
from strandline.quorum.controller.prepared_records import folds_of
from strandline.quorum.controller.topic_names import collision_key
from strandline.quorum.controller.topic_tiering import keeps_objects
from strandline.quorum.image.cluster_image import (
    ELIGIBLE_LEADER_REPLICAS,
    LOST_DIRECTORY,
    MIGRATING_DIRECTORY,
    RESOURCE_BROKER,
    UNASSIGNED_DIRECTORY,
    BrokerImage,
    ClusterImage,
    PartitionImage,
    Topic,
)

if TYPE_CHECKING:
    import random

T = TypeVar("T")
Decision = tuple[list[Any], T]
"""Records, and what came of one thing that was asked."""
Decisions = Iterator[Decision[T] | None]
"""One decision after the other; None where others may be served before the next is made."""
Steps = Generator[list[Any], None, T]
"""A long decision: each list of records is written before the next is asked for; the outcome is returned."""

Then = Callable[[int], list[Any]]
"""Decides the last records of a step, given how many come before them in it."""

CHANGES_PER_STEP: Final = 150
LOOKS_PER_STEP: Final = 4_000
"""A step ends after so many changes, or after so many partitions that needed none: both take a few milliseconds."""

UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"


class ControllerState:
    def __init__(self, config: BrokerConfig, rng: random.Random) -> None:
        self.config = config
        self.rng = rng
        self.sessions = BrokerSessions()
        self.liveness = BrokerLiveness(is_proven=config.is_broker)
        self.leaving: dict[int, int] = {}
        """Brokers that are taken out of in-sync sets step by step, by how many steps; not to be put back meanwhile."""
        self.topic_by_collision_key: dict[str, str] = {}
        self.changes_per_step = CHANGES_PER_STEP
        self._image: ClusterImage | None = None

    # The image.

    @property
    def is_active(self) -> bool:
        return self._image is not None

    @property
    def refusal(self) -> RequestError | None:
        """Why nothing is decided here; None where it is."""
        if self._image is not None:
            return None
        return RequestError(ErrorCode.NOT_CONTROLLER, "This node is not the active controller.")

    @property
    def image(self) -> ClusterImage:
        if self._image is None:
            raise RequestError(ErrorCode.NOT_CONTROLLER, "This node is not the active controller.")
        return self._image

    def take(self, image: ClusterImage | None) -> None:
        """Decide about this image, which only the controller changes, from now on; None: decide no more."""
        self._image = image
        self.leaving = {}
        names = () if image is None else image.topics
        self.topic_by_collision_key = {collision_key(name): name for name in names}

    def decided(self, records: list[Any]) -> list[Any]:
        image = self.image
        for each in folds_of(records):
            image.apply(each)
        return records

    # Brokers.

    def broker(self, broker_id: int, broker_epoch: int) -> BrokerImage:
        """Return the broker of this epoch; raise STALE_BROKER_EPOCH if another incarnation is registered, or none."""
        broker = self.image.brokers.get(broker_id)
        if broker is None:
            raise RequestError(ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}")
        if broker.epoch != broker_epoch:
            raise RequestError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"Expected broker epoch {broker.epoch}, but got broker epoch {broker_epoch}",
            )
        return broker

    def is_usable(self, broker_id: int) -> bool:
        """Return whether the broker is active and stays so."""
        broker = self.image.brokers.get(broker_id)
        return broker is not None and broker.is_active and broker_id not in self.leaving

    def may_lead(self, partition: PartitionImage, broker_id: int) -> bool:
        """Return whether the broker is active, stays so, and its directory with this partition is online."""
        return self.is_usable(broker_id) and self._has_directory(partition, self.image.brokers[broker_id])

    def _has_directory(self, partition: PartitionImage, broker: BrokerImage) -> bool:
        session = self.sessions.get(broker.id)
        online = broker.registration.log_dirs
        if not partition.directories or (not online and (session is None or not session.offline_dirs)):
            return True
        try:
            directory = partition.directories[partition.replicas.index(broker.id)]
        except (ValueError, IndexError):
            return True
        if directory in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY):
            return True
        if directory == LOST_DIRECTORY or (session is not None and directory in session.offline_dirs):
            return False
        return not online or directory in online

    def directory_of(self, broker_id: int) -> uuid.UUID:
        """Return the directory of a new replica: the only one of the broker, or the id that lets it choose."""
        broker = self.image.brokers.get(broker_id)
        log_dirs = () if broker is None else broker.registration.log_dirs
        return log_dirs[0] if len(log_dirs) == 1 else UNASSIGNED_DIRECTORY

    # Partitions.

    @property
    def has_elr(self) -> bool:
        return self.image.features.get(ELIGIBLE_LEADER_REPLICAS, 0) >= 1

    def in_sync_min(self, topic: Topic) -> int:
        """`min.insync.replicas` as the cluster's metadata has it, and so as every node sees it.

        What a node has in its own file does not count: a leader that asked for fewer replicas in sync than we believe
        would acknowledge what an eligible leader replica does not hold.
        """
        value = topic.config_overrides.get(IN_SYNC_MIN)
        if value is None:
            value = self.image.configs.get((RESOURCE_BROKER, ""), {}).get(IN_SYNC_MIN, "1")
        return int(value) if value.isascii() and value.isdigit() else 1

    def election_of(self, topic: Topic) -> Election:
        """ONLINE, or UNCLEAN where the topic's settings allow it, or none of its replicas holds what others lack."""
        if keeps_objects(topic):
            return Election.UNCLEAN
        value = topic.config_overrides.get(UNCLEAN_ELECTION)
        if value is None:
            is_allowed = self.config.topic_defaults.unclean_leader_election_enable
        else:
            is_allowed = value.strip().lower() == "true"
        return Election.UNCLEAN if is_allowed else Election.ONLINE

    def change(self, topic: Topic, index: int, *, in_sync_min: int | None = None) -> PartitionChange:
        """Return a change of a partition, to be filled in."""
        return PartitionChange(
            topic.id,
            index,
            topic.partitions[index],
            self.may_lead,
            self.directory_of,
            self.in_sync_min(topic) if in_sync_min is None else in_sync_min,
            self.has_elr,
        )

    def change_partitions(
        self,
        concerns: Callable[[PartitionImage], bool],
        change: Callable[[PartitionChange], PartitionChangeRecord | None],
        then: Then | None = None,
    ) -> Steps[None]:
        """Change every partition that `concerns` is true for, in steps; `then` is decided in the last of them.

        The topics are those of now; those deleted meanwhile are passed over. Topics created later are decided upon
        with what holds then. Nothing is decided ahead of the step it is handed out with: the log must have the records
        in the order of the decisions.
        """
        ids = [topic.id for topic in self.image.topics.values()]
        records: list[Any] = []
        looks = 0
        for topic_id in ids:
            topic = self.image.topic_by_id(topic_id)
            index = 0
            election = in_sync_min = None
            while topic is not None and index < len(topic.partitions):
                looks += 1
                partition = topic.partitions[index]
                if partition.replicas and concerns(partition):
                    if election is None:
                        election, in_sync_min = self.election_of(topic), self.in_sync_min(topic)
                    asked = self.change(topic, index, in_sync_min=in_sync_min)
                    asked.election = election
                    record = change(asked)
                    if record is not None:
                        records += self.decided([record])
                index += 1
                if len(records) >= self.changes_per_step or looks >= LOOKS_PER_STEP:
                    yield records
                    records, looks = [], 0
                    topic = self.image.topic_by_id(topic_id)
                    election = None
        if then is not None:
            records += then(len(records))
        if records:
            yield records

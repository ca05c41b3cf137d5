"""The controller: commands in, metadata records out, or a refusal with Kafka's error code.

The controller has an image of its own that already holds what it decided but the log does not hold yet. So two
requests for the same topic, one right behind the other, are told apart before the first is on disk. An answer must
wait until every record decided before it is flushed: hand the records (even an empty list) to the driver, and answer
when it says so. If a write fails, `revert` returns the controller to what is really in the log.

Only the active controller decides. Wiring (`broker/node.py`):

    metadata.on_leading      controller.activate(metadata.image, runtime.monotonic())
    metadata.on_not_leading  controller.deactivate(): from then on every command raises RequestError(NOT_CONTROLLER)
    metadata.on_failed       controller.revert(image, pending)
    by time                  records = controller.tick(now), written when there are any; again in the next turn of the
                             loop while `controller.is_busy`, else at `controller.deadline` (None: nothing to wait for)

What may concern thousands of partitions comes in shares: a `Steps` generator yields records, each list to be written
before the next is asked for, and returns the outcome (`handlers/steps.py` runs it for the handlers).
"""

from __future__ import annotations

import dataclasses
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from strandline.codec.messages.alter_partition_request import AlterPartitionRequest
from strandline.codec.messages.alter_partition_response import AlterPartitionResponse
from strandline.codec.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from strandline.codec.messages.broker_heartbeat_response import BrokerHeartbeatResponse
from strandline.codec.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from strandline.codec.messages.broker_registration_request import BrokerRegistrationRequest
from strandline.codec.messages.controller_registration_request import ControllerRegistrationRequest
from strandline.codec.messages.feature_level_record import FeatureLevelRecord
from strandline.codec.messages.partition_change_record import PartitionChangeRecord
from strandline.codec.messages.producer_ids_record import ProducerIdsRecord
from strandline.codec.messages.register_broker_record import BrokerEndpoint, BrokerFeature, RegisterBrokerRecord
from strandline.codec.messages.remove_topic_record import RemoveTopicRecord
from strandline.config import BrokerConfig
from strandline.errors import ErrorCode, RequestError
from strandline.ids import ZERO_UUID
from strandline.quorum.cluster_image import METADATA_VERSION, ClusterImage, Topic, fold
from strandline.quorum.config_changes import ConfigAlteration, config_records
from strandline.quorum.features import (
    METADATA_VERSION_LEVEL,
    SUPPORTED_FEATURES,
    FeatureUpdate,
    feature_records,
)
from strandline.quorum.new_partitions import MorePartitions, added_count, new_partition_records
from strandline.quorum.new_topics import (
    CreatedTopic,
    NewTopic,
    internal_topic,
    new_topic_records,
    partition_count_asked,
)
from strandline.quorum.topic_names import CLUSTER_METADATA, check_topic_name, collision_key

if TYPE_CHECKING:
    import random

PRODUCER_ID_BLOCK_SIZE: Final = 1000
PRODUCER_ID_MAX: Final = 2**63 - 1
PARTITIONS_PER_REQUEST_MAX: Final = 10_000
TOPICS_PER_REQUEST_MAX: Final = 10_000
"""Topics that one request may create, delete or give partitions to; as Kafka, whose limit is on the records."""

T = TypeVar("T")
Decision = tuple[list[Any], T]
"""Records, and what came of one thing that was asked."""

# What BrokerRegistrationChangeRecord says about fencing.
FENCE: Final = 1
UNFENCE: Final = -1


@dataclasses.dataclass(frozen=True, slots=True)
class TopicRef:
    """A topic by name or by id, as DeleteTopics names it."""

    name: str | None = None
    id: uuid.UUID = ZERO_UUID


@dataclasses.dataclass(frozen=True, slots=True)
class DeletedTopic:
    name: str | None
    id: uuid.UUID
    error: RequestError | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """The producer ids from `first` up to, not including, `end`."""

    first: int
    end: int


class Controller:
    """Decides what the cluster becomes. Pure: randomness comes in, records go out."""

    def __init__(self, image: ClusterImage, *, config: BrokerConfig, rng: random.Random) -> None:
        self._config = config
        self._rng = rng
        self.revert(image)

    def revert(self, committed: ClusterImage, still_pending: Iterable[Any] = ()) -> None:
        """Forget what was decided but never reached the log; `still_pending` are earlier records on their way there."""
        self._image = fold([*committed.records(), *still_pending])
        self._topic_by_collision_key = {collision_key(name): name for name in self._image.topics}

    def _decided(self, records: list[Any]) -> list[Any]:
        for record in records:
            self._image.apply(record)
        return records

    def bootstrap(self) -> list[Any]:
        """The first records of a fresh metadata log."""
        return self._decided([FeatureLevelRecord(name=METADATA_VERSION, feature_level=METADATA_VERSION_LEVEL)])

    # The cluster: what the active controller does. Signatures first; what performs them follows.

    is_active: bool
    is_busy: bool
    """Whether `tick` has more to do at once."""
    deadline: float | None
    """When `tick` has something to do next, in seconds of the monotonic clock."""

    def activate(self, image: ClusterImage, now: float) -> None:
        """Begin to decide; `image` holds everything that was committed. Every broker gets a fresh session."""
        raise NotImplementedError

    def deactivate(self) -> None:
        """Another may lead: forget everything that was decided here."""
        raise NotImplementedError

    def tick(self, now: float) -> list[Any]:
        """One share of what time brings: sessions that end, leaders to move, preferred leaders, unclean elections."""
        raise NotImplementedError

    def registration(
        self, request: BrokerRegistrationRequest, *, cluster_id: str, now: float, next_offset: Callable[[], int]
    ) -> Generator[list[Any], None, int]:
        """BrokerRegistration; returns the broker epoch. `next_offset()` is the offset of the next record written."""
        raise NotImplementedError

    def heartbeat(self, request: BrokerHeartbeatRequest, *, now: float) -> Decision[BrokerHeartbeatResponse]:
        raise NotImplementedError

    def unregistration(self, broker_id: int) -> Generator[list[Any], None, None]:
        raise NotImplementedError

    def register_controller(self, request: ControllerRegistrationRequest) -> list[Any]:
        raise NotImplementedError

    def alter_partition(self, request: AlterPartitionRequest, *, version: int) -> Decision[AlterPartitionResponse]:
        raise NotImplementedError

    def register_broker(
        self,
        broker_id: int,
        *,
        epoch: int,
        incarnation_id: uuid.UUID,
        endpoints: Iterable[tuple[str, str, int]],
        log_dirs: Iterable[uuid.UUID] = (),
        rack: str | None = None,
    ) -> list[Any]:
        """The records of a broker that starts: registered, unfenced, and leader again of what only it can lead.

        `epoch` is the offset that the first of these records will have; `endpoints` are (listener, host, port). Every
        partition it leads gets a new leader epoch, so that readers can tell what was appended before the restart from
        what came after, even where a power cut took an unflushed tail away.
        """
        features = [
            BrokerFeature(name=name, min_supported_version=lowest, max_supported_version=highest)
            for name, (lowest, highest) in SUPPORTED_FEATURES.items()
        ]
        registration = RegisterBrokerRecord(
            broker_id=broker_id,
            incarnation_id=incarnation_id,
            broker_epoch=epoch,
            end_points=[BrokerEndpoint(name=name, host=host, port=port) for name, host, port in endpoints],
            features=features,
            rack=rack,
            fenced=True,
            log_dirs=list(log_dirs),
        )
        unfencing = BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, fenced=UNFENCE)
        elections = [
            PartitionChangeRecord(partition_id=index, topic_id=topic.id, leader=broker_id)
            for topic in self._image.topics.values()
            for index, partition in enumerate(topic.partitions)
            if partition.leader == broker_id or (partition.leader < 0 and partition.isr == [broker_id])
        ]
        return self._decided([registration, unfencing, *elections])

    def allocate_producer_ids(
        self, broker_id: int, broker_epoch: int, block_size: int = PRODUCER_ID_BLOCK_SIZE
    ) -> tuple[list[Any], ProducerIdBlock]:
        """A block of ids that nobody had and nobody else will get. It may be used once its record is flushed."""
        first = self._image.next_producer_id
        if first > PRODUCER_ID_MAX - block_size:
            raise RequestError(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids have been given away.")
        block = ProducerIdBlock(first, first + block_size)
        record = ProducerIdsRecord(broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=block.end)
        return self._decided([record]), block

    def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> tuple[list[Any], list[CreatedTopic | RequestError]]:
        """Records, and for each topic in order what was created or why it was not. One bad topic spoils no other."""
        return _all_of(self.decide_topics(topics, validate_only=validate_only))

    def decide_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> Iterator[Decision[CreatedTopic | RequestError]]:
        """The same, one topic at a time: a thousand take longer than the loop may be kept.

        Records must be handed to the driver before anybody else asks for a decision. Between two steps others may
        have theirs: each topic is held against what is decided when its turn comes.
        """
        refusal = _too_many(sum(partition_count_asked(topic, self._config) for topic in topics))
        times = Counter(topic.name for topic in topics)
        taken_here: dict[str, str] = {}
        for topic in topics:
            if refusal is not None:
                yield [], refusal
                continue
            try:
                if times[topic.name] > 1:
                    raise RequestError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
                self._check_name_is_free(topic.name, taken_here)
                records, created = new_topic_records(topic, image=self._image, config=self._config, rng=self._rng)
            except RequestError as error:
                yield [], error
                continue
            if validate_only:
                taken_here[collision_key(topic.name)] = topic.name
                yield [], created
            else:
                self._topic_by_collision_key[collision_key(topic.name)] = topic.name
                yield self._decided(records), created

    def create_internal_topic(self, name: str) -> tuple[list[Any], CreatedTopic | RequestError]:
        """`__consumer_offsets` with the node's settings for it."""
        try:
            topic = internal_topic(name, image=self._image, config=self._config)
        except RequestError as refusal:
            return [], refusal
        records, outcomes = self.create_topics([topic])
        return records, outcomes[0]

    def _check_name_is_free(self, name: str, taken_here: dict[str, str]) -> None:
        check_topic_name(name)
        if name == CLUSTER_METADATA:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
        key = collision_key(name)
        holder = self._topic_by_collision_key.get(key) or taken_here.get(key)
        if holder == name:
            raise RequestError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if holder is not None:
            message = f"Topic '{name}' collides with existing topic: {holder}"
            raise RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)

    def create_partitions(
        self, asked: Sequence[MorePartitions], *, validate_only: bool = False
    ) -> tuple[list[Any], list[RequestError | None]]:
        """Records, and for each topic in order None or why it gets no more partitions."""
        return _all_of(self.decide_partitions(asked, validate_only=validate_only))

    def decide_partitions(
        self, asked: Sequence[MorePartitions], *, validate_only: bool = False
    ) -> Iterator[Decision[RequestError | None]]:
        """The same, one topic at a time, as `decide_topics` does."""
        refusal = _too_many(sum(added_count(topic, self._image) for topic in asked))
        times = Counter(topic.name for topic in asked)
        for topic in asked:
            if refusal is not None:
                yield [], refusal
                continue
            try:
                if times[topic.name] > 1:
                    raise RequestError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
                records = new_partition_records(topic, image=self._image, rng=self._rng)
            except RequestError as error:
                yield [], error
                continue
            yield [] if validate_only else self._decided(records), None

    def update_features(self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False) -> list[Any]:
        """The records of new feature levels; RequestError, and no record, if one of them may not be."""
        records = feature_records(updates, self._image.features)
        return [] if validate_only else self._decided(list(records))

    def configure(self, config: BrokerConfig) -> None:
        """The node's settings changed; what is decided from now on obeys the new ones."""
        self._config = config

    def decide_configs(
        self, asked: Sequence[ConfigAlteration], *, node_id: int | None, validate_only: bool = False
    ) -> Iterator[Decision[RequestError | None]]:
        """For each resource in order its records and None, or why its settings stay; one at a time, as above."""
        times = Counter((each.resource_type, each.resource_name) for each in asked)
        for each in asked:
            try:
                if times[each.resource_type, each.resource_name] > 1:
                    raise RequestError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
                records = config_records(each, image=self._image, config=self._config, node_id=node_id)
            except RequestError as error:
                yield [], error
                continue
            yield [] if validate_only else self._decided(list(records)), None

    def delete_topics(self, refs: Sequence[TopicRef]) -> tuple[list[Any], list[DeletedTopic]]:
        """Records, and an outcome for each reference in order; names or ids that stand twice are refused both times."""
        return _all_of(self.decide_deletions(refs))

    def decide_deletions(self, refs: Sequence[TopicRef]) -> Iterator[Decision[DeletedTopic]]:
        """The same, one topic at a time, as `decide_topics` does."""
        times = Counter(topic.id for topic in map(self._resolve, refs) if isinstance(topic, Topic))
        names = Counter(ref.name for ref in refs)
        ids = Counter(ref.id for ref in refs)
        for ref in refs:
            # Resolved again when its turn comes: another request may have deleted it since.
            topic = self._resolve(ref)
            if isinstance(topic, Topic):
                stands_twice = times[topic.id] > 1
            else:
                stands_twice = (topic.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and names[ref.name] > 1) or (
                    topic.code == ErrorCode.UNKNOWN_TOPIC_ID and ids[ref.id] > 1
                )
            if stands_twice:
                refusal = RequestError(ErrorCode.INVALID_REQUEST, "The topic stands more than once in the request.")
                yield [], DeletedTopic(ref.name, ref.id, refusal)
            elif isinstance(topic, RequestError):
                yield [], DeletedTopic(ref.name, ref.id, topic)
            else:
                self._topic_by_collision_key.pop(collision_key(topic.name), None)
                yield self._decided([RemoveTopicRecord(topic_id=topic.id)]), DeletedTopic(topic.name, topic.id)

    def _resolve(self, ref: TopicRef) -> Topic | RequestError:
        if not self._config.delete_topic_enable:
            return RequestError(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
        if ref.name is not None and ref.id != ZERO_UUID:
            return RequestError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
        if ref.name is not None:
            topic = self._image.topic_by_name(ref.name)
            return topic or RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This topic does not exist.")
        if ref.id == ZERO_UUID:
            return RequestError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
        topic = self._image.topic_by_id(ref.id)
        return topic or RequestError(ErrorCode.UNKNOWN_TOPIC_ID, "This topic id does not exist.")


def _all_of(decisions: Iterator[Decision[T]]) -> tuple[list[Any], list[T]]:
    records: list[Any] = []
    outcomes: list[T] = []
    for each, outcome in decisions:
        records += each
        outcomes.append(outcome)
    return records, outcomes


def too_many_topics(count: int) -> RequestError | None:
    """Why a request that names so many topics is refused, before anything is made of it."""
    if count <= TOPICS_PER_REQUEST_MAX:
        return None
    message = f"{count} topics are more than the {TOPICS_PER_REQUEST_MAX} one request may name."
    return RequestError(ErrorCode.POLICY_VIOLATION, message)


def _too_many(partitions: int) -> RequestError | None:
    if partitions <= PARTITIONS_PER_REQUEST_MAX:
        return None
    message = f"{partitions} partitions are more than the {PARTITIONS_PER_REQUEST_MAX} one request may create."
    return RequestError(ErrorCode.POLICY_VIOLATION, message)

"""Topics and partitions on request: creation, more partitions, deletion.

One topic at a time where a request may name thousands. Records must be handed to the driver before anybody else asks
for a decision; between two steps others may have theirs, so each topic is held against what is decided when its turn
comes.

One topic may have thousands of partitions. Its records are made with pauses, and nothing is decided before the last of
them: a controller that loses its office in between leaves nothing behind. If what they rest on changes in a pause
(the brokers, the defaults, the topic of that name), they are made again.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, TypeVar, cast

from strandline.codec.messages.remove_topic_record import RemoveTopicRecord
from strandline.errors import ErrorCode, RequestError
from strandline.ids import ZERO_UUID
from strandline.quorum.controller.new_partitions import MorePartitions, added_count, new_partition_records
from strandline.quorum.controller.new_topics import (
    CreatedTopic,
    NewTopic,
    Pauses,
    new_topic_records,
    partition_count_asked,
)
from strandline.quorum.controller.retention_lock import check_deletion
from strandline.quorum.controller.state import ControllerState, Decision, Decisions
from strandline.quorum.controller.topic_names import CLUSTER_METADATA, check_topic_name, collision_key
from strandline.quorum.controller.topic_tiering import check_commit_log_stays
from strandline.quorum.image.cluster_image import RESOURCE_BROKER, Topic

PARTITIONS_PER_REQUEST_MAX: Final = 10_000
TOPICS_PER_REQUEST_MAX: Final = 10_000
"""Topics that one request may create, delete or give partitions to; as Kafka, whose limit is on the records."""

ATTEMPTS_MAX: Final = 3
"""Times that the records of one topic are begun. The last time they are made in one turn, which always ends."""

T = TypeVar("T")
Pay = Callable[[int], object]
"""Charges a client for so many partitions; raises RequestError if it may not have the change."""


def _free(partitions: int) -> None:
    """Charge nothing."""


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


class TopicCommands:
    def __init__(self, state: ControllerState) -> None:
        self._state = state

    def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> tuple[list[Any], list[CreatedTopic | RequestError]]:
        """Return records, and for each topic in order what was created or why it was not, independent of the others."""
        return _all_of(self.decide_topics(topics, validate_only=validate_only))

    def decide_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False, pay: Pay = _free
    ) -> Decisions[CreatedTopic | RequestError]:
        """Yield the same, one topic at a time, because many topics or a large one take longer than one turn may.

        Records must be handed to the driver before anybody else asks for a decision. Between two steps others may
        have theirs: each topic is held against what is decided when its turn comes.
        """
        refusal = (
            _too_many_topics(len(topics))
            or self._state.refusal
            or _too_many_partitions(sum(partition_count_asked(topic, self._state.config) for topic in topics))
        )
        times = Counter(topic.name for topic in topics)
        taken_here: dict[str, str] = {}
        for topic in topics:
            if refusal is not None:
                yield [], refusal
                continue
            try:
                if times[topic.name] > 1:
                    raise RequestError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
                make = partial(self._new_topic_records, topic, taken_here)
                records, created = yield from self._made(topic.name, make)
                pay(created.partition_count)
            except RequestError as error:
                yield [], error
                continue
            if validate_only:
                taken_here[collision_key(topic.name)] = topic.name
                yield [], created
            else:
                self._state.topic_by_collision_key[collision_key(topic.name)] = topic.name
                yield self._state.decided(records), created

    def _new_topic_records(self, topic: NewTopic, taken_here: dict[str, str]) -> Pauses[tuple[list[Any], CreatedTopic]]:
        self._check_name_is_free(topic.name, taken_here)
        state = self._state
        return new_topic_records(
            topic, image=state.image, config=state.config, rng=state.rng, is_usable=state.is_usable
        )

    def _made(self, name: str, make: Callable[[], Pauses[T]]) -> Pauses[T]:
        """Return what `make` makes of the topic of this name; over again if a pause changed what it rests on."""
        for attempt in range(1, ATTEMPTS_MAX + 1):
            image, grounds, steps = self._state.image, self._grounds(name), make()
            # After each pause, not at the end: a step cannot be made for a broker that is gone.
            while self._state.image is image and self._grounds(name) == grounds:
                try:
                    next(steps)
                except StopIteration as end:
                    return cast("T", end.value)
                if attempt < ATTEMPTS_MAX:
                    yield
        raise AssertionError("the last attempt has no pauses")

    def _grounds(self, name: str) -> tuple[Any, ...]:
        """Return what the records of a new topic, or of new partitions, rest on."""
        state = self._state
        topic = state.image.topic_by_name(name)
        return (
            state.image.brokers_version,
            dict(state.leaving),
            state.config,
            dict(state.image.configs.get((RESOURCE_BROKER, ""), {})),
            state.topic_by_collision_key.get(collision_key(name)),
            None if topic is None else (topic.id, len(topic.partitions)),
        )

    def _check_name_is_free(self, name: str, taken_here: dict[str, str]) -> None:
        check_topic_name(name)
        if name == CLUSTER_METADATA:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
        key = collision_key(name)
        holder = self._state.topic_by_collision_key.get(key) or taken_here.get(key)
        if holder == name:
            raise RequestError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if holder is not None:
            message = f"Topic '{name}' collides with existing topic: {holder}"
            raise RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)

    def create_partitions(
        self, asked: Sequence[MorePartitions], *, validate_only: bool = False
    ) -> tuple[list[Any], list[RequestError | None]]:
        """Return records, and for each topic in order None or why it gets no more partitions."""
        return _all_of(self.decide_partitions(asked, validate_only=validate_only))

    def decide_partitions(
        self, asked: Sequence[MorePartitions], *, validate_only: bool = False, pay: Pay = _free
    ) -> Decisions[RequestError | None]:
        """The same, one topic at a time, as `decide_topics` does."""
        refusal = (
            _too_many_topics(len(asked))
            or self._state.refusal
            or _too_many_partitions(sum(added_count(topic, self._state.image) for topic in asked))
        )
        times = Counter(topic.name for topic in asked)
        for topic in asked:
            if refusal is not None:
                yield [], refusal
                continue
            try:
                if times[topic.name] > 1:
                    raise RequestError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
                records = yield from self._made(topic.name, partial(self._new_partition_records, topic))
                pay(added_count(topic, self._state.image))
            except RequestError as error:
                yield [], error
                continue
            yield [] if validate_only else self._state.decided(records), None

    def _new_partition_records(self, asked: MorePartitions) -> Pauses[list[Any]]:
        state = self._state
        return new_partition_records(asked, image=state.image, rng=state.rng, is_usable=state.is_usable)

    def delete_topics(self, refs: Sequence[TopicRef]) -> tuple[list[Any], list[DeletedTopic]]:
        """Return records, and an outcome for each reference in order; duplicate names or ids are all rejected."""
        return _all_of(self.decide_deletions(refs))

    def decide_deletions(self, refs: Sequence[TopicRef], *, pay: Pay = _free) -> Iterator[Decision[DeletedTopic]]:
        """The same, one topic at a time, as `decide_topics` does."""
        refusal = _too_many_topics(len(refs))
        if refusal is not None:
            yield from (([], DeletedTopic(ref.name, ref.id, refusal)) for ref in refs)
            return
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
                try:
                    check_deletion(topic.name, image=self._state.image, config=self._state.config)
                    check_commit_log_stays(topic.name, self._state.image)
                    pay(len(topic.partitions))
                except RequestError as error:
                    yield [], DeletedTopic(ref.name, ref.id, error)
                    continue
                self._state.topic_by_collision_key.pop(collision_key(topic.name), None)
                yield self._state.decided([RemoveTopicRecord(topic_id=topic.id)]), DeletedTopic(topic.name, topic.id)

    def _resolve(self, ref: TopicRef) -> Topic | RequestError:
        if self._state.refusal is not None:
            return self._state.refusal
        if not self._state.config.delete_topic_enable:
            return RequestError(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
        if ref.name is not None and ref.id != ZERO_UUID:
            return RequestError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
        if ref.name is not None:
            topic = self._state.image.topic_by_name(ref.name)
            return topic or RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This topic does not exist.")
        if ref.id == ZERO_UUID:
            return RequestError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
        topic = self._state.image.topic_by_id(ref.id)
        return topic or RequestError(ErrorCode.UNKNOWN_TOPIC_ID, "This topic id does not exist.")


def _all_of(decisions: Decisions[T]) -> tuple[list[Any], list[T]]:
    made = [decision for decision in decisions if decision is not None]
    return [record for records, _ in made for record in records], [outcome for _, outcome in made]


def _too_many_topics(count: int) -> RequestError | None:
    if count <= TOPICS_PER_REQUEST_MAX:
        return None
    message = f"{count} topics are more than the {TOPICS_PER_REQUEST_MAX} one request may name."
    return RequestError(ErrorCode.POLICY_VIOLATION, message)


def _too_many_partitions(partitions: int) -> RequestError | None:
    if partitions <= PARTITIONS_PER_REQUEST_MAX:
        return None
    message = f"{partitions} partitions are more than the {PARTITIONS_PER_REQUEST_MAX} one request may create."
    return RequestError(ErrorCode.POLICY_VIOLATION, message)

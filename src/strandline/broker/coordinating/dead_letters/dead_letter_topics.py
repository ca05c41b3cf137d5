"""Dead-letter topics as this broker's image has them: whether one may be written to, and the making of one."""

from __future__ import annotations

from typing import Final, NamedTuple

from strandline.broker.environment import Environment
from strandline.codec.messages.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from strandline.codec.messages.create_topics_response import CreateTopicsResponse
from strandline.coordinators.shares.dead_letters.dead_letter_rules import NEW_TOPIC_SETTINGS, why_refused
from strandline.errors import ErrorCode, named
from strandline.handlers.support.context import BrokerServices
from strandline.ids import TopicPartition
from strandline.quorum.image.cluster_image import RESOURCE_TOPIC

CREATE_VERSION: Final = 4
CREATE_S_MAX: Final = 10.0
_EXPECTED: Final = frozenset((ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS))


class DeadLetterPlace(NamedTuple):
    """Where the dead letters of a partition go, or why they cannot now."""

    place: TopicPartition | None
    reason: str = ""


class DeadLetterTopics:
    """The dead-letter topics of a cluster."""

    def __init__(self, environment: Environment, services: BrokerServices) -> None:
        self._environment = environment
        self._services = services
        self._creating: set[str] = set()
        self._failed: dict[str, str] = {}
        """By topic: why the last attempt to create it failed."""

    def find(self, name: str, source: TopicPartition) -> DeadLetterPlace:
        """Return where the dead letters of a partition go. A topic that is missing is created, if that is allowed."""
        image, config = self._environment.image(), self._environment.config()
        topic = image.topic_by_name(name)
        settings = None if topic is None else image.configs.get((RESOURCE_TOPIC, name), {})
        reason = why_refused(
            name,
            settings,
            source=source.topic,
            prefix=config.errors_deadletterqueue_topic_name_prefix,
            is_created=config.errors_deadletterqueue_auto_create_topics_enable,
        )
        if reason is not None:
            return DeadLetterPlace(None, reason)
        if topic is None:
            self._create(name)
            failed = self._failed.get(name)
            return DeadLetterPlace(
                None, f"the dead-letter topic {name!r} is being created" + (f"; before: {failed}" if failed else "")
            )
        self._failed.pop(name, None)
        return DeadLetterPlace(TopicPartition(name, source.partition % len(topic.partitions)))

    def _create(self, name: str) -> None:
        if name in self._creating:
            return
        self._creating.add(name)
        configs = [CreatableTopicConfig(name=key, value=value) for key, value in NEW_TOPIC_SETTINGS.items()]
        request = CreateTopicsRequest(
            topics=[CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, configs=configs)],
            timeout_ms=int(CREATE_S_MAX * 1000),
        )

        def on_answer(response: CreateTopicsResponse | None, error: BaseException | None) -> None:
            self._creating.discard(name)
            code = ErrorCode.NETWORK_EXCEPTION if response is None else named(response.topics[0].error_code)
            if code not in _EXPECTED:
                self._failed[name] = code.name

        self._services.controller_channel.ask(request, CREATE_VERSION, on_answer, timeout_s=CREATE_S_MAX)

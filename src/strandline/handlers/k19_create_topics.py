"""CreateTopics (19), versions 2-7.

Honoured: defaults, explicit assignments, configs, validate-only, one outcome per topic; from version 5 on the answer
tells the settings in force. Answered when the records are flushed in the metadata log and the logs are there. A long
list is worked through a share per turn of the loop; topics of one share stand or fall together.
The timeout is `broker/network/forwarding`'s.
"""

from __future__ import annotations

from strandline.codec.message import encode
from strandline.codec.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from strandline.codec.messages.create_topics_response import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)
from strandline.errors import RequestError, error_code, error_message
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.time_slicing import Outcomes, answered, decide, joined, joined_response
from strandline.quorum.controller.controller import too_many_topics
from strandline.quorum.controller.new_topics import CreatedTopic, NewTopic
from strandline.quorum.controller.state import Decisions

API_KEY = 19
VERSIONS = (2, 7)

CONFIGS_FROM = 5


def handle(context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse | None:
    answer = _Answer(context)

    def on_done(outcomes: Outcomes[bytes]) -> None:
        parts = [
            answer.refused(topic.name, error) if error is not None else part
            for topic, (part, error) in zip(request.topics, outcomes, strict=True)
        ]
        context.reply(joined_response(CreateTopicsResponse(), context.api_version, parts))

    decide(context.node, answer.decisions(request), on_done)
    return None


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        partition_count=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignment=[(each.partition_index, each.broker_ids) for each in topic.assignments],
        configs=[(config.name, config.value) for config in topic.configs],
    )


class _Answer:
    """The parts of one answer, each encoded when its topic is decided."""

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self._version = context.api_version
        self._configs: dict[frozenset[tuple[str, str]], list[bytes]] = {}
        """Topics of one request mostly share their settings, and to list them costs more than all the rest."""

    def decisions(self, request: CreateTopicsRequest) -> Decisions[bytes]:
        refusal = too_many_topics(len(request.topics))
        if refusal is not None:
            for topic in request.topics:
                yield [], self.refused(topic.name, refusal)
            return
        asked = [_new_topic(topic) for topic in request.topics]
        decided = self._context.node.controller.decide_topics(asked, validate_only=request.validate_only)
        yield from answered(asked, decided, self._part)

    def _part(self, topic: NewTopic, outcome: CreatedTopic | RequestError) -> bytes:
        return self.refused(topic.name, outcome) if isinstance(outcome, RequestError) else self._created(outcome)

    def refused(self, name: str, error: BaseException) -> bytes:
        code, message = error_code(error), error_message(error) if isinstance(error, RequestError) else None
        self._context.node.count_error(API_KEY, code)
        return encode(CreatableTopicResult(name=name, error_code=code, error_message=message), self._version)

    def _created(self, topic: CreatedTopic) -> bytes:
        result = CreatableTopicResult(
            name=topic.name,
            topic_id=topic.id,
            error_message=None,
            num_partitions=topic.partition_count,
            replication_factor=topic.replication_factor,
        )
        if self._version < CONFIGS_FROM:
            return encode(result, self._version)
        return joined(result, self._version, self._configs_of(topic))

    def _configs_of(self, topic: CreatedTopic) -> list[bytes]:
        settings = frozenset(topic.config_overrides.items())
        parts = self._configs.get(settings)
        if parts is None:
            parts = self._configs[settings] = [
                encode(
                    CreatableTopicConfigs(name=entry.name, value=entry.value, config_source=entry.source),
                    self._version,
                )
                for entry in sorted(self._context.node.config.topic_config_entries(topic.config_overrides))
            ]
        return parts

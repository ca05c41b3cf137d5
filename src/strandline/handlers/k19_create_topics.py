"""CreateTopics (19), versions 2-7.

Honoured: defaults, explicit assignments, configs, validate-only, one outcome per topic; from version 5 on the answer
tells the settings in force. Answered when the records are flushed in the metadata log and the logs are there. A long
list is decided in slices of a turn of the loop; the topics of one slice are created together or not at all.
The timeout is `broker/network/forwarding`'s.
"""

from __future__ import annotations

from strandline.codec.message_codec import encode
from strandline.codec.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from strandline.codec.messages.create_topics_response import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)
from strandline.errors import RequestError, error_code, error_message
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.mutation_quota import mutation_quota
from strandline.handlers.support.response_parts import joined, reply_in_parts
from strandline.quorum.controller.new_topics import CreatedTopic, NewTopic
from strandline.quorum.controller.submission import Outcomes

API_KEY = 19
VERSIONS = (2, 7)

CONFIGS_FROM = 5
STRICT_FROM = 6
"""From this version on clients know THROTTLING_QUOTA_EXCEEDED."""


def handle(context: RequestContext, request: CreateTopicsRequest) -> None:
    controller = context.node.controller
    quota = mutation_quota(context, strict_from=STRICT_FROM)

    def on_done(outcomes: Outcomes[CreatedTopic | RequestError]) -> None:
        around = CreateTopicsResponse(throttle_time_ms=quota.throttle_ms())
        reply_in_parts(context, around, map(_Answer(context).part, request.topics, outcomes))

    asked = [_new_topic(topic) for topic in request.topics]
    decisions = controller.decide_topics(asked, validate_only=request.validate_only, pay=quota.pay)
    controller.submit_all(decisions, on_done)


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        partition_count=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignment=[(each.partition_index, each.broker_ids) for each in topic.assignments],
        configs=[(config.name, config.value) for config in topic.configs],
    )


class _Answer:
    """The encoded parts of one response, a topic each."""

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self._version = context.api_version
        self._configs: dict[frozenset[tuple[str, str]], list[bytes]] = {}
        """Kept, because topics of one request mostly share their settings, and listing them costs most."""

    def part(self, topic: CreatableTopic, outcome: tuple[CreatedTopic | RequestError, BaseException | None]) -> bytes:
        decided, write_error = outcome
        if write_error is not None:
            return self._refused(topic.name, write_error)
        return self._refused(topic.name, decided) if isinstance(decided, RequestError) else self._created(decided)

    def _refused(self, name: str, error: BaseException) -> bytes:
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

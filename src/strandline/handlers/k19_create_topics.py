"""CreateTopics (19), versions 2-7.

Honoured: defaults, explicit assignments, configs, validate-only, one outcome per topic. Answered when the records are
flushed in the metadata log. The timeout is not used: a write to our own disk either happens or fails.
"""

from __future__ import annotations

from strandline.codec.messages.create_topics_request import CreateTopicsRequest
from strandline.codec.messages.create_topics_response import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)
from strandline.errors import RequestError, error_code
from strandline.handlers.context import RequestContext
from strandline.quorum.new_topics import CreatedTopic, NewTopic

API_KEY = 19
VERSIONS = (2, 7)


def handle(context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse | None:
    asked = [
        NewTopic(
            name=topic.name,
            partition_count=topic.num_partitions,
            replication_factor=topic.replication_factor,
            assignment=[(each.partition_index, each.broker_ids) for each in topic.assignments],
            configs=[(config.name, config.value) for config in topic.configs],
        )
        for topic in request.topics
    ]
    records, outcomes = context.node.controller.create_topics(asked, validate_only=request.validate_only)
    # Topics of one request mostly share their settings, and to list them costs more than all the rest.
    known: dict[frozenset[tuple[str, str]], list[CreatableTopicConfigs]] = {}
    results = [_result(context, topic.name, outcome, known) for topic, outcome in zip(asked, outcomes, strict=True)]

    def on_done(error: BaseException | None) -> None:
        if error is not None:
            code = error_code(error)
            results[:] = [CreatableTopicResult(name=topic.name, error_code=code, configs=None) for topic in asked]
        context.reply(CreateTopicsResponse(topics=results))

    context.node.controller_write(records, on_done)
    return None


def _result(
    context: RequestContext,
    name: str,
    outcome: CreatedTopic | RequestError,
    known: dict[frozenset[tuple[str, str]], list[CreatableTopicConfigs]],
) -> CreatableTopicResult:
    if isinstance(outcome, RequestError):
        return CreatableTopicResult(name=name, error_code=outcome.code, error_message=str(outcome))
    result = CreatableTopicResult(
        name=name,
        topic_id=outcome.id,
        error_message=None,
        num_partitions=outcome.partition_count,
        replication_factor=outcome.replication_factor,
    )
    if context.api_version >= 5:
        settings = frozenset(outcome.config_overrides.items())
        if settings not in known:
            known[settings] = [
                CreatableTopicConfigs(name=entry.name, value=entry.value, config_source=entry.source)
                for entry in sorted(context.node.config.topic_config_entries(outcome.config_overrides))
            ]
        result.configs = known[settings]
    return result

"""Creation of topics, tried again until the client's deadline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from strandline.client.cluster_client import PASSING, ClusterClient, TopicMetadata
from strandline.client.failures import ClusterFailed
from strandline.codec.messages.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from strandline.codec.messages.create_topics_response import CreateTopicsResponse
from strandline.errors import ErrorCode, named

_TRIED_AGAIN: Final = PASSING | {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.NOT_CONTROLLER}
"""Codes after which the topic is there, or will be."""


def create_topic(
    client: ClusterClient, name: str, *, partitions: int, replicas_max: int, settings: Mapping[str, str]
) -> TopicMetadata:
    """Create a topic unless it exists, and return it when the brokers know it.

    It has as many replicas as there are brokers, but at most `replicas_max`.
    """
    wanted = CreatableTopic(
        name=name, num_partitions=partitions, configs=[CreatableTopicConfig(*each) for each in settings.items()]
    )
    timeout_ms = int(client.settings.request_timeout_s * 1000 / 2)

    def attempt() -> TopicMetadata | None:
        found = client.topic(name)
        if found is None:
            wanted.replication_factor = min(replicas_max, client.broker_count)
            request = CreateTopicsRequest(topics=[wanted], timeout_ms=timeout_ms)
            (answer,) = client.ask_controller(request, CreateTopicsResponse).topics
            code = named(answer.error_code)
            if code not in _TRIED_AGAIN:
                raise ClusterFailed(answer.error_message or code.name)
        return found

    return client.retried(f"create the topic {name}", attempt)

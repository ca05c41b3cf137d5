"""Topics that are created on first use: by a Metadata request, or as an internal topic.

The node sends CreateTopics to the controller, as a client would. If the controller is another node, the topics are in
the image of this one a moment later. The request waits for that, `KNOWN_S_MAX` at most: its client retries anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from strandline.codec.messages.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from strandline.codec.messages.create_topics_response import CreateTopicsResponse
from strandline.errors import ErrorCode, RequestError
from strandline.handlers.support.context import BrokerServices
from strandline.quorum.controller.new_topics import NewTopic, internal_topic
from strandline.quorum.controller.topic_names import AUDIT_TOPIC, INTERNAL_TOPICS

VERSION: Final = 4
"""The last version whose response does not list the settings of every topic, which are not needed here."""
CREATE_S_MAX: Final = 10.0
KNOWN_S_MAX: Final = 1.0
LOOK_S: Final = 0.01

_NOT_THE_ASKERS_FAULT: Final = (
    0,
    ErrorCode.TOPIC_ALREADY_EXISTS,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)

Refused = dict[str, int]
"""Error codes of topics that may not be created, by name. Topics that failed for now are left out."""


def create_missing(node: BrokerServices, names: Iterable[str], on_done: Callable[[Refused], object]) -> None:
    """Create topics with their default settings, and call `on_done` when they exist or have failed."""
    wanted = [topic for topic in (_wanted(node, name) for name in names) if topic is not None]
    if not wanted:
        on_done({})
        return
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=topic.name,
                num_partitions=topic.partition_count,
                replication_factor=topic.replication_factor,
                configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs],
            )
            for topic in wanted
        ],
        timeout_ms=int(CREATE_S_MAX * 1000),
    )

    def on_answer(response: CreateTopicsResponse | None, error: BaseException | None) -> None:
        # Without a response it is unknown what was created, so the image decides.
        codes = {} if response is None else {each.name: each.error_code for each in response.topics}
        # A topic that another request is creating is no error: it will exist soon.
        expected = [name for name, code in codes.items() if code in (0, ErrorCode.TOPIC_ALREADY_EXISTS)]
        refused = {name: code for name, code in codes.items() if code not in _NOT_THE_ASKERS_FAULT}
        _when_known(node, expected, lambda: on_done(refused), until=node.runtime.monotonic() + KNOWN_S_MAX)

    node.controller_channel.ask(request, VERSION, on_answer, timeout_s=CREATE_S_MAX)


def _wanted(node: BrokerServices, name: str) -> NewTopic | None:
    if name not in INTERNAL_TOPICS:
        return NewTopic(name)
    if name == AUDIT_TOPIC and not node.config.is_audited():
        return None
    try:
        return coordinators_topic(node, name)
    except RequestError:
        # Too few brokers are registered. The topic is unknown until there are more, and the client retries.
        return None


def coordinators_topic(node: BrokerServices, name: str) -> NewTopic:
    """Return the internal topic to create; raise RequestError while that is not possible."""
    return internal_topic(name, image=node.image, config=node.config, voter_ids=node.metadata.voter_ids)


def _when_known(node: BrokerServices, names: list[str], then: Callable[[], object], *, until: float) -> None:
    missing = [name for name in names if name not in node.image.topics]
    if missing and node.runtime.monotonic() < until:
        node.runtime.call_later(LOOK_S, lambda: _when_known(node, missing, then, until=until))
    else:
        then()

"""Topics that come into being because somebody asks for them: by Metadata, or as an internal one.

The controller is asked to create them, as by any client; then what it did becomes known to this node, a moment later if
the controller is another one. Whoever asked waits for that moment, and not longer than `KNOWN_S_MAX`: its client asks
again anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from strandline.codec.messages.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from strandline.codec.messages.create_topics_response import CreateTopicsResponse
from strandline.errors import ErrorCode, RequestError
from strandline.handlers.support.context import Node
from strandline.quorum.controller.new_topics import NewTopic, internal_topic
from strandline.quorum.controller.topic_names import CONSUMER_OFFSETS, INTERNAL_TOPICS, TRANSACTION_STATE

VERSION: Final = 4
"""The last whose answer does not list the settings of every topic; nobody here would read them."""
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
"""Error codes of topics that may not be created, by name. One that could not be for now is simply not there."""


def create_missing(node: Node, names: Iterable[str], on_done: Callable[[Refused], object]) -> None:
    """Have topics created with the defaults for them, and call `on_done` when they are there, or will not be."""
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
        # Without an answer nobody knows what was created. What the image holds then is what is told.
        codes = {} if response is None else {each.name: each.error_code for each in response.topics}
        # That another request is creating a topic is no error: it is there soon.
        expected = [name for name, code in codes.items() if code in (0, ErrorCode.TOPIC_ALREADY_EXISTS)]
        refused = {name: code for name, code in codes.items() if code not in _NOT_THE_ASKERS_FAULT}
        _when_known(node, expected, lambda: on_done(refused), until=node.runtime.monotonic() + KNOWN_S_MAX)

    node.controller_channel.ask(request, VERSION, on_answer, timeout_s=CREATE_S_MAX)


def _wanted(node: Node, name: str) -> NewTopic | None:
    if name not in INTERNAL_TOPICS:
        return NewTopic(name)
    try:
        return coordinators_topic(node, name) if name in (CONSUMER_OFFSETS, TRANSACTION_STATE) else None
    except RequestError:
        # Too few brokers are registered. It is unknown until there are more, and whoever asked asks again.
        return None


def coordinators_topic(node: Node, name: str) -> NewTopic:
    """The topic of groups or transactions as it is to be created; RequestError that says why not yet."""
    return internal_topic(name, image=node.image, config=node.config, voter_ids=node.metadata.voter_ids)


def _when_known(node: Node, names: list[str], then: Callable[[], object], *, until: float) -> None:
    missing = [name for name in names if name not in node.image.topics]
    if missing and node.runtime.monotonic() < until:
        node.runtime.call_later(LOOK_S, lambda: _when_known(node, missing, then, until=until))
    else:
        then()

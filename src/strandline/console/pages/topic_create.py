"""The action that creates a topic. The cluster checks it first, for the confirmation, and creates it by the POST."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from strandline.cli.common.plain_words import count
from strandline.client.cluster_client import ClusterClient
from strandline.codec.messages.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from strandline.codec.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse
from strandline.console.context import PageContext
from strandline.console.declarations import ActionDone, ActionField, ConsoleAction, PageModule, Values
from strandline.console.failures import PageFailed
from strandline.errors import Disconnected, RequestError, named

TIMEOUT_MS: Final = 8000


async def create(context: PageContext, values: Values) -> ActionDone:
    await _ask(context, values, validate_only=False)
    return ActionDone(f"Topic {values['topic']} was created.", context.path("topics"))


async def plan(context: PageContext, values: Values) -> Sequence[str]:
    """Return what the cluster would create."""
    found = await _ask(context, values, validate_only=True)
    return [
        f"{count(found.num_partitions, 'partition')}, {count(found.replication_factor, 'replica')} of each"
        if found.num_partitions > 0
        else "the cluster accepts it",
        *(f"{name} = {text}" for name, text in _settings(values).items()),
    ]


def command(values: Values) -> Sequence[str]:
    words = ["topic", "create", values["topic"]]
    words += ["--partitions", values["partitions"]] if values["partitions"] else []
    words += ["--replication-factor", values["replicas"]] if values["replicas"] else []
    for name, text in _settings(values).items():
        words += ["--config", f"{name}={text}"]
    return words


def _settings(values: Values) -> dict[str, str]:
    found = {}
    for line in values["settings"].splitlines():
        if line.strip():
            name, equals, text = line.partition("=")
            if not equals:
                raise PageFailed(400, f"{line.strip()} is no setting", "write NAME=VALUE, each on a line of its own")
            found[name.strip()] = text.strip()
    return found


async def _ask(context: PageContext, values: Values, *, validate_only: bool) -> CreatableTopicResult:
    # Without a number the cluster takes its defaults.
    wanted = CreatableTopic(
        name=values["topic"],
        num_partitions=int(values["partitions"] or -1),
        replication_factor=int(values["replicas"] or -1),
        configs=[CreatableTopicConfig(name, text) for name, text in _settings(values).items()],
    )
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS, validate_only=validate_only)
    metadata = await context.reading.metadata()

    def ask(client: ClusterClient) -> CreatableTopicResult:
        address = metadata.address(metadata.controller_id)
        if address is None:
            raise Disconnected("the cluster names no controller")
        (answer,) = client.ask_at(address, request, CreateTopicsResponse).topics
        return answer

    answer = await context.reading.shared.ask(ask)
    if answer.error_code:
        code = named(answer.error_code)
        raise RequestError(code, answer.error_message or code.name)
    return answer


ACTION: Final = ConsoleAction(
    name="topic-create",
    title="Create topic {topic}",
    button="Create topic",
    run=create,
    command=command,
    plan=plan,
    consequence="The topic {topic} will be there for every client that may see it.",
    fields=(
        ActionField("topic", "Name", hint="1 to 249 of the characters a-z A-Z 0-9 . _ -"),
        ActionField("partitions", "Partitions", "number", hint="Empty: the cluster's default", is_required=False),
        ActionField("replicas", "Replicas", "number", hint="Empty: the cluster's default", is_required=False),
        ActionField(
            "settings", "Settings", "area", hint="One a line, for example retention.ms=86400000", is_required=False
        ),
    ),
    under="topics",
)
MODULE: Final = PageModule(actions=(ACTION,))

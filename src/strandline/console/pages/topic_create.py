"""Actions that create a topic, or a copy of one without its records.

The cluster checks the topic for the confirmation, and creates it by the POST.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from strandline.cli.common.plain_words import count
from strandline.client.cluster_client import ClusterClient
from strandline.codec.messages.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from strandline.codec.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse
from strandline.console.context import PageContext
from strandline.console.declarations import ActionDone, ActionField, ConsoleAction, PageModule, Values
from strandline.console.failures import PageFailed
from strandline.console.pages.topic.frame import topic_named, wait_known
from strandline.console.pages.topic.settings import settings_of
from strandline.documents.units import parse_retention_ms, parse_size
from strandline.errors import Disconnected, RequestError, named

TIMEOUT_MS: Final = 8000
OWN_SOURCE: Final = 1
"""The source of a setting that belongs to the topic itself."""
POLICIES: Final = ("", "delete", "compact", "compact,delete")
_NAMES: Final = {
    "cleanup": "cleanup.policy",
    "in_sync": "min.insync.replicas",
    "keep": "retention.ms",
    "keep_bytes": "retention.bytes",
    "batch_bytes": "max.message.bytes",
}
_OWN_FIELDS: Final[dict[str, Callable[[str], str]]] = {
    "cleanup": str,
    "in_sync": str,
    "keep": lambda text: str(parse_retention_ms(text)),
    "keep_bytes": lambda text: "-1" if text.lower() == "unlimited" else str(parse_size(text)),
    "batch_bytes": lambda text: str(parse_size(text)),
}


async def create(context: PageContext, values: Values) -> ActionDone:
    await create_topic(context, values)
    await wait_known(context, values["topic"], is_there=True)
    return ActionDone(f"Topic {values['topic']} was created.", context.path("topics"))


async def plan(context: PageContext, values: Values) -> Sequence[str]:
    """Return what the cluster would create."""
    found = await create_topic(context, values, validate_only=True)
    return [
        f"{count(found.num_partitions, 'partition')}, {count(found.replication_factor, 'replica')} of each"
        if found.num_partitions > 0
        else "the cluster accepts it",
        *(f"{name} = {text}" for name, text in settings_of_form(values).items()),
    ]


def command(values: Values) -> Sequence[str]:
    words = ["topic", "create", values["topic"]]
    words += ["--partitions", values["partitions"]] if values["partitions"] else []
    words += ["--replication-factor", values["replicas"]] if values["replicas"] else []
    for name, text in settings_of_form(values).items():
        words += ["--config", f"{name}={text}"]
    return words


def settings_of_form(values: Values) -> dict[str, str]:
    """Return the settings of the topic to create: those with a field of their own, and the lines. Raise PageFailed."""
    found = {}
    for name, read in _OWN_FIELDS.items():
        if text := values.get(name, ""):
            try:
                found[_NAMES[name]] = read(text)
            except ValueError as error:
                raise PageFailed(400, f"{text} is not understood: {error}") from None
    for line in values["settings"].splitlines():
        if line.strip():
            name, equals, text = line.partition("=")
            if not equals:
                raise PageFailed(400, f"{line.strip()} is no setting", "write NAME=VALUE, each on a line of its own")
            if name.strip() in found:
                raise PageFailed(400, f"{name.strip()} is given twice", "leave the line out, or the field empty")
            found[name.strip()] = text.strip()
    return found


async def create_topic(context: PageContext, values: Values, *, validate_only: bool = False) -> CreatableTopicResult:
    """Create a topic, or have the cluster check it. Raise RequestError with the reason of the cluster."""
    # Without a number the cluster takes its defaults.
    wanted = CreatableTopic(
        name=values["topic"],
        num_partitions=int(values["partitions"] or -1),
        replication_factor=int(values["replicas"] or -1),
        configs=[CreatableTopicConfig(name, text) for name, text in settings_of_form(values).items()],
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


async def like(context: PageContext, values: Values) -> Values:
    """Return partitions, replicas and own settings of the topic that is copied or made again."""
    topic = await topic_named(context, values["topic"])
    entries = await settings_of(context, topic.name)
    own = [each for each in entries.values() if each.source == OWN_SOURCE and not each.sensitive]
    return {
        "partitions": str(len(topic.partitions)),
        "replicas": str(topic.replication_factor),
        "settings": "\n".join(f"{each.name}={each.value or ''}" for each in own),
    }


def _as_new(values: Values) -> Values:
    return {**values, "topic": values["name"]}


async def copy(context: PageContext, values: Values) -> ActionDone:
    return await create(context, _as_new(values))


async def plan_of_copy(context: PageContext, values: Values) -> Sequence[str]:
    return [*await plan(context, _as_new(values)), f"no record of {values['topic']} is copied"]


_NAME_HINT: Final = "1 to 249 of the characters a-z A-Z 0-9 . _ -"
_SIZE_FIELDS: Final = (
    ActionField("partitions", "Partitions", "number", hint="Empty: the cluster's default", is_required=False),
    ActionField("replicas", "Replicas", "number", hint="Empty: the cluster's default", is_required=False),
)
_LINES: Final = ActionField(
    "settings", "Other settings", "area", hint="One a line, for example segment.ms=3600000", is_required=False
)
CREATE: Final = ConsoleAction(
    name="topic-create",
    title="Create topic {topic}",
    button="Create topic",
    run=create,
    command=command,
    plan=plan,
    consequence="The topic {topic} will be there for every client that may see it.",
    fields=(
        ActionField("topic", "Name", hint=_NAME_HINT),
        *_SIZE_FIELDS,
        ActionField(
            "keep",
            "Keep records for",
            hint="For example 12h or 7d, or forever. Empty: the cluster's default",
            suggestions=("12h", "1d", "2d", "7d", "28d", "forever"),
            is_required=False,
        ),
        ActionField(
            "keep_bytes",
            "Keep at most, in each partition",
            hint="For example 20 GiB, or unlimited",
            suggestions=("1 GiB", "10 GiB", "20 GiB", "50 GiB", "unlimited"),
            is_required=False,
        ),
        ActionField(
            "cleanup",
            "Old records are",
            "choice",
            hint="delete: removed by age or size. compact: the newest of each key stays",
            choices=POLICIES,
            is_required=False,
        ),
        ActionField("in_sync", "Replicas in sync, at least", "number", hint="min.insync.replicas", is_required=False),
        ActionField("batch_bytes", "Largest batch", hint="For example 1 MiB: max.message.bytes", is_required=False),
        _LINES,
    ),
    under="topics",
)
COPY: Final = ConsoleAction(
    name="topic-copy",
    title="Copy topic {topic}",
    button="Create the copy",
    run=copy,
    command=lambda values: command(_as_new(values)),
    plan=plan_of_copy,
    fill=like,
    consequence="{name} will have the partitions and settings below, and no record.",
    fields=(
        ActionField("topic", "Copy of", is_fixed=True, alias="topics"),
        ActionField("name", "Name of the copy", hint=_NAME_HINT),
        *_SIZE_FIELDS,
        _LINES,
    ),
    under="topics",
)
MODULE: Final = PageModule(actions=(CREATE, COPY))

"""Making a topic again: it is deleted, and created with the same partitions and settings, without records."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final

from strandline.console.context import PageContext
from strandline.console.declarations import ActionDone, ActionField, ConsoleAction, PageModule, Values
from strandline.console.failures import EXPECTED, PageFailed, words_of
from strandline.console.pages.topic.changing import delete, removal
from strandline.console.pages.topic.frame import topic_named, wait_known
from strandline.console.pages.topic_create import command, create_topic, like, settings_of_form
from strandline.console.rendering import shell_words
from strandline.errors import ErrorCode, RequestError

GONE_S: Final = 10.0
"""How long a cluster may take to forget the topic of this name."""
POLL_S: Final = 0.1


async def plan(context: PageContext, values: Values) -> Sequence[str]:
    await _require_unchanged(context, values)
    await _require_right_to_create(context, values)
    settings = values["settings"].replace("\n", ", ")
    return [
        *await removal(context, values),
        f"create {values['topic']}: partitions {values['partitions']}, replicas {values['replicas']}"
        + (f", {settings}" if settings else ""),
        "positions of groups stay; a group whose position lies beyond the end follows its auto.offset.reset",
    ]


async def recreate(context: PageContext, values: Values) -> ActionDone:
    topic = values["topic"]
    await _require_unchanged(context, values)
    before = await topic_named(context, topic)
    await _require_right_to_create(context, values)
    await delete(context, values)
    try:
        await _create(context, values)
    except (*EXPECTED, PageFailed) as error:
        raise PageFailed(
            409,
            f"{topic} was deleted, and could not be created again: {words_of(error).sentence}",
            f"create it by: strandline {shell_words(command(values))}",
        ) from error
    await wait_known(context, topic, is_there=True, other_than=before.topic_id)
    return ActionDone(f"Topic {topic} was made again, without records.", context.path("topics", topic, "partitions"))


async def _create(context: PageContext, values: Values) -> None:
    ends_at = time.monotonic() + GONE_S
    while True:
        try:
            await create_topic(context, values)
            return
        except RequestError as error:
            # Kafka's brokers forget a topic a moment after its deletion was acknowledged.
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS or time.monotonic() > ends_at:
                raise
        await asyncio.sleep(POLL_S)


async def _require_unchanged(context: PageContext, values: Values) -> None:
    """Raise PageFailed if the topic differs from what the form began with: it would be made again as it was then."""
    # What is kept may be from before the change.
    context.reading.shared.forget()
    now = await like(context, values)
    different = [name for name in ("partitions", "replicas") if now[name] != values[name]]
    if settings_of_form(now) != settings_of_form(values):
        different.append("settings")
    if different:
        raise PageFailed(
            409,
            f"Nothing was done: {values['topic']} has other {' and '.join(different)} than when this form began",
            "load the page of the topic, and begin again",
        )


async def _require_right_to_create(context: PageContext, values: Values) -> None:
    """Raise PageFailed if the visitor could delete the topic and not create it."""
    try:
        await create_topic(context, values, validate_only=True)
    except RequestError as error:
        # A cluster looks at the rights of the visitor before it looks for the name.
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise


def _kept(name: str, label: str, kind: str) -> ActionField:
    return ActionField(name, label, kind, is_fixed=True, is_required=False)


ACTION: Final = ConsoleAction(
    name="topic-recreate",
    title="Make topic {topic} again",
    button="Delete and create",
    run=recreate,
    command=lambda values: ["topic", "delete", values["topic"]],
    more_commands=lambda values: [command(values)],
    plan=plan,
    fill=like,
    consequence="Every record of {topic} is deleted for good. The topic begins at offset 0 again.",
    fields=(
        ActionField("topic", "Topic", is_fixed=True),
        _kept("partitions", "Partitions", "number"),
        _kept("replicas", "Replicas", "number"),
        _kept("settings", "Settings", "area"),
    ),
    is_dangerous=True,
    typed="topic",
    under="topics",
)
MODULE: Final = PageModule(actions=(ACTION,))

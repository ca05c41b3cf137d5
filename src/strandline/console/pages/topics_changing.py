"""What changes several topics that were chosen on the page Topics: their end, or the end of their records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from strandline.cli.common.failures import CommandFailed
from strandline.cli.common.plain_words import count
from strandline.cli.topic.removal_plan import deletion_plan
from strandline.cli.topic.topics import described_all, offset_ranges
from strandline.console.context import PageContext
from strandline.console.declarations import ActionDone, ActionField, ConsoleAction, PageModule, Values
from strandline.console.failures import PageFailed
from strandline.console.pages.topic.changing import delete_topic, trim_targets, trim_to
from strandline.console.pages.topic.frame import wait_known
from strandline.console.reading.user_cluster import UserCluster

TOPICS_MAX: Final = 200
"""Topics that one action changes."""


def chosen(values: Values) -> list[str]:
    """Return the topics that were chosen. Raise PageFailed for too many."""
    found = list(dict.fromkeys(values["topics"].split()))
    if len(found) > TOPICS_MAX:
        raise PageFailed(400, f"{len(found)} topics are too many; at most {TOPICS_MAX} are changed together")
    return found


def _phrase(values: Values) -> str:
    return count(len(values["topics"].split()), "topic")


async def deletion(context: PageContext, values: Values) -> Sequence[str]:
    cluster, names = context.reading.cluster, chosen(values)

    def read() -> Sequence[str]:
        topics, ranges = _look(cluster, names)
        return deletion_plan(topics, ranges)

    return await context.reading.shared.in_thread(read)


async def emptying(context: PageContext, values: Values) -> Sequence[str]:
    cluster, names = context.reading.cluster, chosen(values)

    def read() -> Sequence[str]:
        topics, ranges = _look(cluster, names)
        held = {
            name: sum((end or 0) - (start or 0) for start, end in (ranges[name, each.id] for each in topic.partitions))
            for name, topic in topics.items()
        }
        return [f"{name}: up to {count(records, 'record')}, for good" for name, records in held.items()]

    return await context.reading.shared.in_thread(read)


def _look(cluster: UserCluster, names: Sequence[str]) -> tuple[dict[str, Any], Any]:
    admin = cluster.admin()
    topics = described_all(cluster, admin, names)
    return topics, offset_ranges(cluster, admin, topics.values())


async def delete(context: PageContext, values: Values) -> ActionDone:
    done = await _each(context, values, delete_topic, "deleted")
    for name in chosen(values):
        await wait_known(context, name, is_there=False)
    return done


async def empty(context: PageContext, values: Values) -> ActionDone:
    return await _each(context, values, _empty, "emptied")


def _empty(cluster: UserCluster, topic: str) -> None:
    targets = trim_targets(cluster, {"topic": topic, "before": "all", "partitions": ""})
    trim_to(cluster, topic, targets)


async def _each(
    context: PageContext, values: Values, change: Callable[[UserCluster, str], None], done: str
) -> ActionDone:
    """Change one topic after the other. Raise PageFailed that names those that were not changed."""
    cluster, names = context.reading.cluster, chosen(values)
    failures: list[str] = []
    for name in names:
        try:
            await context.reading.shared.in_thread(partial(change, cluster, name))
        except CommandFailed as error:
            failures.append(error.message)
    if failures:
        words = f"{len(names) - len(failures)} of {count(len(names), 'topic')} were {done}"
        raise PageFailed(409, f"{words}; {'; '.join(failures[:5])}", "the others are as they were")
    verb = "was" if len(names) == 1 else "were"
    return ActionDone(f"{count(len(names), 'topic')} {verb} {done}.", context.path("topics"))


TOPICS: Final = ActionField("topics", "Topics", "names", is_fixed=True)
ACTIONS: Final = (
    ConsoleAction(
        name="topics-delete",
        title="Delete topics",
        button="Delete",
        run=delete,
        command=lambda values: ["topic", "delete", *values["topics"].split()],
        plan=deletion,
        consequence="These topics and every record in them are deleted for good.",
        fields=(TOPICS,),
        is_dangerous=True,
        typed="topics",
        phrase=_phrase,
        under="topics",
    ),
    ConsoleAction(
        name="topics-empty",
        title="Delete all records of topics",
        button="Delete records",
        run=empty,
        command=lambda values: _empty_command(values["topics"].split()[0]),
        more_commands=lambda values: [_empty_command(each) for each in values["topics"].split()[1:]],
        plan=emptying,
        consequence="Every record of these topics is deleted for good. The topics stay, and offsets go on.",
        fields=(TOPICS,),
        is_dangerous=True,
        typed="topics",
        phrase=_phrase,
        under="topics",
    ),
)
MODULE: Final = PageModule(actions=ACTIONS)


def _empty_command(topic: str) -> list[str]:
    return ["topic", "trim", topic, "--before", "all"]

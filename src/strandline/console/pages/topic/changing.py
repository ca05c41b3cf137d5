"""What changes a topic: settings, more partitions, a later beginning, its end. Plans are those of the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from strandline.cli.common.client import admin_api, kafka_api
from strandline.cli.common.failures import did_you_mean
from strandline.cli.common.plain_words import count
from strandline.cli.config.access import ConfigValue, Target, value_of, write_entries
from strandline.cli.config.changes import SettingChange, cost
from strandline.cli.topic.removal_plan import deletion_plan, new_starts, trim_plan, trim_position
from strandline.cli.topic.topics import chosen_partitions, described, offset_ranges
from strandline.console.context import PageContext
from strandline.console.declarations import ActionDone, ActionField, ConsoleAction, PageModule, Values
from strandline.console.failures import PageFailed
from strandline.console.pages.topic.frame import wait_known
from strandline.console.pages.topic.settings import settings_of
from strandline.console.reading.user_cluster import UserCluster

TOPIC: Final = ActionField("topic", "Topic", is_fixed=True)

# Settings


def settings_command(values: Values) -> Sequence[str]:
    changed, unset = _changes(values)
    words = ["topic", "alter", values["topic"]]
    for name, text in changed.items():
        words += ["--config", f"{name}={text}"]
    for name in unset:
        words += ["--unset", name]
    return words


def _changes(values: Values) -> tuple[dict[str, str], list[str]]:
    """Return what is set and what is given back. Raise PageFailed for lines that say neither."""
    changed: dict[str, str] = {}
    for line in values["settings"].splitlines():
        name, equals, text = line.partition("=")
        if line.strip():
            if not equals or not name.strip():
                raise PageFailed(400, f"{line.strip()} is no setting", "write NAME=VALUE, each on a line of its own")
            changed[name.strip()] = text.strip()
    unset = values["unset"].replace(",", " ").split()
    if both := changed.keys() & set(unset):
        raise PageFailed(400, f"{min(both)} is both set and given back")
    if not changed and not unset:
        raise PageFailed(400, "Nothing is to be changed", "write NAME=VALUE, each on a line of its own")
    return changed, unset


async def settings_plan(context: PageContext, values: Values) -> Sequence[str]:
    changed, unset = _changes(values)
    target = Target("topic", values["topic"])
    entries = await settings_of(context, values["topic"])
    for name in (*changed, *unset):
        _check_name(name, entries)
    await _write(context, target, changed, unset, dry_run=True)
    changes = [SettingChange(name, value_of(entries, name), text) for name, text in changed.items()]
    changes += [SettingChange(name, value_of(entries, name), None, entries[name].fallback(target)) for name in unset]
    return [f"{each}: {loss}" if (loss := cost(each)) else f"{each}" for each in changes]


def _check_name(name: str, entries: Mapping[str, ConfigValue]) -> None:
    if name not in entries:
        meant = did_you_mean(name, entries)
        raise PageFailed(400, f"There is no setting {name} of a topic", f"{meant}?" if meant else "")


async def change_settings(context: PageContext, values: Values) -> ActionDone:
    changed, unset = _changes(values)
    await _write(context, Target("topic", values["topic"]), changed, unset, dry_run=False)
    words = ", ".join([*changed, *unset])
    return ActionDone(f"{words} of {values['topic']} changed.", context.path("topics", values["topic"], "settings"))


async def _write(
    context: PageContext, target: Target, changed: Mapping[str, str], unset: Sequence[str], *, dry_run: bool
) -> None:
    cluster = context.reading.cluster
    await context.reading.shared.in_thread(
        lambda: write_entries(cluster, cluster.admin(), target, changed, unset, dry_run=dry_run)
    )


# Partitions


async def partitions_plan(context: PageContext, values: Values) -> Sequence[str]:
    before = await _partitions(context, values, dry_run=True)
    return [
        f"{count(before, 'partition')} become {int(values['partitions']):,}; their number can never be lowered",
        "from then on a key may go to another partition than before: order holds within each only",
    ]


async def add_partitions(context: PageContext, values: Values) -> ActionDone:
    await _partitions(context, values, dry_run=False)
    words = f"{values['topic']} has {count(int(values['partitions']), 'partition')}."
    return ActionDone(words, context.path("topics", values["topic"], "partitions"))


async def _partitions(context: PageContext, values: Values, *, dry_run: bool) -> int:
    """Add partitions, or ask the cluster whether it would; return how many there were."""
    cluster, topic, total = context.reading.cluster, values["topic"], int(values["partitions"])

    def ask() -> int:
        admin = cluster.admin()
        before = len(described(cluster, admin, topic).partitions)
        if total <= before:
            raise PageFailed(400, f"{topic} has {count(before, 'partition')}; partitions can only be added")
        with cluster.errors(f"cannot add partitions to {topic!r}"):
            new = admin_api().NewPartitions(topic, total)
            options = {"operation_timeout": cluster.timeout_s, "request_timeout": cluster.timeout_s}
            admin.create_partitions([new], validate_only=dry_run, **options)[topic].result()
        return before

    return await context.reading.shared.in_thread(ask)


# Trim


async def trimming_plan(context: PageContext, values: Values) -> Sequence[str]:
    targets = await context.reading.shared.in_thread(lambda: trim_targets(context.reading.cluster, values))
    return trim_plan(values["topic"], targets) or [f"nothing: {values['topic']} holds no record before that"]


async def trim(context: PageContext, values: Values) -> ActionDone:
    cluster, topic = context.reading.cluster, values["topic"]

    def run() -> int:
        targets = trim_targets(cluster, values)
        trim_to(cluster, topic, targets)
        return len(targets)

    done = await context.reading.shared.in_thread(run)
    words = (
        f"{count(done, 'partition')} of {topic} begin later now." if done else f"There was nothing to trim in {topic}."
    )
    return ActionDone(words, context.path("topics", topic, "storage"))


def trim_to(cluster: UserCluster, topic: str, targets: Mapping[int, tuple[int, int]]) -> None:
    """Delete the records before the new starts of partitions."""
    if not targets:
        return
    kafka, admin = kafka_api(), cluster.admin()
    wanted = [kafka.TopicPartition(topic, partition, new) for partition, (_, new) in targets.items()]
    options = {"operation_timeout": cluster.timeout_s, "request_timeout": cluster.timeout_s}
    with cluster.errors(f"cannot trim {topic!r}"):
        for future in admin.delete_records(wanted, **options).values():
            future.result()


def trim_targets(cluster: UserCluster, values: Values) -> dict[int, tuple[int, int]]:
    """Return the starts of partitions now and then, where they differ. Raise PageFailed."""
    position = trim_position(values["before"])
    words = values["partitions"].replace(",", " ").split()
    if wrong := [word for word in words if not (word.isascii() and word.isdigit() and len(word) < 10)]:
        raise PageFailed(400, f"{wrong[0]} is no partition", "write numbers such as 0,2")
    wanted = [int(word) for word in words]
    admin = cluster.admin()
    topic = described(cluster, admin, values["topic"])
    places = [(values["topic"], each) for each in chosen_partitions(topic, wanted or None)]
    return new_starts(cluster, admin, places, offset_ranges(cluster, admin, [topic]), position)


def trim_command(values: Values) -> Sequence[str]:
    words = ["topic", "trim", values["topic"], "--before", values["before"]]
    for each in values["partitions"].replace(",", " ").split():
        words += ["--partition", each]
    return words


# Deletion


async def removal(context: PageContext, values: Values) -> Sequence[str]:
    cluster, topic = context.reading.cluster, values["topic"]

    def read() -> Sequence[str]:
        admin = cluster.admin()
        topics: dict[str, Any] = {topic: described(cluster, admin, topic)}
        return deletion_plan(topics, offset_ranges(cluster, admin, topics.values()))

    return await context.reading.shared.in_thread(read)


async def delete(context: PageContext, values: Values) -> ActionDone:
    cluster, topic = context.reading.cluster, values["topic"]
    await context.reading.shared.in_thread(lambda: delete_topic(cluster, topic))
    await wait_known(context, topic, is_there=False)
    return ActionDone(f"Topic {topic} was deleted.", context.path("topics"))


def delete_topic(cluster: UserCluster, topic: str) -> None:
    """Delete a topic, and wait until the cluster has acknowledged it."""
    admin = cluster.admin()
    described(cluster, admin, topic)
    options = {"operation_timeout": cluster.timeout_s, "request_timeout": cluster.timeout_s}
    with cluster.errors(f"cannot delete topic {topic!r}"):
        admin.delete_topics([topic], **options)[topic].result()


ACTIONS: Final = (
    ConsoleAction(
        name="topic-settings",
        title="Change settings of {topic}",
        button="Change",
        run=change_settings,
        command=settings_command,
        plan=settings_plan,
        consequence="The settings of {topic} are in force as soon as its leaders know them.",
        fields=(
            TOPIC,
            ActionField(
                "settings", "Settings", "area", hint="One a line, for example retention.ms=86400000", is_required=False
            ),
            ActionField(
                "unset", "Give back", hint="Names of settings that fall back to the brokers'", is_required=False
            ),
        ),
        under="topics",
    ),
    ConsoleAction(
        name="topic-partitions",
        title="Add partitions to {topic}",
        button="Add partitions",
        run=add_partitions,
        command=lambda values: ["topic", "alter", values["topic"], "--partitions", values["partitions"]],
        plan=partitions_plan,
        consequence="{topic} will have {partitions} partitions in all.",
        fields=(TOPIC, ActionField("partitions", "Partitions in all", "number")),
        under="topics",
    ),
    ConsoleAction(
        name="topic-trim",
        title="Delete old records of {topic}",
        button="Delete records",
        run=trim,
        command=trim_command,
        plan=trimming_plan,
        consequence="Records of {topic} before {before} are deleted for good.",
        fields=(
            TOPIC,
            ActionField("before", "Before", hint="An offset, -N (keep the last N), an ISO time, @ms, 7d, or all"),
            ActionField("partitions", "Partitions", hint="Empty: all of them; else 0,2", is_required=False),
        ),
        is_dangerous=True,
        typed="topic",
        under="topics",
    ),
    ConsoleAction(
        name="topic-delete",
        title="Delete topic {topic}",
        button="Delete",
        run=delete,
        command=lambda values: ["topic", "delete", values["topic"]],
        plan=removal,
        consequence="The topic {topic} and every record in it are deleted for good.",
        fields=(TOPIC,),
        is_dangerous=True,
        typed="topic",
        under="topics",
    ),
)
MODULE: Final = PageModule(actions=ACTIONS)

"""Topics, with their settings, owners, retention and lag objectives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from strandline.cli.cluster.reading import read_state
from strandline.cli.cluster.reassigning import follow, send
from strandline.cli.cluster.reassignment_plan import plan_replication_factor
from strandline.cli.common.client import admin_api, kafka_api
from strandline.cli.common.conversation import converse
from strandline.cli.common.failures import CommandFailed, from_kafka_error
from strandline.cli.common.plain_words import count
from strandline.cli.config.access import Target, write_entries
from strandline.cli.contract.kinds import Access, Action, ContractDefaults, ContractItem, ContractStep, Turn
from strandline.cli.contract.topic_contract import (
    OWN_SETTINGS,
    TopicChange,
    TopicContract,
    TopicState,
    change_details,
    compare,
    export_topic,
    losses,
    parse_topic,
)
from strandline.cli.topic.create import wait_usable
from strandline.cli.topic.topics import described_all, offset_ranges, records_between
from strandline.codec.messages.group_lag_request import GroupLagRequest
from strandline.documents.fields import Fields

TOPICS_PER_REQUEST = 100
_OWN = 1
"""The source DYNAMIC_TOPIC_CONFIG of DescribeConfigs: set for the topic itself."""


@dataclass(frozen=True)
class TopicKind:
    field: str = "topics"

    def parse(self, fields: Fields, defaults: ContractDefaults) -> ContractItem:
        topic = parse_topic(fields, defaults.owner)
        return ContractItem(topic.name, topic, fields.path)

    def steps(self, access: Access, items: Sequence[ContractItem]) -> list[ContractStep]:
        wanted: list[TopicContract] = [item.value for item in items]
        current = read_topics(access, {topic.name for topic in wanted})
        keeps_own = keeps_own_settings(access)
        if not keeps_own and any(name in topic.settings for topic in wanted for name in OWN_SETTINGS):
            access.notes.append("owners and lag objectives stay in the files: this cluster has no settings for them")
        found = []
        for topic in wanted:
            if topic.is_absent and topic.name not in current:
                continue
            change = compare(topic, current.get(topic.name), keeps_own=keeps_own)
            if not change.is_empty:
                found.append(_step(access, change))
        return found

    def export(self, access: Access, names: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
        states = read_topics(access, set(names) or None)
        return {name: [export_topic(state)] for name, state in states.items()}

    def unmanaged(self, access: Access, items: Sequence[ContractItem]) -> list[str]:
        named = {item.value.name for item in items}
        return [f"topic {name}" for name in _names(access) if name not in named]


# Reading


def keeps_own_settings(access: Access) -> bool:
    """Return whether the cluster has settings for owners and objectives, as Strandline's nodes do."""
    conversation = converse(access.cluster)
    if conversation is None:
        return False
    with conversation:
        return GroupLagRequest.API_KEY in conversation.offered.versions


def _names(access: Access) -> list[str]:
    with access.cluster.errors("cannot list topics"):
        return sorted(
            name
            for name in access.admin.list_topics(timeout=access.cluster.timeout_s).topics
            if not name.startswith("__")
        )


def read_topics(access: Access, names: set[str] | None) -> dict[str, TopicState]:
    """Return the topics of these names that exist; all but internal ones with None."""
    with access.cluster.errors("cannot read the metadata of the cluster"):
        topics = access.admin.list_topics(timeout=access.cluster.timeout_s).topics
    wanted = sorted(name for name in topics if (name in names if names is not None else not name.startswith("__")))
    found = {}
    for name, entries in _configs(access, wanted):
        replicas = [len(each.replicas) for each in topics[name].partitions.values()]
        own = {entry.name: entry.value or "" for entry in entries if _source(entry) == _OWN}
        found[name] = TopicState(
            name,
            len(replicas),
            min(replicas, default=0),
            own,
            {entry.name: entry.value for entry in entries},
            {entry.name: fallback for entry in entries if (fallback := _fallback(entry)) is not None},
            len(set(replicas)) <= 1,
        )
    return dict(sorted(found.items()))


def _configs(access: Access, names: list[str]) -> Iterable[tuple[str, list[Any]]]:
    api, kafka, cluster = admin_api(), kafka_api(), access.cluster
    for begin in range(0, len(names), TOPICS_PER_REQUEST):
        part = [api.ConfigResource(api.ResourceType.TOPIC, each) for each in names[begin : begin + TOPICS_PER_REQUEST]]
        with cluster.errors("cannot read the settings of topics"):
            for resource, future in access.admin.describe_configs(part, request_timeout=cluster.timeout_s).items():
                try:
                    yield resource.name, list(future.result().values())
                except kafka.KafkaException as error:
                    if error.args[0].name() != "UNKNOWN_TOPIC_OR_PART":  # Deleted meanwhile.
                        raise


def _source(entry: Any) -> int:
    return int(getattr(entry.source, "value", entry.source))


def _fallback(entry: Any) -> tuple[str, str | None] | None:
    rest = [each for each in (entry.synonyms or {}).values() if _source(each) != _OWN]
    return (rest[0].name, rest[0].value) if rest else None


# Changing


def _step(access: Access, change: TopicChange) -> ContractStep:
    if change.before is None:
        action, turn = Action.CREATE, Turn.CREATE
    elif change.after is None:
        action, turn = Action.DELETE, Turn.DELETE
    else:
        action, turn = Action.CHANGE, Turn.CHANGE
    return ContractStep(
        "topics",
        action,
        f"topic {change.name}",
        turn,
        lambda: _run(access, change),
        tuple(change_details(change)),
        tuple(_losses(access, change)),
        change.refusal or _refused_by_cluster(access, change),
        change,
    )


def _losses(access: Access, change: TopicChange) -> list[str]:
    found = losses(change)
    if change.after is not None or change.before is None:
        return found
    (topic,) = described_all(access.cluster, access.admin, [change.name]).values()
    records = records_between(offset_ranges(access.cluster, access.admin, [topic]).values())
    return [f"{each}: up to {count(records, 'record')}" for each in found]


def _refused_by_cluster(access: Access, change: TopicChange) -> str:
    """Ask the cluster whether it would do it, so that a plan does not promise what it refuses."""
    try:
        if change.before is None:
            _create(access, change, dry_run=True)
        elif change.after is not None and (change.set_ or change.unset):
            target = Target("topic", change.name)
            write_entries(access.cluster, access.admin, target, change.set_, change.unset, dry_run=True)
    except CommandFailed as failure:
        return failure.message
    return ""


def _run(access: Access, change: TopicChange) -> None:
    if change.before is None:
        _create(access, change, dry_run=False)
        wait_usable(access.cluster, access.admin, [change.name])
    elif change.after is None:
        _delete(access, change.name)
    else:
        if change.set_ or change.unset:
            write_entries(access.cluster, access.admin, Target("topic", change.name), change.set_, change.unset)
        if change.partitions_added:
            _add_partitions(access, change.name, change.before.partitions + change.partitions_added)
        if change.replication is not None:
            _replicate(access, change.name, change.replication)


def _create(access: Access, change: TopicChange, *, dry_run: bool) -> None:
    wanted, cluster = change.after, access.cluster
    assert wanted is not None, "a topic that is created is wanted"
    new = admin_api().NewTopic(
        wanted.name,
        num_partitions=wanted.partitions or -1,
        replication_factor=wanted.replication or -1,
        config=dict(change.set_),
    )
    with cluster.errors("cannot create topics"):
        answers = access.admin.create_topics(
            [new], operation_timeout=cluster.timeout_s, request_timeout=cluster.timeout_s, validate_only=dry_run
        )
    try:
        answers[wanted.name].result()
    except kafka_api().KafkaException as error:
        # Created meanwhile: the next plan compares it.
        if error.args[0].name() != "TOPIC_ALREADY_EXISTS" or dry_run:
            doing = f"cannot create topic {wanted.name!r}"
            raise from_kafka_error(error.args[0], bootstrap=cluster.bootstrap, doing=doing) from error


def _delete(access: Access, name: str) -> None:
    cluster = access.cluster
    with cluster.errors(f"cannot delete topic {name!r}"):
        options = {"operation_timeout": cluster.timeout_s, "request_timeout": cluster.timeout_s}
        answers = access.admin.delete_topics([name], **options)
        try:
            answers[name].result()
        except kafka_api().KafkaException as error:
            if error.args[0].name() != "UNKNOWN_TOPIC_OR_PART":
                raise


def _add_partitions(access: Access, name: str, total: int) -> None:
    cluster = access.cluster
    with cluster.errors(f"cannot add partitions to {name!r}"):
        new = admin_api().NewPartitions(name, total)
        access.admin.create_partitions([new], request_timeout=cluster.timeout_s)[name].result()


def _replicate(access: Access, name: str, factor: int) -> None:
    """Move replicas, and wait until the new ones are in sync."""
    state = read_state(access.cluster)
    moves = plan_replication_factor(state, [each for each in state.partitions if each.topic == name], factor)
    send(access.cluster, [(move.topic, move.index, move.after) for move in moves])
    follow(access.cluster, {(move.topic, move.index) for move in moves})

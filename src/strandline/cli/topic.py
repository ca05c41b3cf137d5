"""`strandline topic create | list | describe | delete`."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Any

import typer

from strandline.cli.client import TIMEOUT_S_DEFAULT, Cluster, admin_api, connect, described, kafka_api
from strandline.cli.failures import CommandFailed, ExitCode, NotFound, Unreachable, from_kafka_error, topic_not_found
from strandline.cli.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, ClientProperties, Timeout, Yes, key_values
from strandline.cli.output import Output

_POLL_S = 0.05

_Name = Annotated[str, typer.Argument(metavar="NAME", help="The topic.")]


def create(
    name: _Name,
    partitions: Annotated[int, typer.Option("--partitions", "-p", min=-1, help="-1: the broker's default.")] = -1,
    replication_factor: Annotated[
        int, typer.Option("--replication-factor", "-r", min=-1, help="-1: the broker's default.")
    ] = -1,
    configs: Annotated[
        list[str] | None, typer.Option("--config", "-c", metavar="KEY=VALUE", help="A topic setting. May be repeated.")
    ] = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Create a topic."""
    settings = key_values(configs, option="--config")
    cluster = connect(bootstrap, properties, timeout)
    admin = cluster.admin()
    topic = admin_api().NewTopic(
        name, num_partitions=partitions, replication_factor=replication_factor, config=settings
    )
    with cluster.errors(f"cannot create topic {name!r}"):
        admin.create_topics([topic], operation_timeout=timeout, request_timeout=timeout)[name].result()
    made = _wait_usable(cluster, admin, name)
    output = Output(as_json=as_json)
    if as_json:
        output.json_line({"topic": name, "topic_id": _topic_id(made), "partitions": len(made.partitions)})
    else:
        output.line(f"created {name} with {_count(len(made.partitions), 'partition')}")


def list_topics(
    internal: Annotated[bool, typer.Option("--internal", help="Internal topics (__...) too.")] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """List topics."""
    cluster = connect(bootstrap, properties, timeout)
    admin = cluster.admin()
    with cluster.errors("cannot list topics"):
        topics = admin.list_topics(timeout=timeout).topics
    rows = [
        (
            name,
            len(topics[name].partitions),
            max((len(p.replicas) for p in topics[name].partitions.values()), default=0),
        )
        for name in sorted(topics)
        if internal or not name.startswith("__")
    ]
    output = Output(as_json=as_json)
    if as_json:
        for name, partitions, replication_factor in rows:
            output.json_line({"topic": name, "partitions": partitions, "replication_factor": replication_factor})
    elif rows:
        output.table(["topic", "partitions", "replication"], rows)
    else:
        output.talk("no topics yet: create one with `strandline topic create NAME`")


def describe(
    name: _Name,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Show a topic: its partitions with leaders, replicas and offsets, and the settings that were changed."""
    cluster = connect(bootstrap, properties, timeout)
    admin = cluster.admin()
    topic = described(cluster, admin, name)
    offsets = _offset_ranges(cluster, admin, topic)
    changed = _changed_configs(cluster, admin, name)
    partitions = [
        {
            "partition": partition.id,
            "leader": partition.leader.id if partition.leader is not None else None,
            "replicas": [node.id for node in partition.replicas],
            "in_sync_replicas": [node.id for node in partition.isr],
            "log_start_offset": offsets[partition.id][0],
            "high_watermark": offsets[partition.id][1],
        }
        for partition in topic.partitions
    ]
    output = Output(as_json=as_json)
    if as_json:
        output.json_line(
            {"topic": name, "topic_id": _topic_id(topic), "partitions": partitions, "configs": changed},
        )
        return
    output.line(f"topic     {name}")
    output.line(f"id        {_topic_id(topic)}")
    if changed is None:
        output.line("settings  unknown: this cluster does not offer DescribeConfigs")
    else:
        output.line(f"settings  {' '.join(f'{key}={value}' for key, value in changed.items()) or 'all default'}")
    output.line("")
    output.table(
        ["partition", "leader", "replicas", "in sync", "start offset", "high watermark"],
        [
            [_list(cell) if isinstance(cell, list) else "none" if cell is None else cell for cell in row.values()]
            for row in partitions
        ],
    )


def delete(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="The topics.")],
    yes: Yes = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Delete topics and every record in them. Shows what would go, and asks."""
    cluster = connect(bootstrap, properties, timeout)
    admin = cluster.admin()
    output = Output(as_json=as_json)
    # All names are looked up before anything is deleted: a typing mistake must not leave half of the work done.
    names = list(dict.fromkeys(names))
    plans = [_plan(cluster, admin, name) for name in names]
    for name, partitions, records in plans:
        output.talk(f"delete {name}: {_count(partitions, 'partition')}, up to {_count(records, 'record')}, for good")
    if not yes:
        if not sys.stdin.isatty():
            raise CommandFailed("nothing was deleted", hint="say --yes to delete these topics", code=ExitCode.USAGE)
        if not typer.confirm("Delete?", err=True):
            raise CommandFailed("nothing was deleted")
    failures = []
    for name, future in admin.delete_topics(names, operation_timeout=timeout, request_timeout=timeout).items():
        failure = _outcome(future, cluster, name)
        if failure is not None:
            failures.append(failure)
        elif as_json:
            output.json_line({"topic": name, "deleted": True})
        else:
            output.line(f"deleted {name}")
    if failures:
        output.flush()
        raise failures[0] if len(failures) == 1 else CommandFailed("; ".join(failure.message for failure in failures))


def _wait_usable(cluster: Cluster, admin: Any, name: str) -> Any:
    """The new topic, once every partition has a leader: a broker may learn of it after the controller has answered."""
    deadline = time.monotonic() + cluster.timeout_s
    while (topic := _usable(cluster, admin, name)) is None:
        if time.monotonic() > deadline:
            raise Unreachable(f"topic {name!r} was created, but cannot be used after {cluster.timeout_s:g} s")
        time.sleep(_POLL_S)
    return topic


def _usable(cluster: Cluster, admin: Any, name: str) -> Any | None:
    try:
        topic = described(cluster, admin, name)
    except NotFound:
        return None
    return topic if all(partition.leader is not None for partition in topic.partitions) else None


def _outcome(future: Any, cluster: Cluster, name: str) -> CommandFailed | None:
    try:
        future.result()
    except kafka_api().KafkaException as error:
        if error.args[0].name() == "UNKNOWN_TOPIC_OR_PART":
            return topic_not_found(name)
        return from_kafka_error(error.args[0], bootstrap=cluster.bootstrap, doing=f"cannot delete topic {name!r}")
    return None


def _plan(cluster: Cluster, admin: Any, name: str) -> tuple[str, int, int]:
    topic = described(cluster, admin, name)
    ranges = _offset_ranges(cluster, admin, topic)
    records = sum(end - start for start, end in ranges.values() if start is not None and end is not None)
    return name, len(topic.partitions), records


def _offset_ranges(cluster: Cluster, admin: Any, topic: Any) -> dict[int, tuple[int | None, int | None]]:
    """Log start offset and high watermark by partition; None for a partition without a leader."""
    kafka, spec_of = kafka_api(), admin_api().OffsetSpec
    found: dict[int, list[int | None]] = {}
    for spec in (spec_of.earliest(), spec_of.latest()):
        wanted = {kafka.TopicPartition(topic.name, partition.id): spec for partition in topic.partitions}
        with cluster.errors(f"cannot read the offsets of {topic.name!r}"):
            for place, future in admin.list_offsets(wanted, request_timeout=cluster.timeout_s).items():
                try:
                    offset: int | None = future.result().offset
                except kafka.KafkaException as error:
                    if error.args[0].name() not in ("LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION"):
                        raise
                    offset = None
                found.setdefault(place.partition, []).append(offset)
    return {partition: (start, end) for partition, (start, end) in found.items()}


def _changed_configs(cluster: Cluster, admin: Any, name: str) -> dict[str, str] | None:
    """The settings made on the topic itself, or None when the cluster does not tell."""
    api = admin_api()
    resource = api.ConfigResource(api.ResourceType.TOPIC, name)
    with cluster.errors(f"cannot read the settings of {name!r}"):
        try:
            entries = admin.describe_configs([resource], request_timeout=cluster.timeout_s)[resource].result()
        except kafka_api().KafkaException as error:
            if error.args[0].name() in ("_UNSUPPORTED_FEATURE", "UNSUPPORTED_VERSION"):
                return None
            raise
    source = api.ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    return {key: entry.value for key, entry in sorted(entries.items()) if entry.source == source}


def _topic_id(topic: Any) -> str:
    # librdkafka prints the id in base64 with + and /, while Kafka's own tools and files use the URL-safe letters.
    return str(topic.topic_id).replace("+", "-").replace("/", "_")


def _list(numbers: list[int]) -> str:
    return ",".join(str(number) for number in numbers)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"

"""`strandline topic delete | trim`: what removes records. A plan first, then a yes, then the deed."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, Cluster, connect, kafka_api
from strandline.cli.common.failures import CommandFailed, from_kafka_error, topic_not_found
from strandline.cli.common.options import (
    BOOTSTRAP_DEFAULT,
    AsJson,
    Bootstrap,
    ClientProperties,
    Partitions,
    Timeout,
    TopicName,
    TopicNames,
    Yes,
)
from strandline.cli.common.output import Output
from strandline.cli.common.plans import confirm
from strandline.cli.common.progress import Progress
from strandline.cli.topic.removal_plan import deletion_plan, new_starts, trim_plan, trim_position
from strandline.cli.topic.topics import chosen_partitions, described, described_all, offset_ranges

_TOPICS_PER_REQUEST = 100
_PARTITIONS_PER_REQUEST = 1000


def delete(
    names: TopicNames,
    yes: Yes = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Delete topics and every record in them. Shows what would go, and asks."""
    cluster = connect(bootstrap, properties, timeout)
    admin, output = cluster.admin(), Output(as_json=as_json)
    # All names are looked up before anything is deleted: a typing mistake must not leave half of the work done.
    topics = described_all(cluster, admin, names)
    plan = deletion_plan(topics, offset_ranges(cluster, admin, topics.values()))
    confirm(output, plan, yes=yes, question="Delete?", undone="nothing was deleted")
    failures: list[CommandFailed] = []
    deleted: list[str] = []
    try:
        _delete_topics(cluster, admin, list(topics), deleted, failures)
    finally:
        # Printed when the bar is gone, and after Ctrl-C as well: what is deleted is deleted.
        for name in deleted:
            if as_json:
                output.json_line({"topic": name, "deleted": True})
            else:
                output.line(f"deleted {name}")
        output.flush()
    if failures:
        raise failures[0] if len(failures) == 1 else CommandFailed("; ".join(failure.message for failure in failures))


def _delete_topics(
    cluster: Cluster, admin: Any, names: list[str], deleted: list[str], failures: list[CommandFailed]
) -> None:
    with Progress("deleting", total=len(names), unit="topics") as progress:
        for begin in range(0, len(names), _TOPICS_PER_REQUEST):
            part = names[begin : begin + _TOPICS_PER_REQUEST]
            with cluster.errors("cannot delete topics"):
                options = {"operation_timeout": cluster.timeout_s, "request_timeout": cluster.timeout_s}
                answers = admin.delete_topics(part, **options)
            for name, future in answers.items():
                failure = _outcome(future, cluster, name)
                progress.advance(1)
                if failure is None:
                    deleted.append(name)
                else:
                    failures.append(failure)


def _outcome(future: Any, cluster: Cluster, name: str) -> CommandFailed | None:
    try:
        future.result()
    except kafka_api().KafkaException as error:
        if error.args[0].name() == "UNKNOWN_TOPIC_OR_PART":
            return topic_not_found(name)
        if error.args[0].name() == "POLICY_VIOLATION":
            # librdkafka asks in a version of DeleteTopics that has no words for the reason.
            return CommandFailed(
                f"the cluster does not let topic {name!r} be deleted",
                hint="either strandline.retention.lock.ms keeps it (see `strandline config explain`), or object topics "
                "need it: delete those first",
            )
        return from_kafka_error(error.args[0], bootstrap=cluster.bootstrap, doing=f"cannot delete topic {name!r}")
    return None


def trim(
    name: TopicName,
    before: Annotated[
        str,
        typer.Option(
            "--before",
            metavar="WHERE",
            help="Where the topic shall begin: an offset, -N (keep the last N), an ISO time, @ms, how long ago: 7d, "
            "or all.",
        ),
    ],
    partitions: Partitions = None,
    yes: Yes = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Delete the oldest records of a topic: everything before an offset or a time. Shows what would go, and asks."""
    position = trim_position(before)
    cluster = connect(bootstrap, properties, timeout)
    admin, output = cluster.admin(), Output(as_json=as_json)
    topic = described(cluster, admin, name)
    places = [(name, partition) for partition in chosen_partitions(topic, partitions)]
    ranges = offset_ranges(cluster, admin, [topic])
    targets = new_starts(cluster, admin, places, ranges, position)
    plan = trim_plan(name, targets)
    if not plan:
        output.talk(f"nothing to trim: {name} holds no record before that")
        return
    confirm(output, plan, yes=yes, question="Trim?", undone="nothing was trimmed")
    _delete_records(cluster, admin, name, {partition: new for partition, (_, new) in targets.items()}, output)


def _delete_records(cluster: Cluster, admin: Any, name: str, targets: dict[int, int], output: Output) -> None:
    kafka = kafka_api()
    wanted = [kafka.TopicPartition(name, partition, new) for partition, new in targets.items()]
    trimmed: dict[int, int] = {}
    try:
        with Progress("trimming", total=len(wanted), unit="partitions") as progress:
            for begin in range(0, len(wanted), _PARTITIONS_PER_REQUEST):
                part = wanted[begin : begin + _PARTITIONS_PER_REQUEST]
                options = {"operation_timeout": cluster.timeout_s, "request_timeout": cluster.timeout_s}
                with cluster.errors(f"cannot trim {name!r}"):
                    for place, future in admin.delete_records(part, **options).items():
                        trimmed[place.partition] = future.result().low_watermark
                        progress.advance(1)
    finally:
        for partition, start in trimmed.items():
            if output.as_json:
                output.json_line({"topic": name, "partition": partition, "log_start_offset": start})
            else:
                output.line(f"trimmed {name}-{partition}: begins at offset {start}")
        output.flush()

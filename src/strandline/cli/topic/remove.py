"""`strandline topic delete | trim`: what removes records. A plan first, then a yes, then the deed."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, Cluster, admin_api, connect, kafka_api
from strandline.cli.common.failures import CommandFailed, UsageFailed, from_kafka_error, topic_not_found
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
from strandline.cli.common.plain_words import count
from strandline.cli.common.plans import confirm
from strandline.cli.common.positions import Latest, Position, TimePosition, parse_position, start_offset
from strandline.cli.common.progress import Progress
from strandline.cli.topic.topics import (
    chosen_partitions,
    described,
    described_all,
    look_up_offsets,
    offset_ranges,
    records_between,
)

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
    plan = _deletion_plan(topics, offset_ranges(cluster, admin, topics.values()))
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


def _deletion_plan(topics: dict[str, Any], ranges: dict[tuple[str, int], Any]) -> list[str]:
    plan = []
    total = 0
    for name, topic in topics.items():
        records = records_between(ranges[name, partition.id] for partition in topic.partitions)
        total += records
        partitions = count(len(topic.partitions), "partition")
        plan.append(f"delete {name}: {partitions}, up to {count(records, 'record')}, for good")
    if len(topics) > 1:
        plan.insert(0, f"delete {count(len(topics), 'topic')} with up to {count(total, 'record')}:")
    return plan


def _outcome(future: Any, cluster: Cluster, name: str) -> CommandFailed | None:
    try:
        future.result()
    except kafka_api().KafkaException as error:
        if error.args[0].name() == "UNKNOWN_TOPIC_OR_PART":
            return topic_not_found(name)
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
    position = _trim_position(before)
    cluster = connect(bootstrap, properties, timeout)
    admin, output = cluster.admin(), Output(as_json=as_json)
    topic = described(cluster, admin, name)
    places = [(name, partition) for partition in chosen_partitions(topic, partitions)]
    ranges = offset_ranges(cluster, admin, [topic])
    targets = _new_starts(cluster, admin, places, ranges, position)
    plan = [
        f"trim {name}-{partition}: up to {count(new - start, 'record')}, offsets {start} to {new - 1}, for good"
        for partition, (start, new) in targets.items()
    ]
    if not plan:
        output.talk(f"nothing to trim: {name} holds no record before that")
        return
    confirm(output, plan, yes=yes, question="Trim?", undone="nothing was trimmed")
    _delete_records(cluster, admin, name, {partition: new for partition, (_, new) in targets.items()}, output)


def _trim_position(text: str) -> Position:
    if text.strip().lower() == "all":
        return Latest()
    try:
        return parse_position(text, now_ms=time.time_ns() // 1_000_000)
    except ValueError as error:
        raise UsageFailed(f"--before {error}; or all") from None


def _new_starts(
    cluster: Cluster, admin: Any, places: list[tuple[str, int]], ranges: dict[tuple[str, int], Any], position: Position
) -> dict[int, tuple[int, int]]:
    """By partition, the log start offset of today and the one to come, where they differ."""
    at_time: dict[tuple[str, int], int | None] = {}
    if isinstance(position, TimePosition):
        spec = admin_api().OffsetSpec.for_timestamp(position.timestamp_ms)
        at_time = look_up_offsets(cluster, admin, places, spec)
    targets = {}
    for place in places:
        start, end = ranges[place]
        if start is None or end is None:
            raise CommandFailed(
                f"partition {place[1]} of {place[0]!r} has no leader, or its log failed: nothing was trimmed",
                hint="see `strandline topic describe --storage`, or choose others with --partition",
            )
        found = at_time.get(place)
        new = start_offset(
            position, log_start_offset=start, end_offset=end, offset_at_time=None if found in (None, -1) else found
        )
        if new > start:
            targets[place[1]] = (start, new)
    return targets


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

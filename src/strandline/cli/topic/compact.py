"""`strandline topic compact`: what the cleaner would do and when; with --now it does it now."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, Cluster, connect
from strandline.cli.common.conversation import error_name
from strandline.cli.common.failures import CommandFailed
from strandline.cli.common.options import (
    BOOTSTRAP_DEFAULT,
    AsJson,
    Bootstrap,
    ClientProperties,
    Partitions,
    Timeout,
    TopicName,
)
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import count, size
from strandline.cli.topic.storage_reading import Storage, StoredReplica, read_storage
from strandline.cli.topic.storage_words import compaction_words, hindrance_words, is_compacted, offsets, reason_words
from strandline.cli.topic.storage_work import WAIT_S_DEFAULT, Wait, have_done, replicas_of, tell_failures
from strandline.cli.topic.topics import chosen_partitions, described
from strandline.codec.messages.compact_partitions_request import CompactPartitionsRequest, CompactTopic
from strandline.codec.messages.compact_partitions_response import CompactedPartition, CompactPartitionsResponse

_NO_ROOM = "No space left on device"


def compact(
    name: TopicName,
    now: Annotated[bool, typer.Option("--now", help="Do it now, however little there is to clean.")] = False,
    partitions: Partitions = None,
    wait: Wait = WAIT_S_DEFAULT,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Say what compaction would do to a topic and when; with --now have every replica compacted, and wait for it.

    Compaction removes records for whose key a newer one came. Offsets stay as they are. With --now the active segment
    is closed first, if there is something in it, so that all is cleaned that may be.
    """
    cluster = connect(bootstrap, properties, timeout)
    output = Output(as_json=as_json)
    topic = described(cluster, cluster.admin(), name)
    chosen = chosen_partitions(topic, partitions)
    storage = read_storage(cluster, [topic], partitions=chosen)
    _refuse_what_cannot_be(storage, name)
    if now:
        _compact_now(cluster, output, topic, chosen, wait)
    else:
        _show_plan(output, storage, name)


def _refuse_what_cannot_be(storage: Storage, name: str) -> None:
    if not storage.is_known:
        raise CommandFailed(
            "this cluster does not report on its cleaner, nor does it clean on request",
            hint="elsewhere a topic is compacted sooner with a smaller min.cleanable.dirty.ratio and segment.ms",
        )
    leaders = storage.leaders()
    if leaders and not any(is_compacted(replica.part) for replica in storage.replicas):
        policy = leaders[0].part.cleanup_policy or "empty"
        raise CommandFailed(
            f"{name!r} is not compacted: its cleanup.policy is {policy}",
            hint=f"strandline config set --topic {name} cleanup.policy=compact",
        )


# What would be


def _show_plan(output: Output, storage: Storage, name: str) -> None:
    for replica in storage.replicas:
        if output.as_json:
            output.json_line(_plan_object(replica))
        elif replica.part.is_leader:
            head = f"{replica.name} on broker {replica.node.node_id}: "
            output.hanging(head, " " * len(head), _plan_words(replica))
    if not output.as_json:
        output.talk(f"now: strandline topic compact {name} --now")


def _plan_words(replica: StoredReplica) -> str:
    part, node = replica.part, replica.node
    words = compaction_words(part, node)
    if part.cleaning_state == "idle" and part.clean_up_to < part.first_uncleanable:
        words += f"; offsets {offsets(part.clean_up_to, part.first_uncleanable)} may be cleaned now"
        if part.uncleanable_because == "active" and part.first_uncleanable < part.log_end_offset:
            words += f", {hindrance_words(part, node)}"
    return words


def _plan_object(replica: StoredReplica) -> dict[str, Any]:
    part = replica.part
    return {
        "topic": part.topic,
        "partition": part.partition,
        "broker": replica.node.node_id,
        "is_leader": part.is_leader,
        "state": part.cleaning_state,
        "reason": part.cleaning_reason,
        "dirty_ratio": part.dirty_ratio if part.dirty_ratio >= 0 else None,
        "clean_up_to": part.clean_up_to,
        "first_uncleanable": part.first_uncleanable,
        "log_end_offset": part.log_end_offset,
        "words": _plan_words(replica),
    }


# Doing it


def _compact_now(cluster: Cluster, output: Output, topic: Any, partitions: list[int], wait_s: float) -> None:
    def request_of(topics: dict[str, list[int]]) -> CompactPartitionsRequest:
        return CompactPartitionsRequest(
            topics=[CompactTopic(topic=name, partitions=numbers) for name, numbers in topics.items()]
        )

    def look() -> tuple[int, int]:
        storage = read_storage(cluster, [topic], partitions=partitions, with_segments=False)
        under_way = [each.part for each in storage.replicas if each.part.cleaning_state == "cleaning"]
        return sum(max(0, part.cleaning_bytes) for part in under_way), sum(
            max(0, part.cleaning_bytes_total) for part in under_way
        )

    wanted = replicas_of(topic, partitions)
    if not output.as_json:
        replicas = sum(len(numbers) for topics in wanted.values() for numbers in topics.values())
        output.talk(f"compacting {count(replicas, 'replica')} of {topic.name}; Ctrl-C leaves it to the brokers")
    answers = have_done(
        cluster,
        wanted,
        request_of,
        CompactPartitionsResponse,
        doing="compacting",
        wait_s=wait_s,
        look=look,
    )
    failures = []
    for broker_id, answer in answers.items():
        if answer is None:
            failures.append(CommandFailed(f"broker {broker_id} does not clean on request", hint="it is too old"))
        elif isinstance(answer, CommandFailed):
            failures.append(answer)
        else:
            failures += _tell(output, broker_id, answer)
    output.flush()
    tell_failures(failures)


def _tell(output: Output, broker_id: int, answer: CompactPartitionsResponse) -> list[CommandFailed]:
    failures = []
    for done in sorted(answer.partitions, key=lambda each: (each.topic, each.partition)):
        where = f"{done.topic}-{done.partition} on broker {broker_id}"
        if output.as_json:
            output.json_line(_done_object(broker_id, done))
        elif not done.error_code:
            output.line(f"compacted {where}: {_done_words(done)}")
        if done.error_code:
            why = reason_words(done.error_message or error_name(done.error_code))
            failures.append(CommandFailed(f"{where} was not compacted: {why}", hint=_advice(why)))
    return failures


def _advice(why: str) -> str:
    if _NO_ROOM in why:
        return "nothing was lost; make room for as much as the largest segment has, then say it again"
    return "nothing was lost; mend that and say it again, or wait: it is tried again by itself"


def _done_words(done: CompactedPartition) -> str:
    if not done.bytes_before:
        return "there was nothing to clean"
    words = f"{size(done.bytes_before)} became {size(done.bytes_after)}"
    words += f", {count(done.records_before, 'record')} became {done.records_after:,}"
    if done.records_without_key:
        words += f"; {count(done.records_without_key, 'record')} without a key removed"
    return words


def _done_object(broker_id: int, done: CompactedPartition) -> dict[str, Any]:
    return {
        "topic": done.topic,
        "partition": done.partition,
        "broker": broker_id,
        "error": error_name(done.error_code) if done.error_code else None,
        "reason": done.error_message,
        "clean_up_to": done.clean_up_to if done.clean_up_to >= 0 else None,
        "bytes_before": done.bytes_before,
        "bytes_after": done.bytes_after,
        "records_before": done.records_before,
        "records_after": done.records_after,
        "records_without_key": done.records_without_key,
    }

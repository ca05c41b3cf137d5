"""`strandline topic scrub`: when the files of a topic were last read again; with --now they are read now."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, Cluster, connect
from strandline.cli.common.conversation import error_name
from strandline.cli.common.failures import CommandFailed, ExitCode
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
from strandline.cli.topic.storage_reading import Storage, read_storage
from strandline.cli.topic.storage_words import damage_words, offsets, scrub_words
from strandline.cli.topic.storage_work import WAIT_S_DEFAULT, Wait, have_done, replicas_of, tell_failures
from strandline.cli.topic.topics import chosen_partitions, described
from strandline.codec.messages.scrub_partitions_request import ScrubPartitionsRequest, ScrubTopic
from strandline.codec.messages.scrub_partitions_response import FoundDamage, ScrubbedPartition, ScrubPartitionsResponse


def scrub(
    name: TopicName,
    now: Annotated[bool, typer.Option("--now", help="Read every file now.")] = False,
    partitions: Partitions = None,
    wait: Wait = WAIT_S_DEFAULT,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Say when the files of a topic were last read again and what is damaged; with --now read all of them, and wait.

    A damaged batch is never served. A replica repairs itself from the leader. The exit code is 5 where something is
    damaged.
    """
    cluster = connect(bootstrap, properties, timeout)
    output = Output(as_json=as_json)
    topic = described(cluster, cluster.admin(), name)
    chosen = chosen_partitions(topic, partitions)
    storage = read_storage(cluster, [topic], partitions=chosen, with_segments=False)
    if not storage.is_known:
        raise CommandFailed(
            "this cluster does not check its files on request",
            hint="`strandline log dump DIR` checks those of a node that is stopped",
        )
    damages = _scrub_now(cluster, output, topic, chosen, wait) if now else _show(output, storage)
    output.flush()
    if damages:
        raise CommandFailed(
            f"{count(damages, 'damaged place')}",
            hint=f"`strandline topic describe {name} --storage` shows what becomes of them",
            code=ExitCode.UNHEALTHY,
        )


def _show(output: Output, storage: Storage) -> int:
    """Print what is known already; return how many places are damaged."""
    damages = 0
    for replica in storage.replicas:
        part, node = replica.part, replica.node
        damages += len(part.damages)
        if output.as_json:
            scrubbed_ms = part.scrubbed_ms if part.scrubbed_ms >= 0 else None
            found = [_damage_object(damage) for damage in part.damages]
            output.json_line(_object(part.topic, part.partition, node.node_id, found) | {"scrubbed_ms": scrubbed_ms})
            continue
        output.line(f"{replica.name} on broker {node.node_id}: {scrub_words(part, node)}")
        for damage in part.damages:
            output.hanging("  damage: ", " " * 10, damage_words(damage, node))
    return damages


def _scrub_now(cluster: Cluster, output: Output, topic: Any, partitions: list[int], wait_s: float) -> int:
    def request_of(topics: dict[str, list[int]]) -> ScrubPartitionsRequest:
        return ScrubPartitionsRequest(
            topics=[ScrubTopic(topic=name, partitions=numbers) for name, numbers in topics.items()]
        )

    answers = have_done(
        cluster,
        replicas_of(topic, partitions),
        request_of,
        ScrubPartitionsResponse,
        doing="scrubbing",
        wait_s=wait_s,
        look=lambda: (0, 0),
    )
    failures: list[CommandFailed] = []
    damages = 0
    for broker_id, answer in answers.items():
        if answer is None:
            failures.append(CommandFailed(f"broker {broker_id} does not check its files on request"))
        elif isinstance(answer, CommandFailed):
            failures.append(answer)
        else:
            for each in sorted(answer.partitions, key=lambda each: (each.topic, each.partition)):
                damages += len(each.damages)
                failures += _tell(output, broker_id, each)
    tell_failures(failures)
    return damages


def _tell(output: Output, broker_id: int, each: ScrubbedPartition) -> list[CommandFailed]:
    where = f"{each.topic}-{each.partition} on broker {broker_id}"
    if output.as_json:
        found = _object(each.topic, each.partition, broker_id, [_damage_object(damage) for damage in each.damages])
        error = error_name(each.error_code) if each.error_code else None
        output.json_line(found | {"error": error, "bytes_read": each.bytes_read})
    elif not each.error_code:
        verdict = "all of it is whole" if not each.damages else count(len(each.damages), "damaged place")
        output.line(f"read {where}: {size(each.bytes_read)}, {verdict}")
        for damage in each.damages:
            output.hanging("  damage: ", " " * 10, _found_words(damage))
    if each.error_code:
        why = each.error_message or error_name(each.error_code)
        return [CommandFailed(f"{where} could not be read: {why}", hint="see the log of that broker")]
    return []


def _found_words(damage: FoundDamage) -> str:
    at = f", byte {damage.position:,} of the segment" if damage.position >= 0 else ""
    state = f"; {damage.state}" if damage.state else ""
    return f"offsets {offsets(damage.base_offset, damage.end_offset)}{at}: {damage.what}{state}"


def _object(topic: str, partition: int, broker_id: int, damages: list[dict[str, Any]]) -> dict[str, Any]:
    return {"topic": topic, "partition": partition, "broker": broker_id, "damages": damages}


def _damage_object(damage: Any) -> dict[str, Any]:
    return {
        "base_offset": damage.base_offset,
        "end_offset": damage.end_offset,
        "position": damage.position if damage.position >= 0 else None,
        "what": damage.what,
        "state": damage.state,
    }

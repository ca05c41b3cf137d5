"""`strandline topic verify`: whether the records of a topic are those that its leaders anchored on the audit topic."""

from __future__ import annotations

import json
from typing import Any, Final
from uuid import UUID

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, Cluster, connect
from strandline.cli.common.conversation import own_client
from strandline.cli.common.failures import CommandFailed, ExitCode, NotFound
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
from strandline.cli.common.plain_words import count
from strandline.cli.common.positions import Earliest, Latest
from strandline.cli.records.reading import Reading, look_up_ranges
from strandline.cli.records.record import ReadRecord
from strandline.cli.topic.topics import chosen_partitions, described
from strandline.client.cluster_client import EARLIEST, LATEST, READ_UNCOMMITTED, ClusterClient
from strandline.client.failures import DataLost
from strandline.client.raw_batches import read_batches
from strandline.ids import TopicPartition
from strandline.security.audit.chain import ANCHOR, Anchor, anchor_of
from strandline.security.audit.verification import BatchUnreadable, ChainVerdict, verify_chain

_AUDIT: Final = "__strandline_audit"
_READ_BYTES: Final = 4 * 1024 * 1024
_MARK: Final = ANCHOR.encode()


def verify(
    name: TopicName,
    partitions: Partitions = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Read a topic, and compare its hashes with the anchors on the audit topic (`strandline.audit.chain=true`).

    Needs the right to read both. The exit code is 5 if records were changed or are missing, or if anchors are.
    """
    cluster = connect(bootstrap, properties, timeout)
    output = Output(as_json=as_json)
    admin = cluster.admin()
    chosen = chosen_partitions(described(cluster, admin, name), partitions)
    with own_client(cluster, f"cannot verify {name}") as client:
        topic = client.topic(name)
        if topic is None:
            raise NotFound(f"topic {name!r} does not exist")
        anchors = _read_anchors(cluster, admin, topic.topic_id)
        if not anchors:
            raise CommandFailed(
                f"no anchor of {name} is on {_AUDIT}",
                hint=f"set strandline.audit.chain=true with `strandline topic alter {name}`; the first follows soon",
            )
        failed = 0
        for index in chosen:
            verdict = _verify(client, TopicPartition(name, index), topic.topic_id, anchors.get(index, []))
            _show(output, name, index, verdict)
            failed += bool(verdict.problems)
    output.flush()
    if failed:
        raise CommandFailed(
            f"{count(failed, 'partition')} of {name} cannot be proven",
            hint="compare with a backup or another replica, and keep the files of the nodes as evidence",
            code=ExitCode.UNHEALTHY,
        )


class AnchorSink:
    """A sink of lines that keeps the anchors of one topic by partition, each once."""

    done = False

    def __init__(self, topic_id: UUID) -> None:
        self.found: dict[int, list[Anchor]] = {}
        self._topic_id = topic_id
        self._ids: set[str] = set()

    def take(self, records: list[ReadRecord]) -> int:
        """Keep those that are wanted."""
        for record in records:
            if record.value is None or _MARK not in record.value:
                continue
            try:
                line = json.loads(record.value)
            except ValueError:
                continue
            anchor = anchor_of(line)
            if anchor is None or anchor.topic_id != self._topic_id or line.get("id") in self._ids:
                # A line may stand twice after a change of leaders of the audit topic.
                continue
            self._ids.add(line.get("id"))
            self.found.setdefault(anchor.partition, []).append(anchor)
        return len(records)


def _read_anchors(cluster: Cluster, admin: Any, topic_id: UUID) -> dict[int, list[Anchor]]:
    try:
        partitions = chosen_partitions(described(cluster, admin, _AUDIT), None)
    except NotFound:
        raise NotFound(
            f"this cluster has no topic {_AUDIT}, or you may not see it",
            hint="nodes write it with an authorizer, with SASL, or with strandline.audit.enable=true",
        ) from None
    sink = AnchorSink(topic_id)
    ranges = look_up_ranges(cluster, admin, _AUDIT, partitions, Earliest(), Latest())
    Reading(cluster, _AUDIT, ranges).run(sink, follow=False)
    return sink.found


def _verify(client: ClusterClient, partition: TopicPartition, topic_id: UUID, anchors: list[Anchor]) -> ChainVerdict:
    def offset(which: int) -> int:
        return client.list_offsets({partition: which}, isolation_level=READ_UNCOMMITTED)[partition]

    def read(at: int) -> bytes:
        try:
            return read_batches(client, partition, topic_id, at, size_bytes_max=_READ_BYTES)
        except DataLost as error:
            raise BatchUnreadable(str(error)) from None

    return verify_chain(anchors, offset(EARLIEST), offset(LATEST), read)


def _show(output: Output, topic: str, index: int, verdict: ChainVerdict) -> None:
    if output.as_json:
        output.json_line(
            {
                "topic": topic,
                "partition": index,
                "anchors": verdict.anchors,
                "verified": [{"from": first, "to": end} for first, end in verdict.verified],
                "unanchored": verdict.unanchored,
                "problems": [
                    {"kind": each.kind, "from": each.first, "to": each.end, "what": each.words}
                    for each in verdict.problems
                ],
                "notes": verdict.notes,
            }
        )
        return
    state = "FAILED" if verdict.problems else "ok" if verdict.anchors else "no anchor"
    proven = " and ".join(f"{first} to {end - 1}" for first, end in verdict.verified)
    words = f"offsets {proven} are as anchored" if proven else "nothing to compare"
    if verdict.unanchored:
        words += f"; {verdict.unanchored} at the end are not anchored yet"
    output.hanging(f"{topic}-{index}  {state}: ", "    ", words)
    for problem in verdict.problems:
        is_one = problem.end <= problem.first + 1
        offsets = f"offset {problem.first}" if is_one else f"offsets {problem.first} to {problem.end - 1}"
        output.hanging("  problem: ", "    ", f"{offsets}: {problem.words}")
    for note in verdict.notes:
        output.hanging("  note: ", "    ", note)

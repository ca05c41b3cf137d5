"""What `doctor` asks of a cluster: can it be reached, do its addresses hold, are partitions, disks and clocks sound."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from strandline.cli.cluster.info import health_of
from strandline.cli.common.client import Cluster, admin_api, host_and_port, kafka_api, servers_of
from strandline.cli.common.conversation import Conversation, converse, is_spoken
from strandline.cli.common.failures import CommandFailed
from strandline.cli.common.partition_places import places_of
from strandline.cli.common.plain_words import count, duration
from strandline.cli.config.access import Target, read_entries
from strandline.cli.doctor.disk import room_findings
from strandline.cli.doctor.findings import Finding, note, ok, problem, warning
from strandline.cli.doctor.machine import is_this_machine
from strandline.config.cluster_checks import EVERY_INTERFACE, is_loopback
from strandline.config.properties import parse_properties

REACH_TIMEOUT_S = 2.0
CLOCK_AHEAD_MS = 2_000
PARTITIONS_ASKED = 1000


def reach_findings(bootstrap: str) -> Iterator[Finding]:
    """Yield each bootstrap server: does its name resolve, does its port answer."""
    for server in bootstrap.split(","):
        host, port = host_and_port(server.strip())
        reason, taken_ms = knock(host, port)
        if not reason:
            yield ok("reach", f"{host}:{port} accepts connections ({taken_ms:.1f} ms)")
        elif "refused" in reason:
            advice = "start it with `strandline serve` or `dev`, or compare the port with its `listeners`"
            yield problem("reach", f"{host}:{port} refuses connections: no node listens there", advice)
        else:
            yield problem(
                "reach", f"{host}:{port} cannot be reached: {reason}", "look at the name, the network, the firewall"
            )


def knock(host: str, port: int) -> tuple[str, float]:
    """Why it cannot be reached, or nothing; and the milliseconds it took."""
    began = time.perf_counter()
    try:
        with socket.create_connection((host, port), REACH_TIMEOUT_S):
            return "", (time.perf_counter() - began) * 1000
    except OSError as error:
        return (error.strerror or str(error)).lower(), (time.perf_counter() - began) * 1000


def metadata_of(cluster: Cluster, admin: Any) -> Any:
    if is_spoken(cluster):
        return places_of(cluster)
    with cluster.errors("cannot read the metadata"):
        return admin.list_topics(timeout=cluster.timeout_s)


def protocol_findings(cluster: Cluster) -> Iterator[Finding]:
    conversation = converse(cluster)
    if conversation is None:
        yield note("protocol", "its login is not one of ours: versions, disks and addresses are only partly looked at")
        return
    with conversation:
        yield ok("protocol", f"it speaks the Kafka protocol: {len(conversation.offered.versions)} APIs")


def address_findings(cluster: Cluster, metadata: Any) -> Iterator[Finding]:
    """Check that advertised addresses can be reached from this machine."""
    from_afar = not any(is_loopback(host) for host, _ in servers_of(cluster.bootstrap))
    for broker in sorted(metadata.brokers.values(), key=lambda broker: int(broker.id)):
        words = f"broker {broker.id} tells clients to connect to {broker.host}:{broker.port}"
        reason = _why_unusable(cluster, broker)
        if broker.host in EVERY_INTERFACE:
            advice = "set advertised.listeners to a name that other machines can reach, and restart it"
            yield problem("advertised", f"{words}, which is no address to connect to", advice)
        elif from_afar and is_loopback(broker.host):
            advice = "set advertised.listeners to a name that other machines can reach, and restart it"
            yield problem("advertised", f"{words}, which on another machine is that machine itself", advice)
        elif reason:
            advice = "set advertised.listeners to what clients can reach, or open the way there"
            if "refused" in reason:
                advice = f"start broker {broker.id} if it does not run; else {advice}"
            yield problem("advertised", f"{words}, which does not work from here: {reason}", advice)
        else:
            yield ok("advertised", f"{words}, which works from here")


def _why_unusable(cluster: Cluster, broker: Any) -> str:
    """Ask the listener what it speaks, because an open port may belong to another program."""
    reason, _ = knock(broker.host, broker.port)
    if reason or not is_spoken(cluster):
        return reason
    try:
        with Conversation(broker.host, broker.port, min(cluster.timeout_s, REACH_TIMEOUT_S), cluster.security):
            return ""
    except CommandFailed as failure:
        return failure.message


def partition_findings(metadata: Any) -> Iterator[Finding]:
    health = health_of(metadata.topics)
    total = count(health.partitions, "partition")
    if health.offline:
        advice = "the log of the node says why: a broker that is down, or a damaged log (`strandline log dump`)"
        yield problem("partitions", f"{health.offline:,} of {total} have no leader: they cannot be used", advice)
    if health.under_replicated:
        advice = "a broker is down or cannot keep up: `strandline cluster health` says which, and what to do"
        yield warning(
            "partitions", f"{health.under_replicated:,} of {total} have replicas that are not in sync", advice
        )
    if not health.offline and not health.under_replicated:
        yield ok("partitions", f"{total}, all led and in sync")


def log_dir_findings(cluster: Cluster, metadata: Any) -> Iterator[Finding]:
    """Room and errors of the brokers' own disks, as they tell them."""
    from strandline.codec.messages.describe_log_dirs_request import DescribeLogDirsRequest
    from strandline.codec.messages.describe_log_dirs_response import DescribeLogDirsResponse

    if not is_spoken(cluster):
        return
    for broker in sorted(metadata.brokers.values(), key=lambda broker: int(broker.id)):
        if _why_unusable(cluster, broker):
            continue  # That is a finding already.
        conversation = converse(cluster, broker)
        assert conversation is not None, "our own connections reach it"
        with conversation:
            answer = conversation.ask(DescribeLogDirsRequest(topics=[]), DescribeLogDirsResponse)
        for directory in [] if answer is None else answer.results:
            where = f"in {directory.log_dir} of broker {broker.id}"
            if directory.error_code:
                reason = kafka_api().KafkaError(directory.error_code).str()
                yield problem(
                    "log-dir", f"{where}: {reason}", "its disk failed, or it cannot be read: see the node's log"
                )
            elif directory.total_bytes > 0:
                yield from room_findings(directory.usable_bytes, directory.total_bytes, where)


def broker_setting_findings(cluster: Cluster, admin: Any, metadata: Any) -> Iterator[Finding]:
    for broker in sorted(metadata.brokers.values(), key=lambda broker: int(broker.id)):
        try:
            entries = read_entries(cluster, admin, Target("broker", str(broker.id)))
        except CommandFailed as failure:
            yield warning("flush-mode", f"broker {broker.id} does not tell its settings: {failure.message}")
            continue
        if entries is None:
            return
        authorizer = entries.get("authorizer.class.name")
        if authorizer is not None:
            yield from access_findings(broker.id, broker.host, authorizer.value or "")
        mode = entries.get("flush.mode")
        if mode is None:
            interval = entries.get("log.flush.interval.messages")
            if interval is not None and interval.value != "1":
                text = f"broker {broker.id} leaves flushing to the system: only replicas protect against a power cut"
                yield note("flush-mode", text)
        elif mode.value == "async":
            advice = f"strandline config set --broker {broker.id} flush.mode=auto"
            text = f"broker {broker.id} has flush.mode=async: a power cut takes acknowledged records of single replicas"
            yield warning("flush-mode", text, advice)
        else:
            yield ok("flush-mode", f"broker {broker.id} has flush.mode={mode.value}")


def access_findings(broker_id: int, host: str, authorizer: str) -> Iterator[Finding]:
    """Yield whether access rules decide what clients of a broker at this address may do."""
    if authorizer:
        yield ok("access-rules", f"broker {broker_id} checks the rights of its clients")
    elif not is_loopback(host):
        yield warning(
            "access-rules",
            f"broker {broker_id} has no authorizer: all who can connect to {host} can read and change everything",
            "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer, first with "
            "authorizer.mode=report; docs/security.md has the way",
        )


def clock_findings(cluster: Cluster, admin: Any, metadata: Any) -> Iterator[Finding]:
    """Compare clocks by records, because the protocol has no time: one from the future shows a clock that is ahead."""
    local = all(is_this_machine(broker.host) for broker in metadata.brokers.values())
    ahead: dict[str, int] = {}
    for topic, newest_ms in _newest_timestamps(cluster, admin, metadata).items():
        ahead_ms = newest_ms - time.time_ns() // 1_000_000
        if ahead_ms > CLOCK_AHEAD_MS:
            ahead[topic] = max(ahead_ms, ahead.get(topic, 0))
    for topic, ahead_ms in sorted(ahead.items()):
        # Groups are written by the broker, with its own clock; other records carry the producer's.
        whose = "the broker's" if topic.startswith("__") else "a producer's"
        yield warning(
            "clock",
            f"the newest record of {topic} is {duration(ahead_ms // 1000 * 1000)} ahead of this machine's clock",
            f"{whose} clock is ahead, or this one behind: retention and reading by time go wrong",
        )
    if not ahead:
        yield ok("clock", "the broker is on this machine: one clock" if local else "no record is from the future")


def _newest_timestamps(cluster: Cluster, admin: Any, metadata: Any) -> dict[str, int]:
    kafka = kafka_api()
    places = [
        kafka.TopicPartition(name, partition)
        for name, topic in sorted(metadata.topics.items())
        for partition, described in topic.partitions.items()
        if described.leader >= 0
    ][:PARTITIONS_ASKED]
    newest: dict[str, int] = {}
    if not places:
        return newest
    spec = admin_api().OffsetSpec.max_timestamp()
    answers = admin.list_offsets(dict.fromkeys(places, spec), request_timeout=cluster.timeout_s)
    for place, future in answers.items():
        try:
            found = future.result().timestamp
        except kafka.KafkaException:
            # Brokers older than 3.0 cannot say; the check is then without ground, not wrong.
            continue
        newest[place.topic] = max(found, newest.get(place.topic, -1))
    return newest


def data_findings(directory: Path, cluster_id: str | None) -> Iterator[Finding]:
    """Whether a data directory is one, and belongs to the cluster that was reached."""
    path = directory / "meta.properties"
    if not path.exists():
        if directory.exists() and any(directory.iterdir()):
            yield warning("data", f"{directory} holds files but no meta.properties: is it a data directory?")
        return
    try:
        found = parse_properties(path.read_text()).get("cluster.id")
    except (OSError, UnicodeDecodeError) as error:
        yield problem("data", f"{path} cannot be read: {error}", "give it to the user that runs the node")
        return
    if cluster_id is not None and found != cluster_id:
        yield warning("data", f"{directory} belongs to cluster {found}, but the one that was reached is {cluster_id}")
    else:
        yield ok("data", f"{directory} belongs to cluster {found}")

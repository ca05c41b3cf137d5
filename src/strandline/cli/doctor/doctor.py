"""`strandline doctor`: what is wrong with a node or this machine, what to do, and what each topic survives."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, Cluster, admin_api, host_and_port, kafka_api
from strandline.cli.common.command_config import client_properties
from strandline.cli.common.durability import Survival, survival
from strandline.cli.common.failures import CommandFailed, ExitCode
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, ClientProperties, Timeout
from strandline.cli.common.output import Output, colours_wanted
from strandline.cli.common.plain_words import count
from strandline.cli.doctor.cluster import (
    address_findings,
    broker_setting_findings,
    clock_findings,
    data_findings,
    log_dir_findings,
    metadata_of,
    partition_findings,
    protocol_findings,
    reach_findings,
)
from strandline.cli.doctor.disk import disk_findings
from strandline.cli.doctor.estate import estate_findings
from strandline.cli.doctor.findings import Finding, Level, note, ok, problem, warning
from strandline.cli.doctor.machine import is_this_machine, listening_pid, machine_findings
from strandline.cli.doctor.queues import queue_findings
from strandline.cli.doctor.storage import storage_findings

_TOPICS_PER_REQUEST = 100
_NAMES_SHOWN = 3
_COLOURS = {Level.OK: "32", Level.NOTE: "36", Level.WARNING: "33", Level.PROBLEM: "31"}


def doctor(
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="A data directory on this machine to look at.")
    ] = None,
    no_cluster: Annotated[bool, typer.Option("--no-cluster", help="Look at this machine only.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings count as wrong, too.")] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Say what is wrong with a node or this machine, and what to do; and what the records of each topic survive.

    It only looks. To time a flush it writes a small file into --data and removes it at once. The exit code is 5 when
    something is wrong.
    """
    cluster = Cluster(bootstrap, client_properties(properties), timeout)
    output = Output(as_json=as_json)
    seen: list[Finding] = []

    def tell(heading: str, findings: Iterable[Finding]) -> None:
        if not as_json:
            output.line(heading)
        for finding in findings:
            seen.append(finding)
            if as_json:
                output.json_line(finding.as_json())
            else:
                show(output, finding)
            output.flush()

    tell("this machine", machine_findings(None if no_cluster else _local_node(bootstrap)))
    if data is not None:
        tell("the disk", disk_findings(data))
    metadata = None
    if not no_cluster:
        tell("the way to the cluster", reach_findings(bootstrap))
        if any(finding.check == "reach" and finding.level is Level.OK for finding in seen):
            metadata = _look_at_cluster(cluster, tell, grouped=not as_json)
    if data is not None:
        tell("the data directory", data_findings(data, None if metadata is None else metadata.cluster_id))
    conclude(output, seen, strict)


def _local_node(bootstrap: str) -> int | None:
    host, port = host_and_port(bootstrap.split(",")[0].strip())
    return listening_pid(port) if is_this_machine(host) else None


def _look_at_cluster(cluster: Cluster, tell: Callable[[str, Iterable[Finding]], None], *, grouped: bool) -> Any:
    try:
        tell("the protocol", protocol_findings(cluster))
        admin = cluster.admin()
        metadata = metadata_of(cluster, admin)
        tell("the brokers", _broker_findings(cluster, admin, metadata))
        configs: dict[str, dict[str, str | None]] = {}
        survivals = topic_findings(cluster, admin, metadata, grouped=grouped, configs=configs)
        tell("what topics survive (acknowledged with acks=all)", survivals)
        tell("the six rules of a well-run estate (docs/advise.md)", estate_findings(cluster, metadata, configs))
    except CommandFailed as failure:
        # A check that cannot be made is a finding, too: the others were printed already.
        tell("the check was cut short", [problem("cluster", failure.message, failure.hint)])
        return None
    return metadata


def _broker_findings(cluster: Cluster, admin: Any, metadata: Any) -> Iterator[Finding]:
    yield from address_findings(cluster, metadata)
    yield from partition_findings(metadata)
    yield from log_dir_findings(cluster, metadata)
    brokers = sorted(metadata.brokers.values(), key=lambda broker: int(broker.id))
    yield from storage_findings(cluster, [(broker.host, broker.port) for broker in brokers])
    yield from broker_setting_findings(cluster, admin, metadata)
    yield from clock_findings(cluster, admin, metadata)
    yield from queue_findings(cluster)


def topic_findings(
    cluster: Cluster, admin: Any, metadata: Any, *, grouped: bool, configs: dict[str, dict[str, str | None]]
) -> Iterator[Finding]:
    """Yield what each topic survives; for a person, one finding for all topics of the same terms.

    The settings of topics are kept in `configs`, because other findings need them, too.
    """
    names = sorted(name for name in metadata.topics if not name.startswith("__"))
    if not names:
        yield note("topics", "no topics yet")
        return
    groups: dict[tuple[str, str], list[tuple[str, Survival]]] = {}
    for name, settings in _configs_of(cluster, admin, names):
        if settings is None:
            yield note("topics", "the cluster does not offer DescribeConfigs: what topics survive cannot be said")
            return
        replicas = min((len(p.replicas) for p in metadata.topics[name].partitions.values()), default=0)
        configs[name] = settings
        found = survival(name, replicas, settings, brokers=len(metadata.brokers))
        group = (str(found), found.flaw) if grouped else (name, "")
        groups.setdefault(group, []).append((name, found))
    for members in groups.values():
        found = members[0][1]
        words = f"{_listed([name for name, _ in members])}: {found}"
        advice = found.advice if len(members) == 1 else found.advice.replace(f" {members[0][0]} ", " NAME ")
        if found.flaw:
            yield warning("topic", f"{words}. {_sentence(found.flaw)}", advice)
        else:
            yield ok("topic", words)


def _configs_of(cluster: Cluster, admin: Any, names: list[str]) -> Iterator[tuple[str, dict[str, str | None] | None]]:
    api, kafka = admin_api(), kafka_api()
    for begin in range(0, len(names), _TOPICS_PER_REQUEST):
        resources = [
            api.ConfigResource(api.ResourceType.TOPIC, name) for name in names[begin : begin + _TOPICS_PER_REQUEST]
        ]
        with cluster.errors("cannot read the settings of topics"):
            for resource, future in admin.describe_configs(resources, request_timeout=cluster.timeout_s).items():
                try:
                    yield resource.name, {key: entry.value for key, entry in future.result().items()}
                except kafka.KafkaException as error:
                    name = error.args[0].name()
                    if name in ("_UNSUPPORTED_FEATURE", "UNSUPPORTED_VERSION"):
                        yield resource.name, None
                    elif name != "UNKNOWN_TOPIC_OR_PART":  # Deleted meanwhile.
                        raise


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:_NAMES_SHOWN])
    return shown if len(names) <= _NAMES_SHOWN else f"{shown} and {count(len(names) - _NAMES_SHOWN, 'more topic')}"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def show(output: Output, finding: Finding) -> None:
    label = f"{finding.level:7}"
    if output.is_terminal and colours_wanted(sys.stdout):
        label = f"\033[{_COLOURS[finding.level]}m{label}\033[0m"
    output.hanging(f"  {label}  ", " " * 11, finding.text)
    if finding.advice:
        output.hanging(f"{' ' * 11}do: ", " " * 15, finding.advice)


def conclude(output: Output, seen: list[Finding], strict: bool) -> None:
    problems = sum(finding.level is Level.PROBLEM for finding in seen)
    warnings = sum(finding.level is Level.WARNING for finding in seen)
    output.flush()
    if problems or (strict and warnings):
        raise CommandFailed(
            f"{count(problems, 'problem')} and {count(warnings, 'warning')}",
            hint="each finding above says what to do",
            code=ExitCode.UNHEALTHY,
        )
    if not output.as_json:
        degraded = f"it works, but degraded: {count(warnings, 'warning')}, with what to do about each above"
        output.line(degraded if warnings else "nothing is wrong")

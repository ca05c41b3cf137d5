"""`strandline doctor`: what is wrong with a node or this machine, what to do, and what each topic survives."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, Cluster, host_and_port
from strandline.cli.common.command_config import client_properties
from strandline.cli.common.failures import CommandFailed, ExitCode
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, ClientProperties, Timeout
from strandline.cli.common.output import Output, colours_wanted
from strandline.cli.common.plain_words import count
from strandline.cli.doctor.cluster import (
    data_findings,
    reach_findings,
)
from strandline.cli.doctor.cluster_doctor import look_at_cluster
from strandline.cli.doctor.disk import disk_findings
from strandline.cli.doctor.findings import Finding, Level
from strandline.cli.doctor.machine import is_this_machine, listening_pid, machine_findings

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
            metadata = look_at_cluster(cluster, tell, grouped=not as_json)
    if data is not None:
        tell("the data directory", data_findings(data, None if metadata is None else metadata.cluster_id))
    conclude(output, seen, strict)


def _local_node(bootstrap: str) -> int | None:
    host, port = host_and_port(bootstrap.split(",")[0].strip())
    return listening_pid(port) if is_this_machine(host) else None


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

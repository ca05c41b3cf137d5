"""`strandline advise`: judges a described workload, or looks at running topics."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Annotated

import typer

from strandline.advice.anti_patterns import AntiPattern, find_patterns
from strandline.advice.description import Safety, WorkloadProfile, read_workload
from strandline.advice.judgement import Judgement, judge_workload
from strandline.advice.safe_operation import RuleState
from strandline.cli.advise.node_metrics import find_traffic, read_traffic
from strandline.cli.advise.observing import Look, Observer
from strandline.cli.advise.showing import show_judgement, show_pattern
from strandline.cli.common import completion
from strandline.cli.common.client import TIMEOUT_S_DEFAULT, connect
from strandline.cli.common.documents import read_files
from strandline.cli.common.failures import CommandFailed, ExitCode, UsageFailed
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, ClientProperties, Timeout
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import count

Described = Annotated[
    str | None, typer.Argument(metavar="[FILE]", help="A workload, described in YAML.", show_default=False)
]
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        "-t",
        metavar="NAME",
        help="Look at this running topic; may be repeated.",
        autocompletion=completion.topic_names,
    ),
]
EveryTopic = Annotated[bool, typer.Option("--all", "-a", help="Look at every running topic.")]
Metrics = Annotated[
    list[str] | None,
    typer.Option("--metrics", metavar="URL", help="The /metrics page of a node; may be repeated, for all nodes."),
]
Check = Annotated[
    bool, typer.Option("--check", help="Exit code 5, too, if a workload is not log-shaped or a rule is broken.")
]


def advise(
    file: Described = None,
    topics: Topics = None,
    every_topic: EveryTopic = False,
    metrics: Metrics = None,
    check: Check = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Say whether a workload is log-shaped, what speaks for and against a log, what size it needs, and what is unsafe.

    FILE describes a workload. --topic and --all look at running topics and find logs that are used as a database, as
    RPC or as a task queue; that is exit code 5. A file with one topic is judged with what was measured of the topic.
    Of records, keys and headers are looked at, and values never.
    """
    if file is None and not topics and not every_topic:
        raise UsageFailed("which workload?", hint="name a FILE that describes it, a running --topic NAME, or --all")
    if every_topic and (topics or file):
        raise UsageFailed("--all goes without FILE and --topic")
    if file is not None and len(topics or ()) > 1:
        raise UsageFailed("a file describes one workload: name one --topic with it")
    output = Output(as_json=as_json)
    described = [] if file is None else [each.read(read_workload) for each in read_files([file])]
    if file is not None and not described:
        raise UsageFailed(f"{file} describes no workload", hint="docs/advise.md has the fields and seven examples")
    if not topics and not every_topic:
        judgements = [judge_workload(workload) for workload in described]
        _show(output, judgements, described, [])
        _conclude(judgements, [], check)
        return
    cluster = connect(bootstrap, properties, timeout)
    traffic = read_traffic(cluster, metrics) if metrics else find_traffic(cluster)
    look = Observer(cluster, traffic).look(None if every_topic else list(dict.fromkeys(topics or ())))
    patterns = find_patterns(look.topics, look.names)
    workloads = _workloads(look, described)
    judgements = [judge_workload(workload) for workload in workloads]
    if every_topic and not as_json:
        _show_estate(output, look, judgements, patterns)
    else:
        _show(output, judgements, workloads, patterns)
    _conclude(judgements, patterns, check)


def _workloads(look: Look, described: list[WorkloadProfile]) -> list[WorkloadProfile]:
    """Return what was measured; what a file says is added, and measured values win over described ones."""
    if not described:
        return list(look.workloads.values())
    (measured,) = look.workloads.values()
    return [completed(workload, measured) for workload in described]


def completed(workload: WorkloadProfile, measured: WorkloadProfile) -> WorkloadProfile:
    """Return a described workload with the values that were measured of its topic."""
    values = {name: getattr(measured, name) for name in measured.measured}
    safety = {
        each.name: getattr(measured.safety, each.name)
        for each in fields(Safety)
        # An owner or an objective that the topic lacks may still be described.
        if getattr(measured.safety, each.name) not in (None, "", 0) or getattr(workload.safety, each.name) is None
    }
    return replace(workload, **values, safety=replace(workload.safety, **safety), measured=measured.measured)


def _show(
    output: Output, judgements: list[Judgement], workloads: list[WorkloadProfile], patterns: list[AntiPattern]
) -> None:
    if output.as_json:
        for judgement, workload in zip(judgements, workloads, strict=True):
            output.json_line({"kind": "judgement", **judgement.as_json(), "measured": sorted(workload.measured)})
        for pattern in patterns:
            output.json_line({"kind": "anti-pattern", **pattern.as_json()})
        return
    for pattern in patterns:
        show_pattern(output, pattern)
    for number, (judgement, workload) in enumerate(zip(judgements, workloads, strict=True)):
        if number:
            output.line("")
        show_judgement(output, judgement, workload.about)


def _show_estate(output: Output, look: Look, judgements: list[Judgement], patterns: list[AntiPattern]) -> None:
    """Print patterns, and a line for each topic: what it needs, and which rules it breaks."""
    if not judgements:
        output.talk("there are no topics")
        return
    for pattern in patterns:
        show_pattern(output, pattern)
    rows = []
    for judgement in judgements:
        workload = look.workloads[judgement.workload]
        broken = [str(rule.number) for rule in judgement.rules if rule.state is RuleState.BROKEN]
        figures = {figure.name: figure.shown for figure in judgement.figures}
        found = sum(pattern.topic == judgement.workload and pattern.is_found for pattern in patterns)
        rows.append(
            [
                judgement.workload,
                workload.partitions,
                figures["partitions"],
                workload.replicas,
                len(workload.readers or ()),
                "-" if figures["disk"] == "unknown" else figures["disk"].removesuffix(" in the cluster"),
                ",".join(broken) or "-",
                found or "-",
            ]
        )
    columns = ["topic", "partitions", "advised", "replicas", "groups", "disk", "rules broken", "anti-patterns"]
    output.table(columns, rows)
    output.talk("`strandline advise --topic NAME` explains each figure and rule")


def _conclude(judgements: list[Judgement], patterns: list[AntiPattern], check: bool) -> None:
    found = [pattern for pattern in patterns if pattern.is_found]
    if found:
        topics = sorted({pattern.topic for pattern in found})
        raise CommandFailed(
            f"{count(len(found), 'anti-pattern')} found in {', '.join(topics[:3])}"
            + (f" and {count(len(topics) - 3, 'more topic')}" if len(topics) > 3 else ""),
            hint="each one above says what to do instead",
            code=ExitCode.UNHEALTHY,
        )
    if not check:
        return
    for judgement in judgements:
        broken = [rule.number for rule in judgement.rules if rule.state is RuleState.BROKEN]
        if not judgement.verdict.is_log:
            raise CommandFailed(f"{judgement.workload}: {judgement.sentence}", code=ExitCode.UNHEALTHY)
        if broken:
            numbers = ", ".join(map(str, broken))
            raise CommandFailed(f"{judgement.workload} breaks rule {numbers}", code=ExitCode.UNHEALTHY)

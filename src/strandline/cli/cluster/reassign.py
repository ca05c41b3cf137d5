"""`strandline cluster reassign`: move replicas, change their number, show or take back what is under way."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from strandline.cli.cluster.reading import read_state, require_quorum
from strandline.cli.cluster.reassigning import carry_out, ongoing, plan_lines, send
from strandline.cli.cluster.reassignment_plan import (
    Move,
    check_brokers,
    plan_file,
    plan_replicas,
    plan_replication_factor,
)
from strandline.cli.cluster.state import ClusterState, PartitionState, Reassignment
from strandline.cli.common import completion
from strandline.cli.common.client import TIMEOUT_S_DEFAULT, Cluster, connect
from strandline.cli.common.failures import UsageFailed, topic_not_found
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, ClientProperties, Timeout, Yes
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import count
from strandline.cli.common.plans import confirm

NoWait = Annotated[bool, typer.Option("--no-wait", help="Do not wait until the new replicas are in sync.")]


def reassign(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]", exists=True, dir_okay=False, help="Moves as kafka-reassign-partitions has them."
        ),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option("--topic", "-t", metavar="NAME", help="This topic.", autocompletion=completion.topic_names),
    ] = None,
    partitions: Annotated[
        list[int] | None, typer.Option("--partition", "-p", metavar="N", help="Only this one. May be repeated.")
    ] = None,
    replicas: Annotated[
        str | None, typer.Option("--replicas", metavar="ID,ID,...", help="The brokers; the first leads by preference.")
    ] = None,
    replication_factor: Annotated[
        int | None, typer.Option("--replication-factor", "-r", metavar="N", help="So many replicas, well spread.")
    ] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Take back moves that are under way.")] = False,
    no_wait: NoWait = False,
    yes: Yes = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Move replicas: from a FILE of moves, or for a --topic to --replicas or to a --replication-factor.

    Without any of these it shows what is under way. The plan is shown first. With several partitions --replicas is
    rotated from one to the next, so that leaders are spread.
    """
    ways = [name for name, given in _ways(file, replicas, replication_factor, cancel) if given]
    if len(ways) > 1:
        raise UsageFailed(f"{ways[0]} and {ways[1]} exclude each other")
    if ways and ways[0] in ("--replicas", "--replication-factor") and topic is None:
        raise UsageFailed(f"{ways[0]} needs --topic")
    if partitions and topic is None:
        raise UsageFailed("--partition needs --topic")
    cluster = connect(bootstrap, properties, timeout)
    output = Output(as_json=as_json)
    if not ways:
        _show(output, [each for each in ongoing(cluster) if _is_named(each, topic, partitions)])
        return
    if cancel:
        _cancel(output, cluster, [each for each in ongoing(cluster) if _is_named(each, topic, partitions)], yes=yes)
        return
    state = read_state(cluster, with_disks=True)
    require_quorum(state)
    if file is not None:
        moves = plan_file(state, file.read_text(), file_name=str(file))
    else:
        assert topic is not None
        chosen = _chosen(state, topic, partitions)
        if replicas is not None:
            moves = plan_replicas(chosen, _broker_ids(replicas), rotate=not partitions)
        else:
            assert replication_factor is not None
            moves = plan_replication_factor(state, chosen, replication_factor)
    check_brokers(state, moves)
    _do(output, cluster, state, moves, yes=yes, wait=not no_wait)


def _ways(
    file: Path | None, replicas: str | None, replication_factor: int | None, cancel: bool
) -> tuple[tuple[str, bool], ...]:
    return (
        ("FILE", file is not None),
        ("--replicas", replicas is not None),
        ("--replication-factor", replication_factor is not None),
        ("--cancel", cancel),
    )


def _do(output: Output, cluster: Cluster, state: ClusterState, moves: list[Move], *, yes: bool, wait: bool) -> None:
    if not moves:
        output.talk("nothing to move: the replicas are there already")
        return
    confirm(output, plan_lines(state, moves), yes=yes, question="Move them?", undone="nothing was moved")
    carry_out(output, cluster, moves, wait=wait)


def _chosen(state: ClusterState, topic: str, wanted: list[int] | None) -> list[PartitionState]:
    existing = [each for each in state.partitions if each.topic == topic]
    if not existing:
        raise topic_not_found(topic, {each.topic for each in state.partitions})
    missing = set(wanted or ()) - {each.index for each in existing}
    if missing:
        raise UsageFailed(f"topic {topic!r} has no partition {min(missing)}")
    return [each for each in existing if not wanted or each.index in wanted]


def _broker_ids(raw: str) -> list[int]:
    words = [word.strip() for word in raw.split(",")]
    if not all(word.isdigit() for word in words):
        raise UsageFailed(f"--replicas {raw!r} is no list of broker ids, for example 1,2,3")
    ids = [int(word) for word in words]
    if len(set(ids)) < len(ids):
        raise UsageFailed(f"--replicas {raw!r} names a broker twice")
    return ids


def _is_named(each: Reassignment, topic: str | None, partitions: list[int] | None) -> bool:
    return (topic is None or each.topic == topic) and (not partitions or each.index in partitions)


def _show(output: Output, moving: list[Reassignment]) -> None:
    if output.as_json:
        for each in moving:
            output.json_line(
                {
                    "topic": each.topic,
                    "partition": each.index,
                    "replicas": list(each.replicas),
                    "adding": list(each.adding),
                    "removing": list(each.removing),
                }
            )
        return
    if not moving:
        output.line("nothing is being moved")
        return
    rows = [[each.topic, each.index, *map(_ids, (each.replicas, each.adding, each.removing))] for each in moving]
    output.table(["topic", "partition", "replicas", "being added", "to be removed"], rows)


def _cancel(output: Output, cluster: Cluster, moving: list[Reassignment], *, yes: bool) -> None:
    if not moving:
        output.talk("nothing is being moved")
        return
    plan = [f"{count(len(moving), 'move')} to take back"]
    plan += [f"  {each.topic}-{each.index}: without {_ids(each.adding)} again" for each in moving]
    confirm(output, plan, yes=yes, question="Take them back?", undone="nothing was changed")
    send(cluster, [(each.topic, each.index, None) for each in moving])
    if output.as_json:
        for each in moving:
            output.json_line({"topic": each.topic, "partition": each.index, "cancelled": True})
    else:
        output.line(f"{count(len(moving), 'move')} taken back")


def _ids(numbers: tuple[int, ...]) -> str:
    return ",".join(str(number) for number in numbers) or "-"

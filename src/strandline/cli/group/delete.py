"""`strandline group delete`: a group goes with every position that it has committed."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.common import completion
from strandline.cli.common.client import TIMEOUT_S_DEFAULT, Cluster, connect
from strandline.cli.common.failures import CommandFailed
from strandline.cli.common.options import (
    BOOTSTRAP_DEFAULT,
    AsJson,
    Bootstrap,
    ClientProperties,
    GroupNames,
    Timeout,
    Yes,
)
from strandline.cli.common.output import Output
from strandline.cli.common.plans import confirm
from strandline.cli.group.deleting import delete_groups, deletion_line, refuse_if_live
from strandline.cli.group.forget import forget_positions
from strandline.cli.group.reading import read_group


def delete(
    names: GroupNames,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC[:P,P]",
            help="Only the positions in this topic, or in these partitions of it. May be repeated.",
            autocompletion=completion.topic_names,
        ),
    ] = None,
    yes: Yes = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Delete groups and their positions; no record is touched. Shows what would go, and asks.

    Refused while a group has live members. With --topic only positions go, in topics that no member reads.
    """
    cluster = connect(bootstrap, properties, timeout)
    output = Output(as_json=as_json)
    # All are looked at before anything is deleted: a typing mistake must not leave half of the work done.
    groups = [read_group(cluster, name) for name in dict.fromkeys(names)]
    if topics:
        forget_positions(cluster, output, [group.group_id for group in groups], topics, yes=yes)
        return
    for group in groups:
        refuse_if_live(group, "deleted")
    plan = [deletion_line(cluster, group) for group in groups]
    confirm(output, plan, yes=yes, question="Delete?", undone="nothing was deleted")
    _delete(cluster, output, [group.group_id for group in groups])


def _delete(cluster: Cluster, output: Output, names: list[str]) -> None:
    failures: list[CommandFailed] = []
    for name, failure in delete_groups(cluster, names):
        if failure is not None:
            failures.append(failure)
        elif output.as_json:
            output.json_line({"group": name, "deleted": True})
        else:
            output.line(f"deleted {name}")
    if failures:
        raise failures[0] if len(failures) == 1 else CommandFailed("; ".join(failure.message for failure in failures))

"""`strandline cluster elect`: give leadership to preferred replicas, or to an out-of-sync one if no other lives."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.cluster.elections import check_elected, elect_leaders, election_lines, unclean_lines
from strandline.cli.cluster.reading import read_state, require_quorum
from strandline.cli.cluster.state import PartitionState
from strandline.cli.common import completion
from strandline.cli.common.client import TIMEOUT_S_DEFAULT, Cluster, connect
from strandline.cli.common.failures import UsageFailed, topic_not_found
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, ClientProperties, Timeout, Yes
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import count
from strandline.cli.common.plans import confirm


def elect(
    topic: Annotated[
        str | None,
        typer.Option("--topic", "-t", metavar="NAME", help="Only this topic.", autocompletion=completion.topic_names),
    ] = None,
    partitions: Annotated[
        list[int] | None, typer.Option("--partition", "-p", metavar="N", help="Only this one. May be repeated.")
    ] = None,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean", help="Elect an out-of-sync replica if no in-sync one is alive. Records that it lacks are lost."
        ),
    ] = False,
    yes: Yes = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Give leadership back to the preferred replicas, the first of each list, where these are in sync.

    With --unclean, of a topic whose in-sync replicas are all lost: a replica that may be behind takes over, and
    acknowledged records that only the lost ones had are gone for good.
    """
    if unclean and topic is None:
        raise UsageFailed("--unclean needs --topic: it costs records, so say where")
    if partitions and topic is None:
        raise UsageFailed("--partition needs --topic")
    cluster = connect(bootstrap, properties, timeout)
    output = Output(as_json=as_json)
    state = read_state(cluster)
    require_quorum(state)
    if topic is not None and all(each.topic != topic for each in state.partitions):
        raise topic_not_found(topic, {each.topic for each in state.partitions})
    chosen = [
        each
        for each in (state.offline() if unclean else state.not_preferred())
        if (topic is None or each.topic == topic) and (not partitions or each.index in partitions)
    ]
    if not chosen:
        output.talk(
            "every partition has a leader"
            if unclean
            else "every partition is led by its preferred replica, or cannot be"
        )
        return
    plan = unclean_lines(state, chosen) if unclean else election_lines(chosen)
    confirm(output, plan, yes=yes, question="Elect them?", undone="nothing was changed")
    _elect(output, cluster, chosen, unclean=unclean)


def _elect(output: Output, cluster: Cluster, chosen: list[PartitionState], *, unclean: bool) -> None:
    outcome = elect_leaders(cluster, chosen, unclean=unclean)
    if output.as_json:
        for (topic, partition), error in outcome.items():
            told = {"topic": topic, "partition": partition, "elected": error is None, "error": error}
            output.json_line(told)
    else:
        output.line(f"{count(sum(error is None for error in outcome.values()), 'leader')} elected")
    check_elected(outcome.items())

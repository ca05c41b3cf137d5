"""`strandline cluster elect`: give leadership to preferred replicas, or to an out-of-sync one if no other lives."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from strandline.cli.cluster.reading import read_state, require_quorum
from strandline.cli.cluster.state import ClusterState, PartitionState
from strandline.cli.common import completion
from strandline.cli.common.client import TIMEOUT_S_DEFAULT, Cluster, connect, kafka_api
from strandline.cli.common.failures import CommandFailed, UsageFailed, no_answer, topic_not_found
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, ClientProperties, Timeout, Yes
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import count
from strandline.cli.common.plans import confirm

_NOT_NEEDED = "ELECTION_NOT_NEEDED"


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
    plan = _unclean_plan(state, chosen) if unclean else _plan(chosen)
    confirm(output, plan, yes=yes, question="Elect them?", undone="nothing was changed")
    _elect(output, cluster, chosen, unclean=unclean)


def _plan(chosen: list[PartitionState]) -> list[str]:
    lines = [f"{count(len(chosen), 'partition')} to give back"]
    return lines + [f"  {each.name}: led by {each.leader}, to be led by {each.preferred}" for each in chosen]


def _unclean_plan(state: ClusterState, chosen: list[PartitionState]) -> list[str]:
    lines = [f"{count(len(chosen), 'partition')}: acknowledged records may be LOST FOR GOOD"]
    return lines + [
        f"  {each.name}: {state.why_offline(each)}; another of {each.replicas} takes over" for each in chosen
    ]


def _elect(output: Output, cluster: Cluster, chosen: list[PartitionState], *, unclean: bool) -> None:
    kinds = kafka_api().ElectionType
    kind = kinds.UNCLEAN if unclean else kinds.PREFERRED
    wanted = [kafka_api().TopicPartition(each.topic, each.index) for each in chosen]
    admin: Any = cluster.admin()
    with cluster.errors("cannot elect leaders"):
        try:
            # Its own timeouts cannot be given: confluent-kafka 2.16 counts its arguments wrongly then.
            answers = admin.elect_leaders(kind, wanted).result(cluster.timeout_s)
        except TimeoutError:
            raise no_answer(cluster.bootstrap, "elections took longer than --timeout") from None
    failed = []
    elected = 0
    for place, error in answers.items():
        is_done = error is None or _error_name(error) == _NOT_NEEDED
        elected += is_done
        if not is_done:
            failed.append(f"{place.topic}-{place.partition}: {error}")
        if output.as_json:
            reason = None if is_done else str(error)
            output.json_line({"topic": place.topic, "partition": place.partition, "elected": is_done, "error": reason})
    if not output.as_json:
        output.line(f"{count(elected, 'leader')} elected")
    if failed:
        more = f"; and {len(failed) - 1:,} more" if len(failed) > 1 else ""
        raise CommandFailed(f"not elected: {failed[0]}{more}", hint="`strandline cluster health` says why")


def _error_name(error: Any) -> str:
    """librdkafka gives an exception here, or its error, by version."""
    plain = error.args[0] if isinstance(error, BaseException) else error
    return str(plain.name())

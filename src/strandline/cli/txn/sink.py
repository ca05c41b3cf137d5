"""`strandline txn sink list` and `delete`: the sinks of exactly-once jobs, and how far each is."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, Cluster, connect
from strandline.cli.common.conversation import LOOK_AGAIN_S, BrokerApis, ask_coordinator, check
from strandline.cli.common.failures import CommandFailed, NotFound, Unreachable, did_you_mean
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, ClientProperties, Timeout, Yes
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import count
from strandline.cli.common.plans import confirm
from strandline.cli.topic.listing import matcher
from strandline.cli.txn.reading import read_sinks, require_spoken
from strandline.cli.txn.state import SinkState
from strandline.client.coordinators import TRANSACTION
from strandline.codec.messages.delete_sink_request import DeleteSinkRequest
from strandline.codec.messages.delete_sink_response import DeleteSinkResponse
from strandline.errors import ErrorCode
from strandline.ids import sink_key
from strandline.lag.verdict import span

UNDONE = "nothing was deleted"


def list_sinks(
    pattern: Annotated[
        str | None,
        typer.Option("--pattern", metavar="PATTERN", help="Only sinks like this: orders-* or /a regular expression/."),
    ] = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """List sinks: the last batch that was committed, when, how many transactional ids, and how many are open."""
    wanted = matcher(pattern)
    cluster = connect(bootstrap, properties, timeout)
    require_spoken(cluster)
    output = Output(as_json=as_json)
    chosen = [each for each in read_sinks(cluster, tell=output.talk) if wanted.search(each.sink_id)]
    if as_json:
        for each in chosen:
            output.json_line(sink_object(each))
    elif chosen:
        rows = [
            (
                each.sink_id,
                "-" if each.last_batch_id is None else each.last_batch_id,
                "-" if each.age_ms is None else f"{span(each.age_ms / 1000)} ago",
                each.transactional_ids,
                each.open_transactions,
                each.coordinator,
            )
            for each in chosen
        ]
        output.table(["sink", "last batch", "committed", "ids", "open", "coordinator"], rows)
    else:
        output.talk("no sink is like that" if pattern is not None else "no sinks yet: an exactly-once job makes one")


def delete(
    names: Annotated[list[str], typer.Argument(metavar="SINK...", help="The sinks, as `txn sink list` names them.")],
    yes: Yes = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Forget sinks of jobs that are over: the last batch, and the transactional ids. No committed record is touched.

    If such a job is continued, it writes its next batch a second time if that was committed already.
    """
    cluster = connect(bootstrap, properties, timeout)
    require_spoken(cluster)
    output = Output(as_json=as_json)
    known = {each.sink_id: each for each in read_sinks(cluster, tell=output.talk)}
    # All are looked at before anything is deleted: a typing mistake must not leave half of the work done.
    chosen = [_known(known, name) for name in dict.fromkeys(names)]
    confirm(output, [_plan_line(each) for each in chosen], yes=yes, question="Delete?", undone=UNDONE)
    for each in chosen:
        _delete(cluster, each.sink_id)
        if output.as_json:
            output.json_line({"sink": each.sink_id, "deleted": True})
        else:
            output.line(f"deleted {each.sink_id}")


def sink_object(sink: SinkState) -> dict[str, object]:
    return {
        "sink": sink.sink_id,
        "last_batch": sink.last_batch_id,
        "committed_ms": sink.decided_ms,
        "transactional_ids": sink.transactional_ids,
        "open": sink.open_transactions,
        "coordinator": sink.coordinator,
    }


def _known(known: dict[str, SinkState], name: str) -> SinkState:
    if name in known:
        return known[name]
    meant = did_you_mean(name, list(known))
    raise NotFound(
        f"there is no sink {name!r}", hint=f"{meant}?" if meant else "see them with `strandline txn sink list`"
    )


def _plan_line(sink: SinkState) -> str:
    last = "no batch was committed" if sink.last_batch_id is None else f"batch {sink.last_batch_id} was the last"
    aborted = f"; {count(sink.open_transactions, 'open transaction')} will be aborted" if sink.open_transactions else ""
    return f"delete sink {sink.sink_id} ({last}) with {count(sink.transactional_ids, 'transactional id')}{aborted}"


def _delete(cluster: Cluster, sink_id: str) -> None:
    doing = f"cannot delete sink {sink_id!r}"

    def ask(coordinator: BrokerApis, node_id: int) -> int:
        answer = coordinator.ask(DeleteSinkRequest(sink_id=sink_id), DeleteSinkResponse)
        if answer is None:
            raise CommandFailed("this cluster has no sinks: it is no Strandline, or an older one")
        if answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
            check(answer.error_code, doing)
        return answer.error_code

    until = time.monotonic() + cluster.timeout_s
    while ask_coordinator(cluster, sink_key(sink_id), ask, doing=doing, key_type=TRANSACTION):
        if time.monotonic() > until:
            raise Unreachable(f"{doing}: its last batch is still being committed", hint="`strandline txn list`")
        time.sleep(LOOK_AGAIN_S)

"""`strandline cluster drain` and `forget`: empty a broker, and take one that is gone out of the cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.cluster.reading import conversation_with, read_state, require_quorum
from strandline.cli.cluster.reassign import NoWait
from strandline.cli.cluster.reassigning import carry_out, plan_lines
from strandline.cli.cluster.reassignment_plan import plan_drain
from strandline.cli.cluster.state import listed
from strandline.cli.common.client import TIMEOUT_S_DEFAULT, connect
from strandline.cli.common.conversation import error_name
from strandline.cli.common.failures import CommandFailed, NotFound
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, ClientProperties, Timeout, Yes
from strandline.cli.common.output import Output
from strandline.cli.common.plans import confirm
from strandline.codec.messages.unregister_broker_request import UnregisterBrokerRequest
from strandline.codec.messages.unregister_broker_response import UnregisterBrokerResponse

NodeId = Annotated[int, typer.Argument(metavar="NODE", min=0, help="The id of the broker.")]


def drain(
    node: NodeId,
    no_wait: NoWait = False,
    yes: Yes = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Move every replica of a broker to others, and wait until they are in sync; then it can be stopped for good.

    A restart needs no draining: a node that is stopped gives its leaderships away first.
    """
    cluster = connect(bootstrap, properties, timeout)
    output = Output(as_json=as_json)
    state = read_state(cluster, with_disks=True)
    require_quorum(state)
    moves = plan_drain(state, node)
    offline = [each for each in state.offline() if node in each.replicas]
    if offline:
        raise CommandFailed(
            f"broker {node} cannot be drained: {listed(offline)} has no leader to copy it from",
            hint="`strandline cluster health` says why",
        )
    if moves:
        confirm(output, plan_lines(state, moves), yes=yes, question="Move them?", undone="nothing was moved")
        carry_out(output, cluster, moves, wait=not no_wait)
    else:
        output.talk(f"broker {node} holds no replica")
    if not no_wait:
        voters = [voter.node_id for voter in state.quorum.voters] if state.quorum is not None else []
        stays = "; it still votes in the quorum" if node in voters else ""
        output.talk(f"broker {node} is empty{stays}. Stop it, then: strandline cluster forget {node}")


def forget(
    node: NodeId,
    yes: Yes = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Take a broker that was stopped for good out of the cluster. One that comes back registers again."""
    cluster = connect(bootstrap, properties, timeout)
    output = Output(as_json=as_json)
    state = read_state(cluster)
    require_quorum(state)
    broker = state.broker(node)
    if broker is None:
        known = ", ".join(str(each.node_id) for each in state.brokers)
        raise NotFound(f"there is no broker {node}", hint=f"there are {known}")
    if broker.is_up:
        raise CommandFailed(f"broker {node} is up", hint=f"`strandline cluster drain {node}`, and stop it")
    holding = [each for each in state.partitions if node in each.replicas]
    if holding:
        raise CommandFailed(
            f"broker {node} still has replicas of {listed(holding)}", hint=f"`strandline cluster drain {node}` first"
        )
    plan = [f"broker {node} at {broker.address} is taken out of the cluster"]
    confirm(output, plan, yes=yes, question="Forget it?", undone="nothing was changed")
    with conversation_with(cluster) as conversation:
        answer = conversation.ask(UnregisterBrokerRequest(broker_id=node), UnregisterBrokerResponse)
    if answer is None:
        raise CommandFailed("this cluster does not offer UnregisterBroker")
    if answer.error_code:
        raise CommandFailed(f"refused: {answer.error_message or ''} ({error_name(answer.error_code)})")
    if as_json:
        output.json_line({"node": node, "forgotten": True})
    else:
        output.line(f"broker {node} is forgotten")

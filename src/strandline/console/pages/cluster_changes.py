"""Actions on a cluster: elect preferred leaders, drain a broker, take moves back. Plans are the commands'."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from strandline.cli.cluster.elections import check_elected, elect_leaders, election_lines
from strandline.cli.cluster.reading import read_state, require_quorum
from strandline.cli.cluster.reassigning import ongoing, plan_lines, send
from strandline.cli.cluster.reassignment_plan import Move, plan_drain
from strandline.cli.cluster.state import ClusterState, PartitionState, Reassignment, listed
from strandline.cli.common.plain_words import count
from strandline.console.context import PageContext
from strandline.console.declarations import ActionDone, ActionField, ConsoleAction, PageModule, Values
from strandline.console.failures import PageFailed
from strandline.console.pages.group_changes import shortened

PLACE: Final = "/cluster"


def _to_elect(context: PageContext, values: Values) -> list[PartitionState]:
    """Return the partitions that another replica leads than the preferred one. It blocks."""
    state = read_state(context.reading.cluster)
    require_quorum(state)
    topic = values["topic"]
    if topic and all(each.topic != topic for each in state.partitions):
        raise PageFailed(404, f"There is no topic {topic}")
    chosen = [each for each in state.not_preferred() if not topic or each.topic == topic]
    if not chosen:
        raise PageFailed(409, "Every partition is led by its preferred replica, or cannot be")
    return chosen


async def plan_elect(context: PageContext, values: Values) -> Sequence[str]:
    return shortened(election_lines(await context.reading.shared.in_thread(lambda: _to_elect(context, values))))


async def elect(context: PageContext, values: Values) -> ActionDone:
    def work() -> int:
        outcome = elect_leaders(context.reading.cluster, _to_elect(context, values), unclean=False)
        check_elected(outcome.items())
        return len(outcome)

    number = await context.reading.shared.in_thread(work)
    return ActionDone(f"{count(number, 'leader')} elected.", PLACE)


def elect_command(values: Values) -> Sequence[str]:
    return ["cluster", "elect", *(["--topic", values["topic"]] if values["topic"] else []), "--yes"]


def _to_drain(context: PageContext, values: Values) -> tuple[ClusterState, list[Move]]:
    node_id = int(values["node"])
    state = read_state(context.reading.cluster, with_disks=True)
    require_quorum(state)
    moves = plan_drain(state, node_id)
    offline = [each for each in state.offline() if node_id in each.replicas]
    if offline:
        raise PageFailed(
            409,
            f"Broker {node_id} cannot be drained: {listed(offline)} has no leader to copy it from",
            "the page Doctor says why",
        )
    if not moves:
        raise PageFailed(409, f"Broker {node_id} holds no replica: it can be stopped")
    return state, moves


async def plan_to_drain(context: PageContext, values: Values) -> Sequence[str]:
    return shortened(plan_lines(*await context.reading.shared.in_thread(lambda: _to_drain(context, values))))


async def drain(context: PageContext, values: Values) -> ActionDone:
    def work() -> int:
        _, moves = _to_drain(context, values)
        send(context.reading.cluster, [(each.topic, each.index, each.after) for each in moves])
        return len(moves)

    number = await context.reading.shared.in_thread(work)
    sentence = f"{count(number, 'replica')} of broker {values['node']} began to move; this page shows how far they are."
    return ActionDone(sentence, PLACE)


def drain_command(values: Values) -> Sequence[str]:
    return ["cluster", "drain", values["node"], "--no-wait", "--yes"]


def _moving(context: PageContext, values: Values) -> list[Reassignment]:
    topic = values["topic"]
    moving = [each for each in ongoing(context.reading.cluster) if not topic or each.topic == topic]
    if not moving:
        raise PageFailed(409, "Nothing is being moved")
    return moving


async def plan_cancel(context: PageContext, values: Values) -> Sequence[str]:
    moving = await context.reading.shared.in_thread(lambda: _moving(context, values))
    lines = [f"{each.topic}-{each.index}: without {', '.join(map(str, each.adding))} again" for each in moving]
    return shortened([f"{count(len(moving), 'move')} to take back", *lines])


async def cancel(context: PageContext, values: Values) -> ActionDone:
    def work() -> int:
        moving = _moving(context, values)
        send(context.reading.cluster, [(each.topic, each.index, None) for each in moving])
        return len(moving)

    return ActionDone(f"{count(await context.reading.shared.in_thread(work), 'move')} taken back.", PLACE)


def cancel_command(values: Values) -> Sequence[str]:
    words = ["cluster", "reassign", "--cancel", "--yes"]
    return [*words, "--topic", values["topic"]] if values["topic"] else words


_TOPIC: Final = ActionField("topic", "Topic", hint="Empty: every topic", is_required=False)
ELECT: Final = ConsoleAction(
    name="cluster-elect",
    title="Elect preferred leaders",
    button="Elect them",
    run=elect,
    command=elect_command,
    plan=plan_elect,
    consequence="Leadership goes back to the first replica of each list, where it is in sync. No record is lost.",
    fields=(_TOPIC,),
    under="cluster",
)
DRAIN: Final = ConsoleAction(
    name="cluster-drain",
    title="Drain a broker",
    button="Move its replicas",
    run=drain,
    command=drain_command,
    plan=plan_to_drain,
    consequence="Every replica of broker {node} is copied to another broker; then it can be stopped for good.",
    fields=(ActionField("node", "Broker", "number", hint="A restart needs no draining"),),
    under="cluster",
)
CANCEL: Final = ConsoleAction(
    name="cluster-reassign-cancel",
    title="Take moves back",
    button="Take them back",
    run=cancel,
    command=cancel_command,
    plan=plan_cancel,
    consequence="What was copied to new replicas is dropped, and the replicas stay where they were.",
    fields=(_TOPIC,),
    under="cluster",
)
MODULE: Final = PageModule(actions=(ELECT, DRAIN, CANCEL))

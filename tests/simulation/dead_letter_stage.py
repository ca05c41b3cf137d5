"""A share group with a dead-letter topic, for stories in the simulation: real coordinators on every node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.simulation.share_stage import GROUP, Worker
from tests.simulation.stage import Play, stage
from tests.simulator.options import TopicOptions
from tests.simulator.world.cluster import SimNode

from strandline.broker.coordinating.dead_letters.dead_letter_transactions import TRANSACTION_MS_MAX
from strandline.codec.columns import Record, decode_batch
from strandline.codec.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from strandline.codec.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from strandline.codec.transaction_marker import parse_marker
from strandline.errors import ErrorCode

DEAD = "dlq.tasks"
TOPIC_RESOURCE, BROKER_RESOURCE, GROUP_RESOURCE = 2, 4, 32
SETTINGS = {
    "share.coordinator.state.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
ENABLED = {"errors.deadletterqueue.group.enable": "true"}
COPIED = {"errors.deadletterqueue.topic.name": DEAD, "errors.deadletterqueue.copy.record.enable": "true"}


@contextmanager
def dead_letter_stage(
    seed: int,
    *,
    nodes: int = 1,
    group: dict[str, str] | None = None,
    topic: dict[str, str] | None = ENABLED,
    settings: dict[str, str] | None = None,
) -> Iterator[Play]:
    """Nodes whose share group `workers` reads `tasks` from the beginning; `topic` None leaves `dlq.tasks` out."""
    replicas = min(nodes, 3)
    in_sync = {"min.insync.replicas": "2"} if nodes > 1 else {}
    topics = [TopicOptions("tasks", 1, replicas, in_sync)]
    if topic is not None:
        topics.append(TopicOptions(DEAD, 1, replicas, {**in_sync, **topic}))
    with stage(
        seed, *topics, nodes=nodes, controllers=1 if nodes == 1 else 3, settings={**SETTINGS, **(settings or {})}
    ) as play:
        alter(play, GROUP_RESOURCE, GROUP, COPIED if group is None else group)
        begin_state(play)
        # A leader that is killed leaves a transaction open, until another leader ends it or its time is over.
        play.run.invariants.stabilities.timeout_s = TRANSACTION_MS_MAX / 1000
        yield play
        # What was written is not part of the history that the checker knows.
        play.is_over = True


def begin_state(play: Play, state_epoch: int = 1) -> None:
    """Have the share coordinator begin the state of `tasks` at offset 0, as the group coordinator does."""
    node = play.leader("tasks").node
    assert node is not None
    done: list[ErrorCode] = []
    node.persister.initialize(GROUP, play.topic_id("tasks"), 0, state_epoch, 0, done.append)
    play.until(lambda: done, "the state is initialized", 60.0)
    assert done == [ErrorCode.NONE]


def alter(play: Play, resource_type: int, name: str, settings: dict[str, str]) -> int:
    """Change settings; return the error code."""
    changes = [AlterableConfig(name=each, config_operation=0, value=value) for each, value in settings.items()]
    resource = AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=changes)
    request = IncrementalAlterConfigsRequest(resources=[resource])
    answer = play.ask(play.leader("tasks"), request, 1, IncrementalAlterConfigsResponse)
    play.rest(1.0)
    code: int = answer.responses[0].error_code
    return code


def worker(play: Play, member_id: str = "ann") -> Worker:
    return Worker(play, play.leader("tasks"), member_id)


def letters(play: Play, topic: str = DEAD) -> list[Record]:
    """Return the committed records of the dead-letter topic, in the order of the log."""
    node = play.leader(topic).node
    partition = None if node is None else node.replicas.partition(topic, 0)
    if partition is None:
        return []
    committed: list[Record] = []
    pending: dict[int, list[Record]] = {}
    for batch in partition.read_all():
        columns = decode_batch(batch)
        if columns.base_offset >= partition.high_watermark:
            break
        if columns.is_control:
            marker = parse_marker(batch)
            ended = pending.pop(columns.producer_id, [])
            committed += ended if marker is not None and marker.is_commit else []
        else:
            pending.setdefault(columns.producer_id, []).extend(columns.records())
    return sorted(committed, key=lambda each: each.offset)


def headers(record: Record) -> dict[str, str]:
    return {name: (value or b"").decode() for name, value in record.headers}


def offsets(play: Play, topic: str = DEAD) -> list[int]:
    """Return the source offsets of the committed dead letters."""
    return [int(headers(each)["__dlq.errors.offset"]) for each in letters(play, topic)]


def counts(play: Play) -> Any:
    node = play.leader("tasks").node
    assert node is not None
    return node.late.dead_letters.get().counts


class KillAt:
    """A kill of the leader of `tasks` at one point of its work on dead letters."""

    def __init__(self, play: Play, point: str, *, nth: int = 0) -> None:
        self.play = play
        self.point = point
        self.nth = nth
        self.node: SimNode = play.leader("tasks")
        self.is_done = False
        node = self.node.node
        assert node is not None
        transactions = node.late.dead_letters.get().transactions
        ask, store = transactions.ask, node.persister.write

        def asked(broker_id: int, request: Any, version: int, then: Callable[[Any], object], **options: Any) -> None:
            name = type(request).__name__.removesuffix("Request")
            if self.reached(f"before {name}"):
                return

            def answered(response: Any) -> None:
                if not self.reached(f"after {name}"):
                    then(response)

            ask(broker_id, request, version, answered, **options)
            self.reached(f"sent {name}", 0.002)

        def stored(*arguments: Any) -> None:
            *before, batches, on_done = arguments
            states = {each.state for each in batches}
            # Where the start offset passes them, that says it.
            name = "Archived" if 4 in states or not batches else "Archiving" if 3 in states else "others"
            if self.reached(f"before {name}"):
                return

            def answered(code: ErrorCode) -> None:
                if not self.reached(f"after {name}"):
                    on_done(code)

            store(*before, batches, answered)
            self.reached(f"sent {name}", 0.002)

        transactions.ask = asked  # type: ignore[method-assign]
        node.persister.write = stored  # type: ignore[method-assign]

    def reached(self, point: str, in_s: float = 0.0) -> bool:
        """Kill the node if this is the point. Return whether it is over for it."""
        if self.is_done:
            return True
        if point != self.point:
            return False
        if self.nth:
            self.nth -= 1
            return False
        self.is_done = True
        self.play.loop.call_in(in_s, self.node.kill)
        return not in_s

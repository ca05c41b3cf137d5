"""A cluster of real nodes in the simulation for one story: it starts whole, and ends with every check there is.

with stage(seed, TOPIC) as play:
    play.work()                       # producers and consumers begin
    play.wait(acknowledged=500)
    play.kill(play.leader("orders"))
    play.rest(10.0)
# On leaving: everything is mended, the cluster must be whole again, all is read, and the checker judges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.simulator.clients.client import SimClient
from tests.simulator.options import SimOptions, TopicOptions
from tests.simulator.run import Run, failing_loudly
from tests.simulator.world.cluster import SimNode
from tests.simulator.world.nemesis import NemesisOptions
from tests.simulator.world.wire import Wire

from strandline.codec.message import Message
from strandline.ids import TopicPartition
from strandline.quorum.image.cluster_image import PartitionImage

ORDERS = TopicOptions("orders", 2, 3, {"min.insync.replicas": "2", "internal.segment.bytes": "20000"})
SETTINGS = {
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "1000",
    "replica.lag.time.max.ms": "4000",
    "offsets.topic.num.partitions": "1",
}
READY_S = 30.0


class Play:
    def __init__(
        self,
        seed: int,
        topics: tuple[TopicOptions, ...],
        *,
        nodes: int = 3,
        controllers: int = 3,
        settings: dict[str, str] | None = None,
        outputs: tuple[TopicOptions, ...] = (),
    ) -> None:
        options = SimOptions(
            seed=seed,
            safety_s=0.0,
            nodes=nodes,
            controllers=controllers,
            settings={**SETTINGS, **(settings or {})},
            topics=topics,
            outputs=outputs,
            nemesis=NemesisOptions(pause_s=1.0, weights={"kill": 1}, power_cuts_all=False),
            records_per_batch=5,
            produce_pause_s=0.1,
            delivery_timeout_s=60.0,
        )
        self.run = Run(options)
        self.loop = self.run.loop
        self.cluster = self.run.cluster
        self.network = self.cluster.network
        self.random = self.loop.derive("story")
        self.is_over = False
        self._clients = 0

    # Who is who

    def node(self, node_id: int) -> SimNode:
        return self.cluster.nodes[node_id]

    def image_of(self, topic: str, partition: int = 0) -> PartitionImage:
        """What the committed metadata says of a partition."""
        return self.run.invariants.image.topics[topic].partitions[partition]

    def leader(self, topic: str, partition: int = 0) -> SimNode:
        self.until(lambda: self.image_of(topic, partition).leader >= 0, "there is a leader")
        return self.node(self.image_of(topic, partition).leader)

    def followers(self, topic: str, partition: int = 0) -> list[SimNode]:
        image = self.image_of(topic, partition)
        return [self.node(each) for each in image.replicas if each != image.leader]

    def controller(self) -> SimNode:
        self.until(lambda: self._controller() is not None, "there is an active controller")
        found = self._controller()
        assert found is not None
        return found

    def _controller(self) -> SimNode | None:
        for each in self.cluster.up():
            if each.node is not None and each.node.metadata.is_leader:
                return each
        return None

    # Time

    def rest(self, for_s: float) -> None:
        self.loop.run_until(self.loop.now + for_s)

    def until(self, condition: Callable[[], Any], what: str, within_s: float = READY_S) -> None:
        assert self.loop.run_while(lambda: not condition(), within_s=within_s), f"not within {within_s:g} s: {what}"

    def wait(self, *, acknowledged: int, within_s: float = READY_S) -> None:
        """Until so many more records are acknowledged."""
        history = self.run.history
        wanted = history.acknowledged + acknowledged
        self.until(lambda: history.acknowledged >= wanted, f"{acknowledged} more records are acknowledged", within_s)

    def wait_whole(self) -> None:
        self.until(lambda: not self.run._not_whole(), "all replicas are in sync", 60.0)

    def wait_rejoined(self) -> None:
        """Wait until every node has joined in the life that it lives now, and every replica is in sync since.

        `wait_whole` may end before that: a node that lost power counts as in sync until the controller has registered
        its next life. A story that cuts the power of one machine after the other must not go on with such a set.
        """
        self.until(self.run.nemesis.is_whole, "all nodes are back, with all replicas in sync", 60.0)

    # Clients

    def work(self, **consumers: float) -> None:
        self.run.start_clients()

    def client(self, *topics: str) -> SimClient:
        self._clients += 1
        return SimClient(
            self.network,
            self.cluster.host(f"asker-{self._clients}"),
            self.run.history,
            self.cluster.bootstrap,
            topics or [topic.name for topic in self.run.options.topics],
        )

    def ask(self, target: SimNode, request: Message, version: int, answer_class: type[Message]) -> Any:
        """One request to one node; None if it does not answer within some seconds."""
        client = self.client()
        wire = Wire(client.runtime, client.network, target.name, 9092, client_id="asker")
        answers: list[Any] = []
        wire.ask(request, version, answer_class, answers.append, timeout_s=8.0)
        self.until(lambda: answers, "an answer, or that there is none", 10.0)
        client.kill()
        return answers[0]

    def topic_id(self, topic: str) -> Any:
        return self.run.invariants.image.topics[topic].id

    def partitions(self, topic: TopicOptions) -> list[TopicPartition]:
        return self.run.partitions(topic)


@contextmanager
def stage(
    seed: int,
    *topics: TopicOptions,
    nodes: int = 3,
    controllers: int = 3,
    settings: dict[str, str] | None = None,
    outputs: tuple[TopicOptions, ...] = (),
    on_all_nodes: bool = False,
) -> Iterator[Play]:
    """`outputs` are topics that transactions write to: what is read there is read by read_committed consumers.

    Topics are made as soon as a broker does so, which may be before others have joined. With `on_all_nodes` they wait.
    """
    print(f"seed {seed}")
    play = Play(seed, topics or (ORDERS,), nodes=nodes, controllers=controllers, settings=settings, outputs=outputs)
    with failing_loudly():
        try:
            play.run.start_nodes()
            if on_all_nodes:
                play.wait_rejoined()
            play.run.create_topics()
            play.wait_whole()
            yield play
            if not play.is_over:
                play.run.nemesis.heal()
                play.run.recover()
                play.run.read_all()
                play.run.judge()
        finally:
            play.loop.after_event = None
            play.cluster.stop()

"""A few nodes in a simulated network, as far as a request for the controller sees of them.

Real dispatchers, listeners, channels, forwarding, handlers and controllers. In place of the quorum stands one list of
records: whoever leads appends, and every node applies them a moment later. `elect` makes another node lead; what the
former leader had under way is answered with NOT_CONTROLLER.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tests.simulator.world.loop import SimLoop
from tests.simulator.world.network import SimNetwork
from tests.simulator.world.runtime import SimHost, SimRuntime

from strandline.broker.kraft.controller_channel import ControllerChannel, LocalController
from strandline.broker.kraft.lifecycle import Identity, Lifecycle, Timing
from strandline.broker.kraft.producer_id_blocks import producer_id_blocks
from strandline.broker.network.admission import Admission
from strandline.broker.network.channel import Channel
from strandline.broker.network.dispatch import Dispatcher
from strandline.broker.network.forwarding import Forwarding
from strandline.broker.network.listener import SocketListener
from strandline.broker.network.routes import BROKER, CONTROLLER, routes
from strandline.codec.message import Message
from strandline.config.node_config import BrokerConfig
from strandline.errors import ErrorCode, RequestError
from strandline.handlers.support.context import MutationQuota
from strandline.handlers.support.mutation_quota import FREE
from strandline.quorum.controller.controller import Controller
from strandline.quorum.controller.features import SUPPORTED_FEATURES
from strandline.quorum.controller.producer_ids import ProducerIds
from strandline.quorum.image.cluster_image import ClusterImage
from strandline.security.acl.authorizer import Authorizer

CLIENT_PORT, CONTROLLER_PORT = 9092, 9093
COMMIT_S, APPLY_S = 0.002, 0.005
CLUSTER_ID = "small-cluster-000000000"


class MetadataOfMember:
    def __init__(self, member: Member) -> None:
        self._member = member

    @property
    def is_leader(self) -> bool:
        return self._member.cluster.leader is self._member

    is_confirmed = is_leader

    @property
    def leader_id(self) -> int | None:
        leader = self._member.cluster.leader
        return None if leader is None else leader.node_id

    @property
    def epoch(self) -> int:
        return self._member.cluster.epoch

    @property
    def next_offset(self) -> int:
        return len(self._member.cluster.log)

    @property
    def voter_ids(self) -> tuple[int, ...]:
        return tuple(member.node_id for member in self._member.cluster.members)

    def leader_address(self) -> tuple[str, int] | None:
        leader = self._member.cluster.leader
        return None if leader is None else (leader.host_name, CONTROLLER_PORT)


class Member:
    """One node, with the broker's and the controller's role."""

    authorizer = None
    events = None

    def __init__(self, cluster: SmallCluster, node_id: int, **settings: str) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.cluster_id = CLUSTER_ID
        self.authorizer: Authorizer | None = None
        self.host_name = f"node-{node_id}"
        self.runtime = SimRuntime(SimHost(cluster.loop, self.host_name), 1)
        self.network = cluster.network.of(self.runtime)
        self.config = BrokerConfig.load("", {name.replace("_", "."): value for name, value in settings.items()})
        self.image = ClusterImage()
        self.groups = SimpleNamespace(is_beginning=lambda index: False)
        self.applied = 0
        self.errors: Counter[tuple[int, int]] = Counter()
        self.directory_id = uuid.UUID(int=1000 + node_id)
        self.metadata = MetadataOfMember(self)
        self.controller = Controller(None, config=self.config, rng=self.runtime.random)
        # Looked up at each write, because tests replace it.
        self.controller.connect(self.runtime, lambda records, on_done: self.controller_write(records, on_done))
        self.pending: list[Callable[[BaseException | None], object]] = []
        self.routes = routes(BROKER)
        self.dispatcher = self._dispatcher(BROKER)
        self.controller_dispatcher = self._dispatcher(CONTROLLER)
        self.controller_channel = self.channel("control")
        self.forwarding_channel = self.channel("forwarding")
        self.dispatcher.forward = Forwarding(self.forwarding_channel).forward
        self.listeners = [
            self._listen(self.dispatcher, CLIENT_PORT),
            self._listen(self.controller_dispatcher, CONTROLLER_PORT),
        ]
        self.lifecycle = Lifecycle(
            self.runtime,
            self.channel("heartbeats"),
            Identity(
                broker_id=node_id,
                cluster_id=CLUSTER_ID,
                incarnation_id=uuid.UUID(int=self.runtime.random.getrandbits(128), version=4),
                endpoints=[("PLAINTEXT", self.host_name, CLIENT_PORT)],
                features=SUPPORTED_FEATURES,
                log_dirs=[self.directory_id],
            ),
            timing=Timing.of(self.config),
            metadata_offset=lambda: self.applied - 1,
        )
        self.producer_ids = ProducerIds(
            producer_id_blocks(
                self.controller_channel, broker_id=node_id, broker_epoch=lambda: self.lifecycle.broker_epoch
            )
        )

    def channel(self, purpose: str) -> ControllerChannel:
        me: Any = self
        client_id = f"broker-{self.node_id}-{purpose}"
        return ControllerChannel(
            self.runtime,
            self.network,
            local=LocalController(me, routes(CONTROLLER), client_id=client_id),
            where=self.metadata.leader_address,
            client_id=client_id,
        )

    def _dispatcher(self, listener: str) -> Dispatcher:
        me: Any = self
        dispatcher = Dispatcher(
            me,
            routes(listener),
            frame_size_max=1 << 20,
            inbox_bytes_max=1 << 30,
            listener=listener,
            listener_name="CONTROLLER" if listener == CONTROLLER else "PLAINTEXT",
        )
        dispatcher.is_active = lambda: self.metadata.is_leader
        return dispatcher

    def _listen(self, dispatcher: Dispatcher, port: int) -> SocketListener:
        listener = SocketListener(self.network, self.runtime, dispatcher, Admission(connections_max=1000))
        listener.bind(self.host_name, port)
        listener.open()
        return listener

    def advertised(self, listener_name: str) -> tuple[str, int]:
        return self.host_name, CLIENT_PORT

    def mutation_quota(self, user: str, client_id: str, *, is_strict: bool) -> MutationQuota:
        return FREE

    def count_error(self, api_key: int, code: int) -> None:
        self.errors[api_key, code] += 1

    def controller_write(self, records: list[Any], on_done: Callable[[BaseException | None], object]) -> None:
        if not self.metadata.is_leader:
            on_done(not_controller())
            return
        self.pending.append(on_done)
        self.cluster.log += records
        self.runtime.call_later(COMMIT_S, self._commit, on_done, len(self.cluster.log))

    def _commit(self, on_done: Callable[[BaseException | None], object], end: int) -> None:
        if on_done in self.pending:
            self.pending.remove(on_done)
            self.apply(end)
            on_done(None)
            for member in self.cluster.members:
                member.runtime.call_later(APPLY_S, member.apply, end)

    def apply(self, end: int) -> None:
        while self.applied < end:
            self.image.apply(self.cluster.log[self.applied], self.applied)
            self.applied += 1
        self.lifecycle.on_metadata()

    def tick(self) -> None:
        if self.metadata.is_leader:
            records = self.controller.tick(self.runtime.monotonic())
            if records:
                self.controller_write(records, lambda error: None)
        self.runtime.call_later(0.05, self.tick)


class SmallCluster:
    def __init__(self, seed: int = 1, nodes: int = 3, **settings: str) -> None:
        self.loop = SimLoop(seed)
        self.network = SimNetwork(self.loop)
        self.log: list[Any] = []
        self.leader: Member | None = None
        self.epoch = 0
        self.members = [Member(self, node_id, **settings) for node_id in range(1, nodes + 1)]
        self.client = SimRuntime(SimHost(self.loop, "client"), 1)
        self._channels: dict[tuple[str, int], Channel] = {}
        for member in self.members:
            member.tick()

    def elect(self, node_id: int | None, *, tells: bool = True) -> None:
        """Make another node lead, or none; unless it `tells`, channels find out by asking the wrong one."""
        former, self.leader = self.leader, None
        if former is not None:
            former.controller.deactivate()
            pending, former.pending = former.pending, []
            # A write without a majority is gone; here, to keep it short, nothing of it ever reached another node.
            committed = max(member.applied for member in self.members)
            del self.log[committed:]
            for on_done in pending:
                on_done(not_controller())
        if node_id is None:
            return
        leader = self[node_id]
        self.epoch += 1
        leader.apply(len(self.log))
        self.leader = leader
        leader.controller.activate(leader.image, leader.runtime.monotonic())
        if not leader.image.features:
            leader.controller_write(leader.controller.bootstrap(), lambda error: None)
        if tells:
            for member in self.members:
                member.controller_channel.on_leader_changed()
                member.forwarding_channel.on_leader_changed()

    def start(self, leader_id: int = 1) -> None:
        """One leads, and all are registered and unfenced."""
        self.elect(leader_id)
        for member in self.members:
            member.lifecycle.start()
            member.lifecycle.be_ready()
        self.run(2)

    def __getitem__(self, node_id: int) -> Member:
        return self.members[node_id - 1]

    def run(self, seconds: float) -> None:
        self.loop.run_until(self.loop.now + seconds)

    def ask_later(
        self, request: Message, version: int, *, node_id: int, port: int = CLIENT_PORT, timeout_s: float = 120.0
    ) -> list[tuple[Any, BaseException | None]]:
        """A client asks a node; the answer comes into the list."""
        host = f"node-{node_id}"
        channel = self._channels.get((host, port))
        if channel is None:
            channel = Channel(self.client, self.network.of(self.client), host, port, client_id="a client")
            self._channels[host, port] = channel
        told: list[tuple[Any, BaseException | None]] = []
        channel.ask(request, version, lambda *answer: told.append(answer), timeout_s=timeout_s)  # type: ignore[arg-type]
        return told

    def ask(self, request: Message, version: int, *, node_id: int, port: int = CLIENT_PORT) -> Any:
        told = self.ask_later(request, version, node_id=node_id, port=port)
        assert self.loop.run_while(lambda: not told, within_s=150), "no answer"
        ((response, error),) = told
        assert error is None, error
        return response


def not_controller() -> RequestError:
    return RequestError(ErrorCode.NOT_CONTROLLER, "another node leads")

"""Members of a metadata quorum on simulated machines: the real driver, log, handlers and channels, and no node."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from tests.simulator.world.disk import SimDisk
from tests.simulator.world.loop import SimLoop
from tests.simulator.world.network import SimNetwork
from tests.simulator.world.runtime import SimHost, SimRuntime

from strandline.broker.kraft.metadata_quorum import NAME, MetadataQuorum, QuorumSettings
from strandline.broker.kraft.metadata_snapshots import write_bootstrap
from strandline.broker.network.admission import Admission
from strandline.broker.network.channel import Channel
from strandline.broker.network.dispatch import Dispatcher
from strandline.broker.network.listener import SocketListener
from strandline.broker.network.routes import CONTROLLER, routes
from strandline.codec.messages.topic_record import TopicRecord
from strandline.errors import ErrorCode, RequestError, StrandlineError
from strandline.log.flusher import Flusher
from strandline.log.log_directory import LogDirectory
from strandline.quorum.raft.voters import Voter, VoterSet

DATA = Path("data")
PORT = 9093


class Member:
    """One machine, and the member of the quorum that lives on it now, if one does."""

    authorizer = None
    events = None

    def __init__(self, world: World, node_id: int, settings: dict[str, Any]) -> None:
        self.world = world
        self.node_id = node_id
        self.name = f"node-{node_id}"
        self.settings = settings
        self.cluster_id = world.cluster_id
        self.directory_id = uuid.UUID(int=1000 + node_id)
        self.host = SimHost(world.loop, self.name)
        self.disk = SimDisk(world.loop.derive(f"disk {self.name}"))
        self.disk.make_directory(DATA)
        self.disk.sync_all()
        self.lives = 0
        self.told: list[str] = []
        """What the quorum said to the rest of the node, in order, over all lives."""
        self.metadata: MetadataQuorum | None = None

    # What handlers see of a node.
    @property
    def runtime(self) -> SimRuntime:
        return self._runtime

    @property
    def dispatcher(self) -> Dispatcher:
        return self._dispatcher

    def start(self) -> None:
        assert self.metadata is None
        self.lives += 1
        runtime = self._runtime = SimRuntime(self.host, self.lives)
        network = self.world.network.of(runtime)
        directory = self.directory = LogDirectory(DATA, disk=self.disk, open_files_max=20)
        settings = QuorumSettings(
            node_id=self.node_id, directory_id=self.directory_id, cluster_id=self.cluster_id, **self.settings
        )

        def connect(host: str, port: int) -> Channel:
            return Channel(runtime, network, host, port, client_id=self.name)

        metadata = MetadataQuorum(directory, runtime, Flusher(runtime), settings=settings, connect=connect)
        metadata.on_leading = lambda epoch: self.told.append(f"leads {epoch}")
        metadata.on_not_leading = lambda: self.told.append("leads no more")
        metadata.on_image_replaced = lambda: self.told.append("image replaced")
        metadata.on_caught_up = lambda: self.told.append("caught up")
        metadata.on_stop = self.told.append
        self.metadata = metadata
        self._dispatcher = Dispatcher(
            self,  # type: ignore[arg-type]  # the little of a node that is asked for
            routes(CONTROLLER),
            frame_size_max=1 << 24,
            inbox_bytes_max=1 << 30,
            listener=CONTROLLER,
        )
        listener = SocketListener(network, runtime, self._dispatcher, Admission(connections_max=1000))
        listener.bind(self.name, PORT)
        listener.open()
        metadata.start()

    def write_checkpoints(self) -> None:
        """What a node does now and then."""
        self.directory.write_checkpoints({NAME: (self.quorum.log, self.quorum.high_watermark)})

    def kill(self) -> None:
        """kill -9: the kernel's memory lives on."""
        self._end()
        self.world.network.process_died(self._runtime)
        self.disk.process_died()

    def power_cut(self) -> None:
        self._end()
        self.world.network.power_cut(self._runtime)
        self.disk.power_cut()

    def _end(self) -> None:
        assert self.metadata is not None
        self.metadata = None
        self._runtime.actor.kill()

    @property
    def quorum(self) -> MetadataQuorum:
        assert self.metadata is not None, f"{self.name} is not running"
        return self.metadata

    @property
    def topics(self) -> list[str]:
        return sorted(self.quorum.image.topics)


class World:
    def __init__(self, seed: int, *, voters: int = 3, observers: int = 0, **settings: Any) -> None:
        self.loop = SimLoop(seed)
        self.network = SimNetwork(self.loop)
        self.cluster_id = "the-cluster"
        self._topics = 0
        ids = range(1, voters + 1)
        self.voters = VoterSet(
            Voter(node_id, f"node-{node_id}", PORT, uuid.UUID(int=1000 + node_id)) for node_id in ids
        )
        static = tuple((node_id, f"node-{node_id}", PORT) for node_id in ids)
        servers = tuple((f"node-{node_id}", PORT) for node_id in ids)
        self.members = {node_id: Member(self, node_id, {"static_voters": static, **settings}) for node_id in ids}
        for node_id in range(voters + 1, voters + observers + 1):
            self.members[node_id] = Member(
                self, node_id, {"bootstrap_servers": servers, "is_controller": False, **settings}
            )

    def format(self) -> None:
        """Write the voters into the directories instead of the configuration."""
        for member in self.members.values():
            member.settings.pop("static_voters", None)
            write_bootstrap(
                member.disk,
                DATA,
                voters=self.voters.record(),
                features={"metadata.version": 25},
                kraft_version=1,
                now_ms=1,
            )

    def start(self) -> World:
        for member in self.members.values():
            member.start()
        return self

    @property
    def up(self) -> list[Member]:
        return [member for member in self.members.values() if member.metadata is not None]

    def leaders(self) -> list[Member]:
        return [member for member in self.up if member.quorum.is_leader]

    def leader(self, *, within_s: float = 30.0) -> Member:
        """The one that leads the newest epoch; wait until somebody does whom a majority follows."""

        def found() -> Member | None:
            leading = max(self.leaders(), key=lambda member: member.quorum.epoch, default=None)
            if leading is None:
                return None
            epoch = leading.quorum.epoch
            return leading if all(member.quorum.epoch <= epoch for member in self.up) else None

        assert self.loop.run_while(lambda: found() is None, within_s=within_s), f"no leader: {self.describe()}"
        leading = found()
        assert leading is not None
        return leading

    def write(self, member: Member, name: str = "", *, within_s: float = 10.0) -> str:
        """Create a topic at `member`; its name once that is committed."""
        errors: list[BaseException | None] = []
        name = self.ask(member, errors.append, name)
        assert self.loop.run_while(lambda: not errors, within_s=within_s), f"never answered: {self.describe()}"
        if errors[0] is not None:
            raise errors[0]
        return name

    def ask(self, member: Member, on_done: Any, name: str = "") -> str:
        self._topics += 1
        record = TopicRecord(name=name or f"topic-{self._topics}", topic_id=uuid.UUID(int=self._topics))
        member.quorum.write([record], on_done)
        return str(record.name)

    def settle(self, *, within_s: float = 30.0) -> list[str]:
        """Wait until every member has the same image; the topics in it."""

        def agree() -> bool:
            return len({(member.quorum.folded_offset, tuple(member.topics)) for member in self.up}) == 1

        assert self.loop.run_while(lambda: not agree(), within_s=within_s), self.describe()
        assert len({repr(member.quorum.image.records()) for member in self.up}) == 1
        return self.up[0].topics

    def run(self, seconds: float) -> None:
        self.loop.run_until(self.loop.now + seconds)

    def describe(self) -> str:
        return f"seed {self.loop.seed}: " + "; ".join(
            f"{member.name} {member.quorum.raft.role} epoch {member.quorum.epoch} folded {member.quorum.folded_offset}"
            f" of {member.quorum.next_offset} failure {member.quorum.log.failure}"
            for member in self.up
        )


def is_refused(error: BaseException | None) -> bool:
    return isinstance(error, RequestError) and error.code == ErrorCode.NOT_CONTROLLER


__all__ = ["DATA", "PORT", "Member", "StrandlineError", "World", "is_refused"]

"""One simulated replica: the driver of a Raft core, with a disk that forgets and a process that dies."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tests.simulator.raft.log import Kept, SimulatedLog
from tests.simulator.raft.oracle import Violation
from tests.simulator.world.loop import Actor, SimTimer

from strandline.codec.messages import fetch_snapshot_response as pieces
from strandline.codec.messages.fetch_request import FetchRequest
from strandline.codec.messages.fetch_snapshot_request import FetchSnapshotRequest
from strandline.codec.messages.vote_request import VoteRequest
from strandline.errors import ErrorCode
from strandline.quorum.controller.topic_names import CLUSTER_METADATA
from strandline.quorum.raft.effects import (
    Effect,
    Flush,
    HighWatermark,
    Inconsistent,
    InstallSnapshot,
    Leading,
    NoLongerLeading,
    Save,
    SendRequest,
    SnapshotChunk,
    Truncated,
    WrongCluster,
)
from strandline.quorum.raft.fetch import ReplicaFetch
from strandline.quorum.raft.messages import fetch_response, replica_fetch
from strandline.quorum.raft.raft import Raft
from strandline.quorum.raft.raft_log import SnapshotId
from strandline.quorum.raft.state_files import QuorumState
from strandline.quorum.raft.voters import ReplicaKey

if TYPE_CHECKING:
    from tests.simulator.raft.world import RaftWorld

    from strandline.codec.message import Message

Reply = Callable[[Any], None]


class SimulatedReplica:
    """The machine and its disk; `start` begins a life of the process on it, `kill` ends it."""

    def __init__(self, world: RaftWorld, node_id: int, *, is_voter: bool) -> None:
        self.world = world
        self.node_id = node_id
        self.is_controller = is_voter
        self.disk_number = 0
        self.is_alive = False
        self.paused_until = 0.0
        self.flush_s = 0.001
        self.dies_in: int | None = None
        """Dies when it has performed so many more effects; None: not by itself."""
        self.revives_in_s = 0.5
        self.new_disk()

    def __repr__(self) -> str:
        return f"replica {self.node_id}"

    def new_disk(self) -> None:
        """An empty disk, which has an id of its own."""
        self.disk_number += 1
        self.key = ReplicaKey(self.node_id, UUID(int=self.node_id * 1000 + self.disk_number))
        self.kept = Kept()

    # Lives

    def start(self) -> None:
        assert not self.is_alive
        world = self.world
        self.is_alive = True
        self.is_catching_up = False
        self.actor = Actor(world, repr(self))
        self.dies_in = None
        self.log = SimulatedLog(self.kept)
        self.raft = Raft(
            node_id=self.node_id,
            directory_id=self.key.directory_id,
            cluster_id="simulated",
            voters=world.voters if self.is_controller else world.no_voters,
            bootstrap_servers=world.bootstrap_servers,
            may_vote=self.is_controller,
            state=self.kept.quorum_state,
            log=self.log,
            timing=world.timing,
            random=random.Random(world.random.getrandbits(64)),
        )
        self.high_watermark_seen = self.raft.high_watermark
        self.leading: tuple[int, int] | None = None
        self.is_announced = False
        self.heard: dict[int, float] = {}
        """When each voter last fetched in the epoch that this replica leads."""
        self.timer_at = float("inf")
        self._effects: deque[Effect] = deque()
        self._is_flushing = False
        self._is_flush_due = False
        self._partial: dict[SnapshotId, bytes] = {}
        self._parked: list[tuple[ReplicaFetch, float, Reply]] = []
        self._pending: deque[tuple[int, int]] = deque()
        self._applied = self.raft.high_watermark
        self.raft.start(world.now)
        self.settle()

    def kill(self) -> None:
        """Without warning; what was not flushed is lost, all or some of it."""
        if self.is_alive:
            self.is_alive = False
            self.actor.kill()
            self.log.crash(self.world.random)
            self.world.lost += len(self._pending)
            if self.world.random.random() < 0.5:
                # A process that dies closes its connections; a machine that does, does not.
                for _, _, reply in self._parked:
                    reply(None)
            self.world.oracle.check_durable()

    def pause(self, until: float) -> None:
        self.actor.pause()
        self.paused_until = until
        self.is_catching_up = True
        self.world.call_at(until, self.world.world, self._end_pause, self.actor)

    def _end_pause(self, actor: Actor) -> None:
        if actor is self.actor and self.world.now >= self.paused_until:
            self.resume()

    def resume(self) -> None:
        if self.is_alive and self.actor.is_paused:
            self.actor.resume()
            # Behind all that was held back.
            self.world.call_at(self.world.now, self.actor, self._note_caught_up)

    def _note_caught_up(self) -> None:
        self.is_catching_up = self.actor.is_paused

    # Events

    def happen(self, event: Callable[..., None], *arguments: Any) -> None:
        """Let `event` happen to the process now; a paused one takes it when it goes on."""
        if not self.is_alive:
            return
        if self.actor.is_paused:
            self.actor.held.append(SimTimer(self.actor, self.take, (event, *arguments)))
        else:
            self.take(event, *arguments)

    def at(self, time: float, event: Callable[..., None], *arguments: Any) -> None:
        """Let `event` happen to this life of the process at that time."""
        self.world.call_at(time, self.actor, self.take, event, *arguments)

    def take(self, event: Callable[..., None], *arguments: Any) -> None:
        event(*arguments)
        if self.is_alive:
            self.settle()

    def settle(self) -> None:
        """Perform effects until there are none, check what must hold, and set the timer."""
        raft, queue = self.raft, self._effects
        queue.extend(raft.take_effects())
        while queue:
            if self.dies_in is not None:
                self.dies_in -= 1
                if self.dies_in < 0:
                    self.kill()
                    self.world.call_in(self.revives_in_s, self.world.restart, self)
                    return
            self._perform(queue.popleft())
            queue.extend(raft.take_effects())
        self.world.oracle.check(self)
        deadline = raft.deadline
        if deadline < self.timer_at:
            self.timer_at = deadline
            self.at(max(deadline, self.world.now), self._on_timer, deadline)

    def _on_timer(self, set_for: float) -> None:
        if set_for != self.timer_at:
            return
        self.timer_at = float("inf")
        if self.raft.deadline <= self.world.now:
            self.raft.on_time(self.world.now)

    def _perform(self, effect: Effect) -> None:
        if isinstance(effect, SendRequest):
            self.world.transmit(self, effect)
        elif isinstance(effect, Flush):
            self._flush()
        elif isinstance(effect, HighWatermark):
            self._commit(effect.offset)
        elif isinstance(effect, Save):
            self._save(effect.state)
        elif isinstance(effect, Leading):
            self.is_announced = True
            self.world.leader_changes += 1
        elif isinstance(effect, NoLongerLeading):
            self.is_announced = False
            self.world.lost += len(self._pending)
            self._pending.clear()
            self._wake()
        elif isinstance(effect, Truncated):
            if self.raft.is_leader:
                raise Violation(f"leader-keeps: {self} cut its log to {effect.end_offset} while it leads")
            self.world.truncations += 1
        elif isinstance(effect, SnapshotChunk):
            before = self._partial.get(effect.snapshot_id, b"") if effect.position else b""
            if len(before) != effect.position:
                raise Violation(f"snapshot: {self} got a piece at {effect.position}, {len(before)} bytes are there")
            self._partial[effect.snapshot_id] = before + effect.records
        elif isinstance(effect, InstallSnapshot):
            delay_s = self.flush_s * 3
            self.at(self.world.now + delay_s, self._install, effect.snapshot_id)
        elif isinstance(effect, Inconsistent):
            raise Violation(f"refused: {self}: {effect.reason}")
        elif isinstance(effect, WrongCluster):
            raise Violation(f"refused: {self} was told that {effect.peer} is of another cluster")

    # The disk

    def _save(self, state: QuorumState) -> None:
        self.kept.quorum_state = state
        if state.voted_id == self.node_id:
            self.world.oracle.note_vote(self.key, state.leader_epoch, self.key)

    def _flush(self) -> None:
        if self._is_flushing:
            self._is_flush_due = True
            return
        self._is_flushing = True
        job = self.log.begin_flush()
        self.at(self.world.now + self.flush_s, self._on_flushed, *job)

    def _on_flushed(self, *job: Any) -> None:
        self._is_flushing = False
        self.log.end_flush(*job)
        if self._is_flush_due:
            self._is_flush_due = False
            self._flush()
        self.raft.on_flushed(self.world.now)

    def _install(self, snapshot_id: SnapshotId) -> None:
        if self.raft.is_leader:
            raise Violation(f"leader-keeps: {self} loads a snapshot while it leads")
        content = self._partial.pop(snapshot_id)
        self.world.oracle.check_snapshot(snapshot_id, content)
        self.log.install(snapshot_id, content)
        self.world.installed += 1
        self.world.oracle.check_durable()
        self._applied = snapshot_id.end_offset
        self.raft.on_snapshot_installed(snapshot_id, self.world.now)

    def take_snapshot(self, *, clean: bool) -> None:
        """Of everything committed here; `clean` drops the entries in it, so that who is behind needs the snapshot."""
        end = self.raft.high_watermark
        if self.raft.high_watermark > self.log.start_offset:
            epoch = self.log.entry(end - 1).epoch
            self.log.take_snapshot(SnapshotId(end, epoch), self.world.oracle.snapshot_content(end))
            if clean:
                self.log.clean()

    def _commit(self, offset: int) -> None:
        self.world.oracle.note_committed(self, self._applied, offset)
        self._applied = max(self._applied, offset)
        while self._pending and self._pending[0][0] < offset:
            at, value = self._pending.popleft()
            self.world.acknowledge(self, at, value)
        self._wake()

    # Clients

    def append(self, values: list[int]) -> None:
        """Each value is one operation, acknowledged when it is committed here."""
        if self.raft.is_leader:
            offset = self.raft.append(values, self.world.now)
            self._pending.extend(enumerate(values, offset))
            self._wake()

    # Requests of other replicas

    def receive(self, request: Message, reply: Reply) -> None:
        now = self.world.now
        if isinstance(request, FetchRequest):
            fetch = replica_fetch(request)
            assert fetch is not None
            may_wait = self.raft.on_fetch(fetch, now).may_wait
            self._hear(fetch.key, fetch.current_leader_epoch)
            self.settle()
            if not self.is_alive:
                return
            if may_wait and self.raft.answer_fetch(fetch).may_wait:
                expires_at = now + request.max_wait_ms / 1000
                self._parked.append((fetch, expires_at, reply))
                self.at(expires_at, self._expire)
            else:
                self._answer(fetch, reply)
        elif isinstance(request, FetchSnapshotRequest):
            response = self._piece(request)
            self.settle()
            if self.is_alive:
                reply(response)
        else:
            answer = self.raft.on_request(request, now)
            self.settle()  # What must be on disk before the answer leaves is.
            if self.is_alive:
                if isinstance(request, VoteRequest):
                    self._note_vote(request, answer)
                reply(answer)

    def _hear(self, key: ReplicaKey, epoch: int) -> None:
        if epoch == self.raft.epoch and self.world.voters.holds(key):
            self.heard[key.node_id] = self.world.now

    def _note_vote(self, request: VoteRequest, answer: Any) -> None:
        asked, answered = request.topics[0].partitions[0], answer.topics[0].partitions[0]
        if answered.vote_granted and not asked.pre_vote:
            candidate = ReplicaKey(asked.replica_id, asked.replica_directory_id)
            self.world.oracle.note_vote(self.key, asked.replica_epoch, candidate)

    def _answer(self, fetch: ReplicaFetch, reply: Reply) -> None:
        answer = self.raft.answer_fetch(fetch)
        records = self.log.read(fetch.fetch_offset, self.world.fetch_entries()) if answer.has_records else None
        if records is not None and not records[1]:
            records = None
        reply(fetch_response(answer, self.raft.leader, records))

    def _wake(self) -> None:
        """Answer the parked fetches that need not wait any longer."""
        parked, self._parked = self._parked, []
        for fetch, expires_at, reply in parked:
            if self.raft.answer_fetch(fetch).may_wait:
                self._parked.append((fetch, expires_at, reply))
            else:
                self._answer(fetch, reply)

    def _expire(self) -> None:
        now = self.world.now
        while self._parked and self._parked[0][1] <= now:
            fetch, _, reply = self._parked.pop(0)
            self._answer(fetch, reply)

    def _piece(self, request: FetchSnapshotRequest) -> Any:
        asked = request.topics[0].partitions[0]
        key = ReplicaKey(request.replica_id, asked.replica_directory_id)
        error = self.raft.on_fetch_snapshot(key, asked.current_leader_epoch, request.cluster_id, self.world.now)
        self._hear(key, asked.current_leader_epoch)
        snapshot_id = SnapshotId(asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
        content = self.kept.snapshots.get(snapshot_id)
        piece = pieces.PartitionSnapshot(
            snapshot_id=pieces.SnapshotId(*snapshot_id),
            current_leader=pieces.LeaderIdAndEpoch(self.raft.leader_id, self.raft.epoch),
        )
        if error != ErrorCode.NONE or content is None:
            piece.error_code = error or ErrorCode.SNAPSHOT_NOT_FOUND
        else:
            size = self.world.random.randint(1, 40)
            piece.size, piece.position = len(content), asked.position
            piece.unaligned_records = content[asked.position : asked.position + size]
        topic = pieces.TopicSnapshot(name=CLUSTER_METADATA, partitions=[piece])
        return pieces.FetchSnapshotResponse(topics=[topic])

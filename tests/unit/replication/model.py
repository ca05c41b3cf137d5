"""Three replicas of one partition and their controller, in memory: the real cores of replication, and a world that
loses, delays and repeats what they say to each other.

A log is a list of (leader epoch, value). What happens next is one of the things that can, and a random source picks: an
administrator changes `min.insync.replicas`, too. After each of them: what was committed once is in every log that may
lead, in sync or eligible, and nobody shows anything else.
"""

from __future__ import annotations

from ast import literal_eval
from collections import deque
from collections.abc import Callable
from random import Random

from strandline.codec.fetch import FetchAnswer, FetchedPartition
from strandline.errors import ErrorCode
from strandline.log.leader_epochs import LeaderEpochs
from strandline.replication.divergence import truncation_offset
from strandline.replication.follower import FollowerFetches, FollowerRequest, Position
from strandline.replication.in_sync import InSyncReplicas, Proposal

TOPIC = b"t" * 16
KEY = (TOPIC, 0)
LAG_S = 5.0
AGREED_MIN = 2
"""An in-sync set below it, made by the controller, counts when its leader has asked for it: as in `PartitionChange`."""

Record = tuple[int, int]


class Violation(AssertionError):
    pass


def epochs_of(log: list[Record]) -> LeaderEpochs:
    epochs = LeaderEpochs()
    for offset, (epoch, _) in enumerate(log):
        epochs.note(epoch, offset)
    return epochs


class Replica:
    def __init__(self, world: World, node_id: int) -> None:
        self.world = world
        self.id = node_id
        self.broker_epoch = node_id * 100
        self.log: list[Record] = []
        self.high_watermark = 0
        self.news: deque[Partition] = deque()
        self.known = Partition(leader=-1, leader_epoch=-1, partition_epoch=-1, isr=(), eligible=(), in_sync_min=1)
        self.in_sync: InSyncReplicas | None = None
        self.follower = FollowerFetches()
        self.sessions: dict[int, tuple[int, Position] | None] = {}
        """As a leader: the turn of each follower's session, and where it stands."""

    # Metadata

    def take_news(self) -> None:
        news = self.news.popleft()
        if news.partition_epoch < self.known.partition_epoch:
            return
        begins = news.leader_epoch > self.known.leader_epoch
        is_same_leader = news.leader == self.known.leader
        self.known = news
        if news.leader == self.id:
            if begins or self.in_sync is None:
                self.sessions.clear()
                self.in_sync = InSyncReplicas(
                    self.id,
                    replicas=self.world.replicas,
                    isr=news.isr,
                    leader_epoch=news.leader_epoch,
                    partition_epoch=news.partition_epoch,
                    epoch_start_offset=len(self.log),
                    lag_max_s=LAG_S,
                    is_eligible=lambda each, epoch: self.world.replicas[each].broker_epoch == epoch,
                    now=self.world.now,
                    eligible=news.eligible,
                )
            else:
                self.in_sync.on_metadata(
                    replicas=self.world.replicas,
                    isr=news.isr,
                    partition_epoch=news.partition_epoch,
                    now=self.world.now,
                    eligible=news.eligible,
                )
            self.recount()
        elif begins:
            self.in_sync = None
            if not is_same_leader:
                self.follower = FollowerFetches()
            self.follower.follow(KEY, self.position(), size_bytes_max=100)

    # Leading

    def append(self, value: int) -> None:
        assert self.in_sync is not None
        self.log.append((self.in_sync.leader_epoch, value))
        if self.in_sync.is_alone:
            self.recount()

    @property
    def has_enough(self) -> bool:
        """Whether as many replicas are in sync as the newest setting known here asks for."""
        return self.in_sync is not None and len(self.in_sync.isr) >= self.known.in_sync_min

    def recount(self) -> None:
        in_sync = self.in_sync
        if in_sync is not None and not in_sync.eligible and self.has_enough:
            high_watermark = in_sync.high_watermark(len(self.log))
            if high_watermark > self.high_watermark:
                self.high_watermark = high_watermark
                self.world.on_committed(self)

    def serve(self, follower: Replica, request: FollowerRequest, broker_epoch: int) -> FetchAnswer:
        """A Fetch, as the leader's handler treats it."""
        if request.session_epoch == 0:
            self.sessions[follower.id] = None
        session = self.sessions.get(follower.id)
        if request.session_epoch and (session is None or session[0] != request.session_epoch):
            return FetchAnswer(ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0, [])
        position = None if session is None else session[1]
        is_new = bool(request.partitions)
        for fetch in request.partitions:
            position = Position(fetch.current_leader_epoch, fetch.fetch_offset, fetch.last_fetched_epoch, 0, 0)
        if request.forgotten and not is_new:
            position = None
        if position is None:
            self.sessions.pop(follower.id, None)
            return FetchAnswer(0, 0, [])
        self.sessions[follower.id] = (request.session_epoch + 1, position)
        return FetchAnswer(0, 5, [self._answer(follower, position, broker_epoch, is_new)])

    def _answer(self, follower: Replica, position: Position, broker_epoch: int, is_new: bool) -> FetchedPartition:
        epoch, offset, last_epoch = position[:3]
        in_sync = self.in_sync
        code = ErrorCode.NONE
        if in_sync is None or self.world.registered[follower.id] != broker_epoch:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif epoch != in_sync.leader_epoch:
            code = ErrorCode.FENCED_LEADER_EPOCH if epoch < in_sync.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
        if in_sync is None or code:
            return FetchedPartition(TOPIC, 0, code, -1, -1, None, memoryview(b""))
        if last_epoch >= 0:
            found, end = epochs_of(self.log).end_offset(last_epoch, len(self.log))
            if found < 0:
                found, end = epochs_of(self.log).latest, len(self.log)
            if found < last_epoch or end < offset:
                return FetchedPartition(TOPIC, 0, 0, self.high_watermark, 0, (found, end), memoryview(b""))
        if is_new:
            in_sync.now = self.world.now
            in_sync.on_fetch(
                in_sync.followers[follower.id],
                offset,
                log_start_offset=0,
                broker_epoch=broker_epoch,
                end_offset=len(self.log),
            )
            self.recount()
            self.world.maybe_propose(self, in_sync.maybe_expand(self.high_watermark))
        records = repr(self.log[offset : offset + 3]).encode()
        return FetchedPartition(TOPIC, 0, 0, self.high_watermark, 0, None, memoryview(records))

    # Following

    def position(self) -> Position:
        last_epoch = self.log[-1][0] if self.log else -1
        return Position(self.known.leader_epoch, len(self.log), last_epoch, 0, self.high_watermark)

    def take(self, follower: FollowerFetches, answer: FetchAnswer | None) -> None:
        if follower is not self.follower or self.in_sync is not None:
            return
        if answer is None:
            follower.on_failure()
            return
        for _, fetched in follower.on_answer(answer):
            if fetched.error_code:
                follower.hold(KEY)
            elif fetched.diverging is not None:
                cut = truncation_offset(epochs_of(self.log), len(self.log), *fetched.diverging)
                del self.log[cut:]
                self.high_watermark = min(self.high_watermark, cut)
            else:
                self.log += literal_eval(bytes(fetched.records).decode())
                self.high_watermark = max(self.high_watermark, min(fetched.high_watermark, len(self.log)))
            follower.move(KEY, self.position())


class Partition:
    """What the controller decided, and `min.insync.replicas` of that moment."""

    def __init__(
        self,
        *,
        leader: int,
        leader_epoch: int,
        partition_epoch: int,
        isr: tuple[int, ...],
        eligible: tuple[int, ...],
        in_sync_min: int,
    ) -> None:
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.isr = isr
        self.eligible = eligible
        self.in_sync_min = in_sync_min


class World:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.values = 0
        self.elections = 0
        self.is_quiet = False
        """Whether nothing is written and nobody dies: time to come together."""
        self.replicas = {node_id: Replica(self, node_id) for node_id in (1, 2, 3)}
        self.registered = {each.id: each.broker_epoch for each in self.replicas.values()}
        self.committed: list[Record] = []
        self.in_sync_min = 2
        self.decided = self._partition(leader=1, leader_epoch=0, partition_epoch=0, isr=(1, 2, 3), eligible=())
        self.in_flight: list[Callable[[], object]] = []
        self._tell_all()

    # The controller

    def _tell_all(self) -> None:
        for replica in self.replicas.values():
            replica.news.append(self.decided)

    def _partition(
        self, *, leader: int, leader_epoch: int, partition_epoch: int, isr: tuple[int, ...], eligible: tuple[int, ...]
    ) -> Partition:
        return Partition(
            leader=leader,
            leader_epoch=leader_epoch,
            partition_epoch=partition_epoch,
            isr=isr,
            eligible=eligible,
            in_sync_min=self.in_sync_min,
        )

    def configure(self) -> None:
        """Set another `min.insync.replicas`; the metadata log tells of it, and the partition stays as it is."""
        self.in_sync_min = self.random.choice((1, 2, 3))
        now = self.decided
        self.decided = self._partition(
            leader=now.leader,
            leader_epoch=now.leader_epoch,
            partition_epoch=now.partition_epoch,
            isr=now.isr,
            eligible=now.eligible,
        )
        self._tell_all()

    def decide(
        self,
        isr: tuple[int, ...],
        leader: int | None = None,
        *,
        is_asked_by_leader: bool = False,
        lost: int | None = None,
    ) -> None:
        """Decide the next state as `PartitionChange` does; `lost` is a replica that came back with an empty disk."""
        before = self.decided
        moves = leader is not None
        in_sync_min = self.in_sync_min if is_asked_by_leader else max(self.in_sync_min, AGREED_MIN)
        held = dict.fromkeys((*before.eligible, *before.isr)) if len(isr) < in_sync_min else {}
        self.decided = self._partition(
            leader=before.leader if leader is None else leader,
            leader_epoch=before.leader_epoch + moves,
            partition_epoch=before.partition_epoch + 1,
            isr=isr,
            eligible=tuple(each for each in held if each not in isr and each != lost),
        )
        self.elections += moves
        self._tell_all()

    def alter(self, leader: Replica, proposal: Proposal) -> None:
        """An AlterPartition arrives; its answer goes back, or is lost."""
        decided = self.decided
        code = ErrorCode.NONE
        if proposal.leader_epoch != decided.leader_epoch:
            code = ErrorCode.FENCED_LEADER_EPOCH
        elif proposal.partition_epoch != decided.partition_epoch:
            code = ErrorCode.INVALID_UPDATE_VERSION
        elif any(
            epoch not in (-1, self.registered[each])
            for each, epoch in zip(proposal.isr, proposal.broker_epochs, strict=True)
        ):
            code = ErrorCode.INELIGIBLE_REPLICA
        elif proposal.isr != decided.isr or (decided.eligible and len(proposal.isr) >= self.in_sync_min):
            self.decide(proposal.isr, is_asked_by_leader=True)
        decided = self.decided

        def answer() -> None:
            in_sync = leader.in_sync
            if in_sync is None:
                return
            if self.random.random() < 0.3:
                if in_sync.on_proposal_answered(proposal, ErrorCode.REQUEST_TIMED_OUT):
                    self.in_flight.append(lambda: self.alter(leader, proposal))
                return
            in_sync.on_proposal_answered(
                proposal,
                code,
                leader_epoch=decided.leader_epoch,
                partition_epoch=decided.partition_epoch,
                isr=decided.isr,
            )
            leader.recount()

        self.in_flight.append(answer)

    def maybe_propose(self, leader: Replica, proposal: Proposal | None) -> None:
        if proposal is not None:
            self.in_flight.append(lambda: self.alter(leader, proposal))
            if self.random.random() < 0.2:
                self.in_flight.append(lambda: self.alter(leader, proposal))

    # What may happen

    def step(self) -> None:
        random = self.random
        self.now += random.random()
        replica = self.replicas[random.choice((1, 2, 3))]
        happening = random.random()
        if happening < 0.35 and self.in_flight:
            self.in_flight.pop(random.randrange(len(self.in_flight)))()
        elif happening < 0.5 and replica.news:
            replica.take_news()
        elif happening < 0.65 and replica.in_sync is not None and not self.is_quiet:
            self.values += 1
            replica.append(self.values)
        elif happening < 0.9 and replica.in_sync is None and replica.known.leader > 0:
            self._fetch(replica)
        elif happening < 0.94 and replica.in_sync is not None:
            in_sync = replica.in_sync
            self.maybe_propose(replica, in_sync.maybe_shrink(len(replica.log), self.now))
            self.maybe_propose(replica, in_sync.maybe_expand(replica.high_watermark))
            if replica.has_enough:
                self.maybe_propose(replica, in_sync.maybe_confirm())
            replica.recount()
        elif happening < 0.952 and not self.is_quiet:
            self._elect()
        elif happening < 0.956 and not self.is_quiet:
            self._replace(replica)
        elif happening < 0.976 and not self.is_quiet:
            self.configure()
        self.check()

    def _fetch(self, replica: Replica) -> None:
        follower = replica.follower
        leader = self.replicas[replica.known.leader]
        request = follower.next_request()
        if request is None or leader is replica:
            return
        broker_epoch = replica.broker_epoch

        def arrive() -> None:
            answer = leader.serve(replica, request, broker_epoch)
            is_lost = self.random.random() < 0.1
            self.in_flight.append(lambda: replica.take(follower, None if is_lost else answer))

        if self.random.random() < 0.1:
            self.in_flight.append(lambda: replica.take(follower, None))
        else:
            self.in_flight.append(arrive)

    def _elect(self) -> None:
        """The leader is taken for dead, or leadership is moved: another in sync leads, or an eligible one."""
        before = self.decided.leader
        others = [each for each in self.decided.isr if each != before]
        if others:
            isr = self.decided.isr
            if self.random.random() < 0.5:
                isr = tuple(others)
            self.decide(isr, self.random.choice(others))
            if before in isr and self.random.random() < 0.3:
                # And back at once: who was away meanwhile sees only that the epoch is another.
                self.decide(isr, before)
        elif self.decided.eligible:
            elected = self.random.choice(self.decided.eligible)
            self.decide((elected,), elected)

    def _replace(self, replica: Replica) -> None:
        """A broker comes back with an empty disk; the controller knows that it is another process."""
        decided = self.decided
        isr = tuple(each for each in decided.isr if each != replica.id)
        if not isr:
            return
        if replica.id in (*decided.isr, *decided.eligible):
            self.decide(isr, isr[0] if decided.leader == replica.id else None, lost=replica.id)
        fresh = Replica(self, replica.id)
        fresh.broker_epoch = replica.broker_epoch + 1
        fresh.news.append(self.decided)
        self.registered[replica.id] = fresh.broker_epoch
        self.replicas[replica.id] = fresh

    # What must hold

    def on_committed(self, leader: Replica) -> None:
        committed = leader.log[: leader.high_watermark]
        if committed[: len(self.committed)] != self.committed[: len(committed)]:
            raise Violation(f"node {leader.id} shows other records than were committed")
        if len(committed) > len(self.committed):
            self.committed = committed

    def check(self) -> None:
        for each in (*self.decided.isr, *self.decided.eligible):
            if self.replicas[each].log[: len(self.committed)] != self.committed:
                raise Violation(f"node {each} may be elected and lacks what is committed")
        for replica in self.replicas.values():
            seen = replica.log[: replica.high_watermark]
            if seen != self.committed[: len(seen)]:
                raise Violation(f"node {replica.id} shows what is not committed")

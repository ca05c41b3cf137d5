"""The metadata quorum as a whole: real logs, snapshots, handlers and channels on simulated machines, from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from uuid import UUID

import pytest
from tests.unit.broker.quorum_world import DATA, World, is_refused

from strandline.broker.kraft.metadata_lateness import LATE_S
from strandline.codec.messages.topic_record import TopicRecord
from strandline.codec.messages.vote_request import PartitionData, TopicData, VoteRequest
from strandline.codec.messages.vote_response import VoteResponse
from strandline.errors import RequestError

SEEDS = range(2)


@pytest.mark.parametrize("seed", SEEDS)
def test_three_elect_a_leader_and_all_see_what_it_writes(seed: int) -> None:
    world = World(seed).start()
    leader = world.leader()
    names = [world.write(leader) for _ in range(5)]
    assert world.settle() == sorted(names)
    assert len(world.leaders()) == 1
    assert all(member.quorum.leader_id == leader.node_id for member in world.up)
    assert all(member.quorum.leader_address() == (leader.name, 9093) for member in world.up)
    assert f"leads {leader.quorum.epoch}" in leader.told
    assert all("caught up" in member.told for member in world.up)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_acknowledged_outlives_its_leader(seed: int) -> None:
    world = World(seed).start()
    names: list[str] = []
    for _ in range(3):
        leader = world.leader()
        names += [world.write(leader), world.write(leader)]
        leader.kill()
        names.append(world.write(world.leader()))
        leader.start()
        assert world.settle() == sorted(names)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_write_that_no_majority_has_is_not_acknowledged_and_goes(seed: int) -> None:
    world = World(seed).start()
    old = world.leader()
    kept = world.write(old)
    world.settle()
    world.network.split([old.name], [member.name for member in world.up if member is not old])
    answers: list[BaseException | None] = []
    world.ask(old, answers.append, "lost")
    others = [member for member in world.up if member is not old]
    assert world.loop.run_while(lambda: not any(member.quorum.is_leader for member in others), within_s=30)
    new = next(member for member in others if member.quorum.is_leader)
    more = world.write(new)
    # Without a majority it stops by itself, long before it hears of the other one.
    assert world.loop.run_while(lambda: not answers, within_s=30)
    assert is_refused(answers[0])
    assert "leads no more" in old.told
    # It was flushed here, and the recovery point says so; then it is cut off.
    old.write_checkpoints()
    world.network.heal()
    assert world.settle() == sorted([kept, more])
    old.kill()
    old.start()
    assert world.settle() == sorted([kept, more])


def test_who_does_not_lead_takes_no_writes() -> None:
    world = World(1).start()
    leader = world.leader()
    follower = next(member for member in world.up if member is not leader)
    with pytest.raises(RequestError, match="not the active controller"):
        world.write(follower)


@pytest.mark.parametrize("seed", SEEDS)
def test_nobody_is_told_before_a_majority_has_it_on_disk(seed: int) -> None:
    world = World(seed).start()
    leader = world.leader()
    world.settle()
    told: list[int] = []

    def holding(end_offset: int) -> Callable[[BaseException | None], None]:
        def on_done(error: BaseException | None) -> None:
            assert error is None
            told.append(sum(member.quorum.log.flushed_offset >= end_offset for member in world.up))

        return on_done

    for _ in range(100):
        world.ask(leader, holding(leader.quorum.next_offset + 1))
        world.run(0.0003)
    world.run(2)
    assert len(told) == 100
    assert min(told) >= 2


def vote_for(candidate_id: int, epoch: int) -> VoteRequest:
    partition = PartitionData(
        replica_id=candidate_id, replica_epoch=epoch, last_offset_epoch=epoch - 1, last_offset=1_000_000
    )
    return VoteRequest(topics=[TopicData(topic_name="__cluster_metadata", partitions=[partition])])


def test_a_vote_survives_a_power_cut() -> None:
    world = World(4)
    voter = world.members[1]
    voter.start()

    def asks(candidate_id: int, epoch: int) -> bool:
        answer = voter.quorum.on_request(vote_for(candidate_id, epoch))
        assert isinstance(answer, VoteResponse)
        return answer.topics[0].partitions[0].vote_granted

    assert asks(2, 50)
    voter.power_cut()
    voter.start()
    assert not asks(3, 50)
    assert asks(2, 50), "the answer may have been lost"
    assert asks(3, 51)


@pytest.mark.parametrize("seed", range(6))
def test_a_quorum_of_one_leads_at_once_and_keeps_what_it_wrote(seed: int) -> None:
    world = World(seed, voters=1)
    alone = world.members[1]
    for number in range(3):
        alone.start()
        assert alone.quorum.is_leader
        assert alone.topics == [f"topic-{each}" for each in range(number)]
        alone.quorum.write_now([TopicRecord(name=f"topic-{number}", topic_id=UUID(int=number + 1))])
        alone.power_cut()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_crash_between_the_snapshot_and_the_end_of_the_old_log(seed: int) -> None:
    world = World(seed).start()
    leader = world.leader()
    behind = next(member for member in world.up if member is not leader)
    world.write(leader)
    world.settle()
    behind.kill()
    for _ in range(5):
        world.write(leader)
    leader.quorum.make_snapshot()
    world.run(1)
    snapshot_id = leader.quorum.snapshots.latest
    assert snapshot_id is not None
    path = leader.quorum.snapshots.path(snapshot_id)
    behind.disk.write_whole(path, leader.disk.read_whole(path), sync=True)
    behind.start()
    assert behind.quorum.log.log_start_offset == snapshot_id.end_offset
    assert len(behind.topics) == 6
    world.write(leader)
    assert len(world.settle()) == 7


@pytest.mark.parametrize("seed", SEEDS)
def test_a_power_cut_of_all_takes_nothing_back_that_was_acknowledged(seed: int) -> None:
    world = World(seed).start()
    names = [world.write(world.leader()) for _ in range(4)]
    for _ in range(3):
        for member in world.up:
            member.power_cut()
        world.start()
        names.append(world.write(world.leader()))
        assert set(names) <= set(world.settle())


@pytest.mark.parametrize("seed", SEEDS)
def test_who_is_behind_the_log_takes_the_snapshot(seed: int) -> None:
    world = World(seed, snapshot_after_bytes=1500, retention_bytes=1500, segment_bytes=1000).start()
    leader = world.leader()
    behind = next(member for member in world.up if member is not leader)
    world.write(leader)
    world.settle()
    behind.kill()
    for _ in range(60):
        world.write(leader)
        world.run(0.01)
    world.run(61)
    assert leader.quorum.log.log_start_offset > behind.lives
    assert leader.quorum.snapshots.earliest is not None
    assert leader.quorum.log.log_start_offset == leader.quorum.snapshots.earliest.end_offset
    behind.start()
    assert len(world.settle()) == 61
    assert "image replaced" in behind.told
    world.write(world.leader())
    # What was taken stands on its own: without the others nothing is known that was not known before.
    for member in world.up:
        member.power_cut()
    world.start()
    world.write(world.leader())
    assert len(world.settle()) == 63


def test_snapshots_are_made_by_time_and_old_ones_go_with_the_log_before_them() -> None:
    world = World(10, snapshot_interval_ms=2000, retention_ms=10_000, retention_bytes=-1).start()
    leader = world.leader()
    names = [world.write(leader)]
    world.run(9)
    assert all(len(member.quorum.snapshots.ids) >= 3 for member in world.up)
    assert all(member.quorum.log.log_start_offset == 0 for member in world.up)
    world.run(120)
    for member in world.up:
        ids = member.quorum.snapshots.ids
        assert 3 <= len(ids) <= 8
        assert 0 < member.quorum.log.log_start_offset == ids[0].end_offset
        member.power_cut()
    world.start()
    names.append(world.write(world.leader()))
    assert world.settle() == sorted(names)


def test_an_idle_leader_shows_that_the_log_moves() -> None:
    world = World(12, idle_interval_ms=500).start()
    leader = world.leader()
    world.settle()
    before = leader.quorum.next_offset
    world.run(5)
    assert 8 <= leader.quorum.next_offset - before <= 11
    quiet = World(12, idle_interval_ms=0).start()
    before = quiet.leader().quorum.next_offset
    quiet.run(5)
    assert quiet.leader().quorum.next_offset == before


@pytest.mark.lengthy("large inputs")
def test_a_full_disk_takes_the_snapshot_when_it_has_room_again(caplog: pytest.LogCaptureFixture) -> None:
    world = World(8, snapshot_after_bytes=1500, retention_bytes=1500, segment_bytes=1000).start()
    leader = world.leader()
    behind = next(member for member in world.up if member is not leader)
    world.settle()
    behind.kill()
    for _ in range(60):
        world.write(leader)
        world.run(0.01)
    world.run(61)
    behind.start()
    behind.disk.capacity_bytes = 1000
    world.run(20)
    assert behind.topics == []
    assert behind.quorum.log.failure is None
    behind.disk.capacity_bytes = 1 << 30
    assert len(world.settle()) == 60
    assert not [record for record in caplog.records if record.exc_info]


def test_a_follower_with_a_full_disk_goes_on_when_it_has_room_again() -> None:
    world = World(9).start()
    leader = world.leader()
    follower = next(member for member in world.up if member is not leader)
    world.settle()
    follower.disk.capacity_bytes = 0
    for _ in range(5):
        world.write(leader)
    world.run(5)
    assert len(follower.topics) < 5
    assert follower.quorum.log.failure is None
    follower.disk.capacity_bytes = 1 << 30
    assert len(world.settle()) == 5


@pytest.mark.parametrize("fault", ["full", "stalled"])
def test_a_follower_whose_disk_takes_nothing_knows_that_it_is_late(fault: str) -> None:
    """Heartbeats need no disk: nobody else would tell it that its image is an old one."""
    world = World(9).start()
    leader = world.leader()
    follower = next(member for member in world.up if member is not leader)
    world.settle()
    if fault == "full":
        follower.disk.capacity_bytes = 0
    else:
        follower.host.stalled_until = world.loop.now + 4 * LATE_S
    world.write(leader)
    world.run(0.1)
    assert not follower.quorum.is_late, "a disk may be busy for a moment"
    world.run(2 * LATE_S)
    assert (follower.quorum.is_late, leader.quorum.is_late) == (True, False)
    follower.disk.capacity_bytes = 1 << 30
    world.settle()
    assert not follower.quorum.is_late


@pytest.mark.lengthy("large inputs")
def test_a_follower_that_is_told_something_all_the_time_is_not_late() -> None:
    """Something is always missing for a moment, and never the same for long."""
    world = World(9).start()
    leader = world.leader()
    world.settle()
    end = world.loop.now + 4 * LATE_S
    while world.loop.now < end:
        world.write(leader)
        world.run(0.001)
        assert not any(member.quorum.is_late for member in world.up)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_vote_leaves_a_full_disk_and_votes_go_on_when_it_has_room_again(seed: int) -> None:
    world = World(seed).start()
    leader = world.leader()
    names = [world.write(leader)]
    world.settle()
    others = [member for member in world.up if member is not leader]
    for member in others:
        member.disk.capacity_bytes = 0
    leader.kill()
    world.run(20)
    assert not world.leaders()
    assert all(member.quorum.log.failure is None for member in others)
    for member in others:
        member.disk.capacity_bytes = 1 << 30
    names.append(world.write(world.leader()))
    leader.start()
    assert world.settle() == sorted(names)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_observer_follows_and_never_leads(seed: int) -> None:
    world = World(seed, observers=1).start()
    observer = world.members[4]
    names = [world.write(world.leader()) for _ in range(3)]
    assert world.settle() == names
    world.leader().kill()
    names.append(world.write(world.leader()))
    assert world.settle() == names
    assert not any(said.startswith("leads") for said in observer.told)
    assert observer.quorum.raft.role == "follower"


def test_an_observer_knows_no_voters_and_learns_them_from_the_log() -> None:
    world = World(3, observers=1)
    world.format()
    observer = world.members[4]
    observer.disk.wipe()
    observer.disk.make_directory(DATA)
    world.start()
    world.write(world.leader())
    world.settle()
    assert observer.quorum.raft.voters == world.voters


def test_a_leader_that_resigns_is_followed_at_once() -> None:
    world = World(2).start()
    old = world.leader()
    world.settle()
    epoch = old.quorum.epoch
    old.quorum.resign()
    assert not old.quorum.is_leader
    began = world.loop.now
    assert world.leader(within_s=5).quorum.epoch > epoch
    assert world.loop.now - began < 0.5, "nobody waits for a timeout"


def test_voters_of_the_bootstrap_snapshot_stand_in_the_log() -> None:
    world = World(5)
    world.format()
    world.start()
    leader = world.leader()
    assert [record.name for record in leader.quorum.bootstrap_records] == ["metadata.version"]
    world.write(leader)
    world.settle()
    leader.quorum.make_snapshot()
    world.run(1)
    (snapshot_id,) = leader.quorum.snapshots.ids
    for member in world.up:
        assert member.quorum.quorum_log.voters_to_write is None
        assert member.quorum.quorum_log.kraft_version == 1
        member.kill()
    world.start()
    world.leader()
    assert leader.quorum.raft.voters == world.voters
    assert leader.quorum.snapshots.latest == snapshot_id


def test_a_directory_of_another_cluster_ends_the_node_that_has_it() -> None:
    world = World(7)
    stranger = world.members[2]
    stranger.cluster_id = "another-cluster"
    world.start()
    leader = world.leader()
    world.write(leader)
    world.run(5)
    assert any("belongs to cluster another-cluster" in said for said in stranger.told)
    others = [member for member in world.up if member is not stranger]
    assert not any("belongs to cluster" in said for member in others for said in member.told)


def test_a_disk_that_refuses_the_vote_sends_no_vote() -> None:
    world = World(11).start()
    leader = world.leader()
    world.settle()
    voters = [member for member in world.up if member is not leader]
    for member in voters:
        member.disk.fail_syncs = 1
    leader.kill()
    world.run(10)
    assert not world.leaders()
    assert any(member.quorum.log.failure is not None for member in voters)


def _noting(acknowledged: list[str], asked: list[str]) -> Callable[[BaseException | None], None]:
    def on_done(error: BaseException | None) -> None:
        if error is None:
            acknowledged.extend(asked)

    return on_done


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.lengthy("random walks under faults")) for seed in range(1, 8))]
)
def test_under_faults_nothing_acknowledged_is_lost_and_all_agree(seed: int) -> None:
    world = World(seed, observers=1, snapshot_after_bytes=3000, retention_bytes=3000, segment_bytes=2000).start()
    rng = random.Random(seed)
    acknowledged: list[str] = []

    def check(_: object) -> None:
        leading = [(member.quorum.epoch, member.node_id) for member in world.leaders()]
        assert len({epoch for epoch, _ in leading}) == len(leading), f"two lead one epoch: {world.describe()}"

    world.loop.after_event = check
    for _ in range(40):
        for leader in world.leaders():
            asked: list[str] = []
            asked.append(world.ask(leader, _noting(acknowledged, asked)))
        fault = rng.randrange(6)
        victim = rng.choice(list(world.members.values()))
        if victim.metadata is None:
            victim.start()
        elif fault == 0:
            victim.kill()
        elif fault == 1:
            victim.power_cut()
        elif fault == 2:
            world.network.split([victim.name], [each.name for each in world.members.values() if each is not victim])
        elif fault == 3:
            world.network.heal()
        world.run(rng.choice([0.05, 0.5, 3.0]))
    world.network.heal()
    for member in world.members.values():
        if member.metadata is None:
            member.start()
    acknowledged.append(world.write(world.leader()))
    topics = world.settle()
    assert len(acknowledged) > 5
    assert set(acknowledged) <= set(topics), f"seed {seed}"

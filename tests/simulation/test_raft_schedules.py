"""One story for every trap of Raft that is known: faults at the one moment where they hurt.

Random faults do not find all of these in thousands of hours. Every story runs in the world of `raft_simulation_world`,
so the invariants of its oracle are checked after each event, besides what the story itself expects.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.simulator.raft.node import SimulatedReplica
from tests.simulator.raft.world import RaftWorld

from strandline.quorum.raft.messages import vote_request
from strandline.quorum.raft.voters import ReplicaKey


class Story(RaftWorld):
    """A world with the words of a story."""

    entries_at_once = 64

    def fetch_entries(self) -> int:
        return self.entries_at_once

    def until(self, condition: Callable[[], bool], for_s: float = 10.0) -> None:
        assert self.run_while(lambda: not condition(), within_s=for_s), "it never came to that"

    def after(self, seconds: float) -> None:
        self.run_until(self.now + seconds)

    def lead(self, replica: SimulatedReplica) -> None:
        """Let it stand until it leads, in an epoch that is not used yet."""
        for _ in range(4):
            self.stand(replica)
            if self.run_while(lambda: not replica.raft.is_leader, within_s=0.1):
                return
        raise AssertionError(f"{replica} cannot win")

    def write(self, replica: SimulatedReplica, *values: int) -> None:
        replica.happen(replica.append, list(values))

    def values(self, replica: SimulatedReplica) -> list[int]:
        """What clients wrote; records of the quorum's own are negative."""
        return [entry.value for entry in replica.log.entries if entry.value >= 0]

    @property
    def committed(self) -> list[int]:
        return [entry.value for entry in self.oracle.committed if entry.value >= 0]

    def all_agree(self, for_s: float = 30.0) -> None:
        self.heal()
        self.start_all()
        self.until(lambda: self.leader is not None, for_s)
        self.after(5)
        ends = {replica.raft.high_watermark for replica in self.replicas}
        assert ends == {len(self.oracle.committed)}
        for replica in self.replicas:
            self.oracle.check_whole(replica)


def begin(voters: int, observers: int = 0, *, leader: int = 0) -> tuple[Story, list[SimulatedReplica]]:
    world = Story(7, voters=voters, observers=observers)
    world.start_all()
    world.lead(world.replicas[leader])
    world.until(lambda: world.leader is world.replicas[leader])
    world.after(0.2)
    return world, world.replicas


def test_entries_of_an_older_epoch_are_not_committed_by_counting() -> None:
    """Figure 8 of the Raft paper."""
    world, (one, two, three, _, five) = begin(5)
    # (a) One leads and reaches only two with its entries.
    world.isolate([0, 1])
    world.write(one, 10, 11, 12)
    world.after(0.1)
    end_of_old = one.log.end_offset
    assert world.values(two) == [10, 11, 12]
    one.kill()
    # (b) Five leads with the votes of three and four, and reaches no other replica.
    world.lead(five)
    world.isolate([4])
    world.write(five, 20)
    world.after(0.1)
    five.kill()
    # (c) One is back, leads, and its old entries reach three, but not yet the record that begins its new epoch.
    world.heal()
    world.isolate([3, 4])
    world.entries_at_once = 1
    world.restart(one)
    world.lead(one)
    world.until(lambda: three.log.end_offset == end_of_old and three.raft.leader_id == 0)
    world.cut[0, 2] = True
    world.until(lambda: one.raft._state.role.voters[2].end_offset >= end_of_old)  # type: ignore[union-attr]
    assert world.values(three) == [10, 11, 12]
    # (d) It dies again, and five takes its place: its last entry is newer than any of theirs.
    one.kill()
    world.heal()
    world.restart(five)
    world.lead(five)
    world.after(1)
    assert world.committed == [20]
    world.all_agree()
    assert world.committed == [20]


def test_a_late_answer_does_not_cut_a_log_that_has_moved_on() -> None:
    world, (_, two, three) = begin(3)
    # Two writes what no other replica gets, so its log has to be cut when three leads.
    world.isolate([0])
    world.lead(two)
    world.isolate([1])
    world.write(two, 20, 21)
    world.after(0.1)
    world.heal()
    world.isolate([1])
    world.lead(three)
    world.until(lambda: world.leader is three)
    # The answer that says where to cut is on its way for longer than two waits for it.
    world.heal()
    world.until(lambda: two.raft.leader_id == 2)
    assert world.values(two) == [20, 21]
    world.delay_s_by_link[2, 1] = 6.0
    world.until(lambda: two.raft.role == "prospective")
    world.delay_s_by_link.clear()
    world.write(three, 30, 31, 32)
    world.until(lambda: two.raft.high_watermark == three.log.end_offset)
    assert world.values(two) == [30, 31, 32]
    world.after(10)  # Now the late ones come.
    assert world.values(two) == [30, 31, 32]
    world.all_agree()


def ask(world: Story, voter: SimulatedReplica, candidate: SimulatedReplica, epoch: int) -> list[bool]:
    """Bring `voter` a request for its vote; the answers that left it."""
    known = world.voters.get(voter.node_id)
    assert known is not None
    last = (candidate.log.last_epoch, candidate.log.end_offset)
    request = vote_request("simulated", known, epoch, candidate.key, last, pre_vote=False)
    answers: list[bool] = []
    voter.happen(
        voter.receive,
        request,
        lambda response: answers.append(response.topics[0].partitions[0].vote_granted),
    )
    return answers


def test_a_vote_is_remembered_by_a_restart() -> None:
    world, (one, two, three) = begin(3)
    epoch = one.raft.epoch + 1
    assert ask(world, three, one, epoch) == [True]
    three.kill()
    world.restart(three)
    assert ask(world, three, two, epoch) == [False]
    assert ask(world, three, one, epoch) == [True], "the same candidate may ask again: its answer was lost"


def test_a_vote_that_was_not_kept_has_not_left_either() -> None:
    world, (one, two, three) = begin(3)
    epoch = one.raft.epoch + 1
    three.dies_in = 0
    assert ask(world, three, one, epoch) == []
    world.restart(three)
    assert ask(world, three, two, epoch) == [True]


def test_a_voter_gives_no_vote_to_a_log_that_is_behind() -> None:
    world, (one, two, three) = begin(3)
    world.isolate([2])
    world.write(one, 10)
    world.after(0.1)
    assert world.committed == [10]
    world.heal()
    assert ask(world, two, three, one.raft.epoch + 1) == [False]
    assert ask(world, two, one, one.raft.epoch + 1) == [True], "the epoch is spent, the vote is not"


def test_a_leader_that_hears_nobody_steps_down_and_acknowledges_nothing() -> None:
    world, (one, two, three) = begin(3)
    # What it says reaches the others, what they say does not reach it.
    for other in (1, 2):
        world.cut[other, 0] = True
    world.write(one, 10)
    world.until(lambda: not one.raft.is_leader, for_s=world.timing.check_quorum_s + 0.1)
    assert world.acknowledged == 0
    world.until(lambda: world.leader in (two, three), for_s=5)
    world.all_agree()


def test_a_leader_in_a_minority_steps_down_while_the_others_go_on() -> None:
    world, (one, _, three, four, five) = begin(5)
    world.isolate([0, 1])
    world.write(one, 10)
    world.until(lambda: not one.raft.is_leader, for_s=world.timing.check_quorum_s + 0.1)
    world.until(lambda: world.leader in (three, four, five), for_s=5)
    leader = world.leader
    assert leader is not None
    world.write(leader, 20)
    world.after(1)
    assert world.committed == [20]
    world.all_agree()
    assert 10 not in world.committed


def test_a_voter_that_was_away_disturbs_nobody_when_it_is_back() -> None:
    world, (one, _, three) = begin(3)
    epoch = one.raft.epoch
    world.isolate([2])
    world.after(20)
    assert three.raft.epoch == epoch, "it asked whether it would win, and raised nothing"
    world.heal()
    world.after(5)
    assert world.leader is one
    assert {replica.raft.epoch for replica in world.replicas} == {epoch}


def test_a_voter_that_hears_others_but_not_the_leader_does_not_unseat_it() -> None:
    world, (one, two, _) = begin(3)
    epoch = one.raft.epoch
    world.cut[0, 2] = True
    world.after(20)
    assert world.leader is one
    assert two.raft.epoch == epoch


def test_a_voter_with_an_empty_disk_is_no_voter() -> None:
    world, (one, two, three) = begin(3)
    world.isolate([2])
    world.write(one, 10)
    world.after(0.1)
    assert world.committed == [10]
    # Of the two that have it, one is away and the other has lost its disk: none may lead now.
    one.kill()
    two.kill()
    world.oracle.wiped.add(two.key)
    two.new_disk()
    world.oracle.disks[two.key] = two.kept
    world.heal()
    world.restart(two)
    world.stand(three)
    world.after(15)
    assert world.leader is None
    # The one that has it is back. The new disk is filled, and belongs to an observer.
    world.restart(one)
    world.until(lambda: world.leader is one, for_s=30)
    world.after(5)
    assert world.values(two) == world.values(three) == [10]
    assert not two.raft.is_voter


def test_a_follower_below_the_log_start_takes_the_snapshot() -> None:
    world, (one, two, three, four) = begin(3, observers=1)
    world.isolate([2, 3])
    for value in range(200):
        world.write(one, value)
    world.after(0.5)
    for replica in (one, two):
        replica.happen(lambda replica=replica: replica.take_snapshot(clean=True))
    world.write(one, 1000)
    assert one.log.start_offset > 200
    world.heal()
    world.until(lambda: three.raft.high_watermark == four.raft.high_watermark == one.log.end_offset)
    assert world.installed == 2
    assert three.log.start_offset == one.log.start_offset
    assert world.values(three) == [1000]
    # It can lead from there.
    one.kill()
    world.lead(three)
    world.write(three, 2000)
    world.after(1)
    assert world.committed[-2:] == [1000, 2000]
    world.all_agree()


def test_a_snapshot_is_begun_anew_when_its_leader_dies_on_the_way() -> None:
    world, (one, two, three) = begin(3)
    world.isolate([2])
    for value in range(100):
        world.write(one, value)
    world.after(0.5)
    for replica in (one, two):
        replica.happen(lambda replica=replica: replica.take_snapshot(clean=True))
    world.heal()
    world.until(lambda: three.raft._state.fetching.snapshot is not None)
    world.until(lambda: three.raft._state.fetching.snapshot.position > 0)  # type: ignore[union-attr]
    one.kill()
    world.lead(two)
    world.until(lambda: three.raft.high_watermark >= 100)
    assert world.installed == 1
    world.all_agree()


def test_a_leader_that_leaves_hands_over_to_the_most_caught_up() -> None:
    world, (one, two, three) = begin(3)
    world.delay_s_by_link[0, 1] = 0.4
    for value in range(20):
        world.write(one, value)
        world.after(0.01)
    world.until(lambda: three.log.end_offset > two.log.end_offset)
    one.happen(lambda: one.raft.resign(world.now))
    world.until(lambda: world.leader is three, for_s=1)
    world.all_agree()


def test_observers_know_only_addresses_and_find_every_leader() -> None:
    world, (one, two, three, four, five) = begin(3, observers=2)
    assert not four.raft.voters
    world.write(one, 10)
    world.after(1)
    assert world.values(four) == world.values(five) == [10]
    one.kill()
    world.until(lambda: world.leader in (two, three))
    leader = world.leader
    assert leader is not None
    world.write(leader, 20)
    world.until(lambda: world.values(four) == world.values(five) == [10, 20])
    assert four.raft.leader_id == leader.node_id
    assert {facts.key for facts in leader.raft.describe(world.now) if not facts.is_voter} == {four.key, five.key}


def test_a_power_cut_of_all_loses_nothing_that_was_acknowledged() -> None:
    world, replicas = begin(3)
    for value in range(50):
        world.write(replicas[0], value)
        world.after(0.003)
    assert world.acknowledged > 0
    acknowledged = world.acknowledged
    for replica in replicas:
        replica.kill()
    world.all_agree()
    assert world.committed[:acknowledged] == list(range(acknowledged))


def test_the_leader_says_who_is_how_far() -> None:
    world, (one, two, _) = begin(3)
    world.isolate([2])
    silent_since = world.now
    world.write(one, 10, 11)
    world.after(1)
    facts = {facts.key.node_id: facts for facts in one.raft.describe(world.now)}
    assert facts[0].log_end_offset == facts[1].log_end_offset == one.log.end_offset
    assert facts[2].log_end_offset == one.log.end_offset - 2
    assert facts[2].last_fetch_at is not None
    assert facts[2].last_fetch_at <= silent_since
    assert facts[1].last_caught_up_at is not None
    assert facts[1].last_caught_up_at > silent_since
    assert two.raft.describe(world.now) == []


def test_elections_end_soon_after_a_leader_died() -> None:
    """Over many seeds: a fetch timeout until the silence is noticed, and seldom a second round."""
    slow = 0
    for seed in range(40):
        world = Story(seed, voters=3)
        world.start_all()
        world.until(lambda world=world: world.leader is not None)  # type: ignore[misc]
        world.after(3 + seed / 20)
        leader = world.leader
        assert leader is not None
        leader.kill()
        began = world.now
        world.until(lambda world=world: world.leader is not None)  # type: ignore[misc]
        slow += world.now - began > 2.6
    assert slow <= 3, f"{slow} of 40 elections took more than 2.6 simulated seconds"


def test_a_replica_key_is_an_id_and_a_directory() -> None:
    world, (one, *_) = begin(3)
    assert world.voters.holds(one.key)
    assert not world.voters.holds(ReplicaKey(one.node_id))

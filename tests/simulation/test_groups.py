"""Groups in the simulation: one story for each way in which a member or a coordinator may be too late.

The trap is set on purpose. The log of `__consumer_offsets`, the checker and the end of every story judge: no zombie
moved a position, nothing was skipped, and the group settled.
"""

from __future__ import annotations

import dataclasses

import pytest
from tests.simulation.stage import ORDERS, Play, stage
from tests.simulator.clients.classic_member import SimClassicMember
from tests.simulator.clients.consumer_member import SimConsumerMember
from tests.simulator.clients.group import CLASSIC, CONSUMER, GroupOptions, SimGroup
from tests.simulator.clients.member import Manners, SimMember
from tests.simulator.options import GROUP_SETTINGS
from tests.simulator.truth.group_truth import OFFSETS_TOPIC, LoggedClassicGroup, LoggedConsumerGroup
from tests.simulator.world.cluster import SimNode
from tests.simulator.world.disk import CAPACITY_BYTES

from strandline.broker.kraft.metadata_lateness import LATE_S
from strandline.codec.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from strandline.codec.messages.alter_partition_reassignments_response import AlterPartitionReassignmentsResponse
from strandline.codec.messages.elect_leaders_request import ElectLeadersRequest
from strandline.codec.messages.elect_leaders_response import ElectLeadersResponse
from strandline.codec.messages.offset_fetch_request import OffsetFetchRequest
from strandline.codec.messages.offset_fetch_response import OffsetFetchResponse
from strandline.errors import ErrorCode

SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))]
PROTOCOLS = [CLASSIC, CONSUMER]
STUBBORN = Manners(late_share=1.0, zombie_share=1.0, zombie_s=8.0)
SOUND = Manners(late_share=0.0, zombie_share=0.0)
FOUR = dataclasses.replace(ORDERS, partitions=4)
QUICK = {**GROUP_SETTINGS, "group.initial.rebalance.delay.ms": "500", "broker.session.timeout.ms": "3000"}


def group_of(play: Play, protocol: str, *, members: int = 2, statics: int = 0, manners: Manners = SOUND) -> SimGroup:
    """A group whose members come and go as the story says, and not by chance; all of them are there."""
    options = GroupOptions(
        f"{protocol} readers",
        ("orders",),
        (protocol,),
        members=members,
        statics=statics,
        churn_s=0.0,
        manners=manners,
    )
    group = play.run.group(options)
    play.run.groups.append(group)
    group.start()
    settled(play, group)
    return group


def settled(play: Play, group: SimGroup, within_s: float = 60.0) -> None:
    """Until every partition has one owner among the members that there are."""

    def is_shared_out() -> bool:
        owned = [each for member in group.members for each in member.owned]
        return len(owned) == len(set(owned)) == len(group.ends()) and all(member.owned for member in group.members)

    play.until(is_shared_out, "every partition has one owner, and every member owns one", within_s)


def turns(seed: int) -> range:
    """How often a story is told in one run: once by default, and more often with the seeds that take their time."""
    return range(1 if seed == 0 else 3)


def committed(group: SimGroup) -> int:
    return sum(group.position(each) for each in group.ends())


def wait_commits(play: Play, group: SimGroup, more: int = 20) -> None:
    wanted = committed(group) + more
    play.until(lambda: committed(group) >= wanted, f"the group has moved on by {more} records")


def coordinator(play: Play) -> SimNode:
    return play.leader(OFFSETS_TOPIC)


# Coming and going, without any fault


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_come_and_go_and_nothing_is_skipped(protocol: str) -> None:
    with stage(3, FOUR, settings=QUICK) as play:
        play.work()
        group = group_of(play, protocol, members=1)
        added = group.add()
        settled(play, group)
        wait_commits(play, group)
        group.add()
        settled(play, group)
        added.leave()
        play.until(lambda: added not in group.members, "one has left")
        settled(play, group)
        wait_commits(play, group)
        group.kill(group.members[0])
        settled(play, group)
        wait_commits(play, group)


# KIP-447, KIP-848: a member that was fenced goes on


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_that_hung_past_its_session_moves_nothing(protocol: str, seed: int) -> None:
    with stage(seed, FOUR, settings=QUICK) as play:
        play.work()
        group = group_of(play, protocol, manners=STUBBORN)
        zombie, other = group.members
        for _ in turns(seed):
            wait_commits(play, group)
            play.rest(play.random.uniform(0.0, 1.0))
            zombie.runtime.actor.pause()
            play.until(lambda other=other: len(other.owned) == len(group.ends()), "the other owns all")
            wait_commits(play, group)
            refused = zombie.refused
            zombie.runtime.actor.resume()
            play.until(
                lambda zombie=zombie, refused=refused: zombie.refused > refused, "the zombie was told that it is none"
            )
            settled(play, group)
            zombie, other = other, zombie


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_commit_that_comes_a_generation_late_moves_nothing(protocol: str, seed: int) -> None:
    with stage(seed, FOUR, settings=QUICK) as play:
        play.work()
        group = group_of(play, protocol, members=2, manners=dataclasses.replace(STUBBORN, zombie_share=0.0))
        for _ in range(2):
            wait_commits(play, group)
            added = group.add()
            settled(play, group)
            wait_commits(play, group)
            added.leave()
            play.until(lambda added=added: added not in group.members, "it has left")
            settled(play, group)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_static_member_whose_place_was_taken_moves_nothing(seed: int) -> None:
    """It still knows the generation, and its successor owns what it owned."""
    with stage(seed, FOUR, settings=QUICK) as play:
        play.work()
        group = group_of(play, CLASSIC, members=2, statics=2, manners=STUBBORN)
        for _ in turns(seed):
            wait_commits(play, group)
            old = play.random.choice(group.members)
            new = group.add(old.instance_id)
            play.until(lambda new=new: new.owned, "the new one is in its place")
            play.until(lambda old=old: old not in group.members, "the old one was told")
            settled(play, group)
            wait_commits(play, group)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_static_member_that_takes_its_place_back_moves_nothing_with_what_it_sent_before(seed: int) -> None:
    """One of the other protocol had it in between. A consumer comes back under the member id that it always had."""
    with stage(seed, FOUR, settings=QUICK) as play:
        play.work()
        group = group_of(play, CONSUMER, members=1, statics=1, manners=STUBBORN)
        for _ in turns(seed):
            wait_commits(play, group)
            (old,) = group.members
            new = group.add(old.instance_id, CLASSIC if isinstance(old, SimConsumerMember) else CONSUMER)
            play.until(lambda new=new: new.owned, "the new one is in its place")
            # Either may win it back, again and again, until the other is told that it is out.
            play.until(lambda: len(group.members) == 1, "one of them has given up", within_s=600.0)
            settled(play, group)
        wait_commits(play, group)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_static_member_keeps_its_place_for_a_while(seed: int) -> None:
    """Under the consumer protocol: gone without a word or with one, what it owned is not given to others at once."""
    with stage(seed, FOUR, settings=QUICK) as play:
        play.work()
        group = group_of(play, CONSUMER, members=2, statics=2)
        wait_commits(play, group)
        old = group.members[0]
        owned = set(old.owned)
        says_so = play.random.random() < 0.5
        if says_so:
            old.leave()
            play.until(lambda: old not in group.members, "it has left for a while")
        else:
            group.kill(old)
        new = group.add(old.instance_id)
        settled(play, group)
        # The coordinator takes a dead one for alive until its session ends. Then the other has all.
        assert set(new.owned) == owned or not says_so
        wait_commits(play, group)


# KIP-848: a partition is handed over when it was released, not before


@pytest.mark.parametrize("seed", SEEDS)
def test_a_partition_waits_until_its_owner_has_let_go(seed: int) -> None:
    with stage(seed, FOUR, settings=QUICK) as play:
        play.work()
        group = group_of(play, CONSUMER, members=1)
        wait_commits(play, group)
        (owner,) = group.members
        owner.runtime.actor.pause()
        new = group.add()
        play.rest(play.random.uniform(2.0, 4.0))
        assert not new.owned, "the owner's session is not over"
        if play.random.random() < 0.5:
            owner.runtime.actor.resume()
        else:
            play.until(lambda: len(new.owned) == len(group.ends()), "the session of the owner is over")
            owner.runtime.actor.resume()
        settled(play, group)
        wait_commits(play, group)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_group_is_loaded_while_a_partition_is_being_given_up(seed: int) -> None:
    """Its owner was told to let go, hangs, and the coordinator dies: the next one must wait for the owner, too."""
    with stage(seed, FOUR, settings=QUICK) as play:
        play.work()
        group = group_of(play, CONSUMER, members=1)
        wait_commits(play, group)
        (owner,) = group.members
        new = group.add()
        play.until(lambda: gives_up(group, owner), "the owner is to let go of something")
        owner.runtime.actor.pause()
        old = coordinator(play)
        old.kill()
        play.until(lambda: coordinator(play) is not old, "another coordinates")
        play.rest(play.random.uniform(2.0, 4.0))
        assert not new.owned, "the owner's session is not over"
        owner.runtime.actor.resume()
        old.start()
        settled(play, group)
        wait_commits(play, group)


def gives_up(group: SimGroup, member: SimMember) -> bool:
    """Whether the log says that there is something which the member has yet to give up."""
    logged = group.truth.groups.get(group.options.name)
    found = logged.members.get(member.member_id) if isinstance(logged, LoggedConsumerGroup) else None
    return found is not None and len(found.held) > len(found.told[found.epoch][-1])


@pytest.mark.slow
def test_who_never_lets_go_is_fenced_when_its_time_is_over() -> None:
    """It says that it lives, and goes on to own what it was told to give up."""
    with stage(4, FOUR, settings=QUICK) as play:
        play.work()
        group = group_of(play, CONSUMER, members=1)
        wait_commits(play, group)
        (owner,) = group.members
        assert isinstance(owner, SimConsumerMember)
        owner._reconcile = lambda: None  # type: ignore[method-assign]
        new = group.add()
        play.rest(group.options.manners.rebalance_timeout_s / 2)
        assert not new.owned
        play.until(lambda: new.owned, "it was fenced")
        group.kill(owner)
        settled(play, group)
        wait_commits(play, group)


# From one protocol to the other, and back, while everything goes on


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_live_group_moves_between_the_protocols(seed: int) -> None:
    with stage(seed, FOUR, settings=QUICK) as play:
        play.work()
        group = group_of(play, CLASSIC, members=2, manners=dataclasses.replace(STUBBORN, zombie_share=0.3))
        for protocol in (CONSUMER, CLASSIC) * len(turns(seed)):
            before = list(group.members)
            for member in before:
                wait_commits(play, group)
                group.add(protocol=protocol)
                if play.random.random() < 0.5:
                    play.rest(play.random.uniform(0.0, 3.0))
                else:
                    settled(play, group)
                play.random.choice([group.kill, lambda member: member.leave()])(member)
                play.until(lambda member=member: member not in group.members, "one has gone")
            settled(play, group)
        assert isinstance(group.truth.groups[group.options.name], LoggedClassicGroup)


# Redpanda #6018: what only the memory of a coordinator knew


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_coordinator_that_is_cut_off_tells_nothing_that_its_successor_does_not_know(protocol: str, seed: int) -> None:
    """Its members still reach it. What they commit, and who joins, cannot be committed and must not be acknowledged."""
    with stage(seed, FOUR, settings=QUICK) as play:
        play.work()
        group = group_of(play, protocol)
        for _ in turns(seed):
            wait_commits(play, group)
            old = coordinator(play)
            epoch = play.image_of(OFFSETS_TOPIC).leader_epoch
            for other in play.cluster.nodes.values():
                if other is not old:
                    play.network.block(old.name, other.name)
                    play.network.block(other.name, old.name)
            play.rest(play.random.uniform(0.0, 0.5))
            added = group.add()
            play.until(lambda epoch=epoch: play.image_of(OFFSETS_TOPIC).leader_epoch > epoch, "another coordinates")
            play.rest(play.random.uniform(0.0, 2.0))
            play.network.heal()
            play.wait_whole()
            settled(play, group)
            group.kill(added)


@pytest.mark.parametrize("fault", ["full", "stalled"])
def test_a_coordinator_whose_disk_hides_from_it_that_it_was_replaced_tells_no_offsets(fault: str) -> None:
    """The controller hears it, so it does not count as fenced; but it cannot write down who leads now."""
    with stage(1, FOUR, settings=QUICK) as play:
        play.work()
        group = group_of(play, CLASSIC)
        wait_commits(play, group)
        old, epoch = coordinator(play), play.image_of(OFFSETS_TOPIC).leader_epoch
        assert old is not play.controller(), "another seed: the controller knows what it has decided"
        if fault == "full":
            old.disk.capacity_bytes = 0
        else:
            old.host.stalled_until = play.loop.now + 10.0
            # Asked for by an administrator: a stalled disk alone moves nothing.
            replicas = [each.node_id for each in (*play.followers(OFFSETS_TOPIC), old)]
            wanted = ReassignableTopic(OFFSETS_TOPIC, [ReassignablePartition(0, replicas)])
            request = AlterPartitionReassignmentsRequest(timeout_ms=4_000, topics=[wanted])
            play.ask(play.controller(), request, 0, AlterPartitionReassignmentsResponse)
            election = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=4_000)
            play.ask(play.controller(), election, 2, ElectLeadersResponse)
        play.until(lambda: play.image_of(OFFSETS_TOPIC).leader_epoch > epoch, "another coordinates")
        play.rest(2 * LATE_S)
        assert old.node is not None
        assert not old.node.lifecycle.is_fenced
        known = old.node.image.topics[OFFSETS_TOPIC].partitions[0]
        assert (known.leader, known.leader_epoch) == (old.node_id, epoch), "it must not have heard of it"
        asked = OffsetFetchRequest(group_id=group.options.name, topics=None)
        answer = play.ask(old, asked, 7, OffsetFetchResponse)
        assert answer.error_code == ErrorCode.NOT_COORDINATOR
        old.disk.capacity_bytes = CAPACITY_BYTES
        play.wait_whole()
        settled(play, group)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_coordinator_dies_in_the_middle_of_a_rebalance(protocol: str, seed: int) -> None:
    with stage(seed, FOUR, settings=QUICK) as play:
        play.work()
        group = group_of(play, protocol)
        for _ in turns(seed):
            wait_commits(play, group)
            added = group.add()
            play.rest(play.random.uniform(0.0, 3.0))
            old = coordinator(play)
            old.kill()
            play.rest(play.random.uniform(0.1, 4.0))
            old.start()
            play.wait_whole()
            settled(play, group)
            group.kill(added)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_who_died_with_the_coordinator_is_missed_by_the_next_one(protocol: str) -> None:
    """A dead member gets a new session from the coordinator that loads the group, and that ends."""
    with stage(5, FOUR, settings=QUICK) as play:
        play.work()
        group = group_of(play, protocol, members=3)
        wait_commits(play, group)
        old = coordinator(play)
        old.kill()
        group.kill(group.members[0])
        play.until(lambda: coordinator(play) is not old, "another coordinates")
        settled(play, group)
        wait_commits(play, group)
        old.start()


# What only one protocol knows


def test_the_leader_of_a_classic_group_dies_before_it_has_handed_out_anything() -> None:
    with stage(7, FOUR, settings=QUICK) as play:
        play.work()
        group = group_of(play, CLASSIC)
        for _ in range(2):
            wait_commits(play, group)
            added = group.add()
            play.until(lambda: any(is_between(member) for member in group.members), "the group rebalances")
            play.rest(play.random.uniform(0.0, 1.0))
            group.kill(play.random.choice([member for member in group.members if member is not added]))
            settled(play, group)


def is_between(member: SimMember) -> bool:
    return isinstance(member, SimClassicMember) and member.is_rejoining

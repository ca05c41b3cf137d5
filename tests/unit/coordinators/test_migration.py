"""A live group moves from the classic protocol to the consumer protocol and back, with clients of both kinds."""

from __future__ import annotations

from random import Random

import pytest
from tests.unit.coordinators.mixed_clients import (
    EVERYTHING,
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    TOPICS,
    Asked,
    ClassicClient,
    Client,
    ConsumerClient,
    Table,
)

from strandline.codec.messages.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from strandline.codec.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from strandline.coordinators.groups.classic.classic_group import ClassicGroup, GroupState
from strandline.coordinators.groups.classic.consumer_protocol import encode_assignment
from strandline.coordinators.groups.consumer.consumer_group import ConsumerGroup, ConsumerGroupState, MemberState
from strandline.coordinators.groups.consumer.records import consumer_group_records
from strandline.coordinators.groups.events import LeaveGroup, TopicsChanged
from strandline.coordinators.groups.group_config import ConsumerSettings, GroupConfig, MigrationPolicy
from strandline.coordinators.groups.group_shard import GroupShard
from strandline.coordinators.groups.history.group_history import Happening
from strandline.coordinators.groups.shard_terms import TimerKey, TimerKind
from strandline.coordinators.groups.topics import FixedTopics, TopicFacts
from strandline.errors import ErrorCode

TOPIC_T, TOPIC_U = TOPICS


def classic_group_of(table: Table, *clients: ClassicClient) -> None:
    table.rounds(8)
    assert isinstance(table.group, ClassicGroup)
    assert table.group.state is GroupState.STABLE
    assert len(table.group.members) == len(clients)
    assert table.is_shared_out()


@pytest.mark.parametrize("cooperative", [False, True])
def test_a_group_goes_over_one_by_one_and_back(cooperative: bool) -> None:
    table = Table()
    old = [ClassicClient(table, name, cooperative=cooperative) for name in ("A", "B")]
    classic_group_of(table, *old)
    generation = table.group.generation_id  # type: ignore[union-attr]

    new = [ConsumerClient(table, "C")]
    table.rounds(10)
    group = table.group
    assert isinstance(group, ConsumerGroup)
    assert group.state is ConsumerGroupState.STABLE
    assert group.group_epoch > generation
    assert table.is_shared_out()
    assert all(client.owned for client in (*old, *new))

    old[0].leave()
    new.append(ConsumerClient(table, "D"))
    table.rounds(10)
    assert table.is_shared_out()
    old[1].leave()
    table.rounds(10)
    assert isinstance(table.group, ConsumerGroup)
    assert table.is_shared_out()

    back = [ClassicClient(table, name, cooperative=cooperative) for name in ("E", "F")]
    table.rounds(10)
    assert isinstance(table.group, ConsumerGroup)
    assert table.is_shared_out()
    for client in new:
        client.leave()
        table.rounds(10)
        assert table.is_shared_out()
    assert isinstance(table.group, ClassicGroup)
    assert table.group.state is GroupState.STABLE
    assert [client.name for client in table.clients if client.owned and client.is_alive] == ["E", "F"]
    assert all(client.epoch == table.group.generation_id for client in back)


def test_members_keep_their_partitions_over_the_change() -> None:
    """Two cooperative members have everything; the third is to get a share, and no other member loses anything."""
    table = Table()
    old = [ClassicClient(table, name, cooperative=True) for name in ("A", "B")]
    classic_group_of(table, *old)
    before = {client.name: set(client.owned) for client in old}
    newcomer = ConsumerClient(table, "C")
    table.rounds(10)
    assert newcomer.owned
    for client in old:
        assert client.owned
        assert client.owned < before[client.name]
    assert ErrorCode.UNKNOWN_MEMBER_ID not in old[0].errors + old[1].errors
    assert ErrorCode.ILLEGAL_GENERATION not in old[0].errors + old[1].errors


def test_both_kinds_commit_in_a_mixed_group_and_only_in_their_epoch() -> None:
    table = Table()
    old = ClassicClient(table, "A")
    classic_group_of(table, old)
    new = ConsumerClient(table, "B")
    table.rounds(8)
    assert old.commit(min(old.owned), 5) is ErrorCode.NONE
    assert new.commit(min(new.owned), 6) is ErrorCode.NONE
    old.epoch = 0  # Before it was given what it owns; a later generation than that would do (KIP-1251).
    assert old.commit(min(old.owned), 7) is ErrorCode.ILLEGAL_GENERATION
    new.epoch -= 1
    assert new.commit(min(new.owned), 8) is ErrorCode.STALE_MEMBER_EPOCH
    topic, partition = min(old.owned)
    value = table.shard.offsets.get(GROUP, topic, partition)
    assert value is not None
    assert value.offset == 5


@pytest.mark.parametrize(
    ("policy", "upgrades", "downgrades"),
    [
        (MigrationPolicy.BIDIRECTIONAL, True, True),
        (MigrationPolicy.UPGRADE, True, False),
        (MigrationPolicy.DOWNGRADE, False, True),
        (MigrationPolicy.DISABLED, False, False),
    ],
)
def test_the_policy_says_which_way(policy: MigrationPolicy, upgrades: bool, downgrades: bool) -> None:
    table = Table(consumer_migration_policy=policy)
    old = ClassicClient(table, "A")
    classic_group_of(table, old)
    new = ConsumerClient(table, "B")
    table.rounds(6)
    assert isinstance(table.group, ConsumerGroup if upgrades else ClassicGroup)
    assert (ErrorCode.GROUP_ID_NOT_FOUND in new.errors) is not upgrades
    if not upgrades:
        assert "B: GROUP_ID_NOT_FOUND Cannot upgrade classic group orders to consumer group because " in "\n".join(
            table.told
        )
    assert old.owned

    table = Table(consumer_migration_policy=policy)
    new = ConsumerClient(table, "B")
    table.rounds(3)
    old = ClassicClient(table, "A")
    table.rounds(8)
    assert isinstance(table.group, ConsumerGroup), "a classic member may always join"
    new.leave()
    table.rounds(8)
    assert isinstance(table.group, ClassicGroup if downgrades else ConsumerGroup)
    assert table.is_shared_out()
    assert len(old.owned) == 7


# ---- what cannot go over


def test_a_group_with_unreadable_metadata_stays_classic() -> None:
    table = Table()
    old = ClassicClient(table, "A")
    classic_group_of(table, old)
    group = table.group
    assert isinstance(group, ClassicGroup)
    member = group.members[old.member_id]
    member.protocols = (member.protocols[0]._replace(metadata=b"my own words"),)
    new = ConsumerClient(table, "B")
    table.rounds()
    assert new.errors == [ErrorCode.GROUP_ID_NOT_FOUND]
    assert table.group is group
    assert "the embedded consumer protocol is malformed" in table.told[-1]


@pytest.mark.parametrize(("protocol", "goes_over"), [("cooperative-sticky", True), ("of-my-own", False)])
def test_what_an_assignor_of_ones_own_keeps_in_assignments_would_be_lost(protocol: str, goes_over: bool) -> None:
    table = Table()
    old = ClassicClient(table, "A", cooperative=True)
    old.protocol = protocol
    classic_group_of(table, old)
    group = table.group
    assert isinstance(group, ClassicGroup)
    group.members[old.member_id].assignment = encode_assignment(ConsumerProtocolAssignment(user_data=b"plans"), 1)
    old.owned.clear()
    new = ConsumerClient(table, "B")
    table.rounds()
    assert isinstance(table.group, ConsumerGroup) is goes_over
    assert (new.errors == [ErrorCode.NONE]) is goes_over


def test_groups_of_other_kinds_of_clients_stay_classic() -> None:
    table = Table()
    old = ClassicClient(table, "A")
    classic_group_of(table, old)
    assert isinstance(table.group, ClassicGroup)
    table.group.protocol_type = "connect"
    new = ConsumerClient(table, "B")
    table.rounds()
    assert new.errors == [ErrorCode.GROUP_ID_NOT_FOUND]


def test_a_group_that_is_too_large_stays_classic() -> None:
    table = Table(consumer_group_size_max=1)
    old = [ClassicClient(table, name) for name in ("A", "B")]
    classic_group_of(table, *old)
    new = ConsumerClient(table, "C")
    table.rounds()
    assert new.errors == [ErrorCode.GROUP_ID_NOT_FOUND]
    old[0].leave()
    table.rounds(6)
    new.act()
    assert new.errors[-1] is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert isinstance(table.group, ClassicGroup), "refused for another reason, it has not changed either"


# ---- in the middle of something


def test_who_waits_for_a_classic_generation_is_sent_to_the_consumer_group() -> None:
    table = Table()
    old = [ClassicClient(table, name) for name in ("A", "B")]
    classic_group_of(table, *old)
    old[0].next = "join"
    old[0].protocol = "range"
    old[0].topics = ("t",)
    old[0].act()
    assert isinstance(table.group, ClassicGroup)
    assert table.group.state is GroupState.PREPARING_REBALANCE
    assert old[0].waits is not None
    ConsumerClient(table, "C").act()
    assert old[0].errors[-1] is ErrorCode.REBALANCE_IN_PROGRESS
    assert not any(key.kind is TimerKind.JOIN for key in table.timers)
    old[0].topics = ("t", "u")
    table.rounds(10)
    assert table.is_shared_out()


def test_a_first_generation_that_never_was() -> None:
    """The members wait for each other when the first consumer of the new kind comes."""
    table = Table(initial_rebalance_delay_ms=3_000)
    old = [ClassicClient(table, name) for name in ("A", "B")]
    for _ in range(2):
        for client in old:
            client.act()
    assert isinstance(table.group, ClassicGroup)
    assert table.group.generation_id == 0
    ConsumerClient(table, "C")
    table.rounds(10)
    assert isinstance(table.group, ConsumerGroup)
    assert table.is_shared_out()
    assert len(table.group.members) == 3


def test_cooperative_members_own_on_when_their_generation_was_called_off() -> None:
    """B joins, then C before A has assigned: no member has an assignment in memory, yet A still owns everything."""
    table = Table()
    first = ClassicClient(table, "A", cooperative=True)
    classic_group_of(table, first)
    second = ClassicClient(table, "B", cooperative=True)
    second.act()
    second.act()
    first.act()
    first.act()
    assert isinstance(table.group, ClassicGroup)
    assert table.group.state is GroupState.COMPLETING_REBALANCE
    third = ClassicClient(table, "C", cooperative=True)
    third.act()
    third.act()
    assert table.group.state is GroupState.PREPARING_REBALANCE
    assert table.group.members[first.member_id].assignment == b""
    assert first.owned == EVERYTHING
    ConsumerClient(table, "D").act()
    group = table.group
    assert isinstance(group, ConsumerGroup)
    assert sum(len(each) for each in group.members[first.member_id].assigned.values()) == len(EVERYTHING)
    table.rounds(12)
    assert table.is_shared_out()


def test_what_a_leader_assigned_twice_or_made_up_is_owned_once_or_not_at_all() -> None:
    table = Table()
    old = [ClassicClient(table, name) for name in ("A", "B")]
    classic_group_of(table, *old)
    lie = ConsumerProtocolAssignment(
        assigned_partitions=[
            TopicPartition(topic="t", partitions=[0, 1, 99, -1]),
            TopicPartition(topic="nowhere", partitions=[0]),
            TopicPartition(topic="t", partitions=[2]),
        ]
    )
    assert isinstance(table.group, ClassicGroup)
    for member in table.group.members.values():
        member.assignment = encode_assignment(lie, 1)
    for client in old:
        client.owned.clear()
    ConsumerClient(table, "C").act()
    group = table.group
    assert isinstance(group, ConsumerGroup)
    owned = {client.name: group.members[client.member_id].assigned for client in old}
    assert {name: [sorted(each) for each in topics.values()] for name, topics in owned.items()} == {
        "A": [[0, 1, 2]],
        "B": [],
    }
    table.rounds(10)
    assert table.is_shared_out()


# ---- what survives a crash


def reloaded(table: Table) -> GroupShard:
    shard = GroupShard(GroupConfig(), Random(1), table.topics)
    shard.load(table.records)
    return shard


def test_the_log_knows_the_group_at_every_step_of_the_way() -> None:
    table = Table()
    actions = [
        lambda: ClassicClient(table, "A"),
        lambda: ClassicClient(table, "S", instance_id="s"),
        lambda: ConsumerClient(table, "C"),
        lambda: table.clients[0].die(),
        lambda: ClassicClient(table, "D", metadata_version=0, join_version=3),
        lambda: ConsumerClient(table, "E", instance_id="s"),
    ]
    for action in actions:
        action()
        for _ in range(8):
            table.rounds()
            group = table.group
            if isinstance(group, ConsumerGroup):
                again = reloaded(table).groups[GROUP]
                assert isinstance(again, ConsumerGroup)
                assert sorted(consumer_group_records(again)) == sorted(consumer_group_records(group))
                assert again.owners == group.owners
                assert again.static_members == group.static_members


def test_a_coordinator_that_dies_right_after_the_way_back_leaves_no_partition_unread() -> None:
    table = Table()
    old = [ClassicClient(table, name) for name in ("A", "B")]
    classic_group_of(table, *old)
    new = ConsumerClient(table, "C")
    table.rounds(10)
    assert new.owned
    new.leave()
    assert isinstance(table.group, ClassicGroup)
    table.restart()
    assert isinstance(table.group, ClassicGroup)
    assert table.group.state is GroupState.PREPARING_REBALANCE
    table.rounds(8)
    assert table.is_shared_out()
    # And a generation that has agreed is not disturbed by the next change of coordinator.
    table.restart()
    assert table.group.state is GroupState.STABLE


def test_a_coordinator_that_dies_right_after_the_way_there() -> None:
    table = Table()
    old = [ClassicClient(table, name, cooperative=True) for name in ("A", "B")]
    classic_group_of(table, *old)
    ConsumerClient(table, "C").act()
    table.restart()
    assert isinstance(table.group, ConsumerGroup)
    table.rounds(10)
    assert table.is_shared_out()
    assert ErrorCode.UNKNOWN_MEMBER_ID not in old[0].errors + old[1].errors


# ---- static members


def test_a_static_member_comes_back_with_the_other_protocol_and_has_its_seat() -> None:
    table = Table()
    old = [ClassicClient(table, name, instance_id=name) for name in ("a", "b")]
    classic_group_of(table, *old)
    had = set(old[0].owned)
    old[0].die()
    new = ConsumerClient(table, "A2", instance_id="a")
    table.rounds(8)
    group = table.group
    assert isinstance(group, ConsumerGroup)
    assert len(group.members) == 2
    assert new.owned == had
    assert table.is_shared_out()

    new.die()
    back = ClassicClient(table, "A3", instance_id="a")
    table.rounds(8)
    assert isinstance(table.group, ClassicGroup), "the last member of the consumer protocol was replaced"
    assert back.owned == had
    assert table.is_shared_out()
    assert table.group.members.keys() == {old[1].member_id, back.member_id}
    assert old[1].errors.count(ErrorCode.UNKNOWN_MEMBER_ID) == 0


def test_a_replacement_that_makes_a_group_classic_amid_a_rebalance_has_it_rebalance() -> None:
    """B has not given up yet what the target gives to A: handing out the target would make two owners."""
    table = Table()
    new = ConsumerClient(table, "A1", instance_id="a")
    table.rounds(3)
    old = ClassicClient(table, "B", cooperative=True)
    table.rounds(8)
    newer = ConsumerClient(table, "C")
    table.rounds(8)
    assert table.is_shared_out()
    newer.die()
    table.pass_ms(1)
    other = ClassicClient(table, "D", cooperative=True)
    for _ in range(3):
        other.act()
    newer.leave()
    new.die()
    back = ClassicClient(table, "A2", instance_id="a", cooperative=True)
    back.act()
    assert isinstance(table.group, ClassicGroup)
    assert table.group.state is not GroupState.STABLE
    table.rounds(12)
    assert table.is_shared_out()
    assert all(client.owned for client in (old, other, back))


def test_a_seat_that_was_never_assigned_anything() -> None:
    """The static member waits for its first generation when its successor comes with the other protocol."""
    table = Table(initial_rebalance_delay_ms=3_000)
    old = ClassicClient(table, "S1", instance_id="s")
    old.act()
    assert old.waits is not None
    old.die()
    new = ConsumerClient(table, "S2", instance_id="s")
    table.rounds(4)
    assert new.owned == EVERYTHING


def test_a_seat_in_a_group_that_has_not_seen_new_partitions_yet() -> None:
    table = Table()
    old = ClassicClient(table, "S1", instance_id="s")
    classic_group_of(table, old)
    table.topics = table.shard.topics = FixedTopics([TopicFacts("t", TOPIC_T.id, 5), TOPIC_U])
    old.die()
    new = ConsumerClient(table, "S2", instance_id="s")
    table.rounds(4)
    assert new.owned == EVERYTHING | {("t", 4)}


def test_an_old_process_of_a_static_member_is_fenced() -> None:
    table = Table()
    ConsumerClient(table, "X")
    table.rounds(3)
    first = ClassicClient(table, "S1", instance_id="s")
    table.rounds(6)
    second = ClassicClient(table, "S2", instance_id="s")
    second.act()
    first.act()
    assert first.errors[-1] is ErrorCode.FENCED_INSTANCE_ID
    table.rounds(6)
    assert table.is_shared_out()
    stranger = ClassicClient(table, "S3", instance_id="nobody")
    stranger.member_id = "made-up"
    stranger.act()
    assert stranger.errors[-1] is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("others", [0, 1], ids=["alone", "beside another"])
def test_a_commit_of_a_life_before_another_had_the_seat_comes_too_late(others: int) -> None:
    """A consumer keeps its member id. Came it back in the epoch that it was fenced in, nothing told its lives apart."""
    table = Table(consumer=ConsumerSettings(assignment_interval_ms=60_000))
    for _ in range(others):
        ConsumerClient(table, "N")
    first = ConsumerClient(table, "S1", instance_id="s")
    table.rounds(16, pause_ms=5_000)
    assert table.is_shared_out()
    partition, epoch = min(first.owned), first.epoch
    assert first.commit(partition, 13) is ErrorCode.NONE
    first.die()
    between = ClassicClient(table, "S2", instance_id="s")
    for _ in range(4):
        between.act()
    assert between.owned == first.owned
    assert between.commit(partition, 15) is ErrorCode.NONE
    again = ConsumerClient(table, "S3", instance_id="s", member_id=first.member_id)
    between.die()
    for _ in range(3):
        again.act()
        assert again.owned in (set(), first.owned), "the seat is kept, and what belongs to it"
        now, again.epoch = again.epoch, epoch
        assert again.commit(partition, 13) is ErrorCode.STALE_MEMBER_EPOCH
        again.epoch = now
    assert again.commit(partition, 16) is ErrorCode.NONE
    table.rounds(4)
    assert table.is_shared_out()


# ---- who may speak


def mixed(**config: object) -> tuple[Table, ClassicClient, ConsumerClient]:
    table = Table(**config)
    new = ConsumerClient(table, "N")
    table.rounds(3)
    old = ClassicClient(table, "O")
    table.rounds(8)
    assert table.is_shared_out()
    assert old.owned
    assert new.owned
    return table, old, new


def test_a_member_that_was_fenced_and_claims_partitions_is_refused() -> None:
    table, old, _ = mixed()
    old.is_cooperative = True
    old.protocol = "range"
    table.pass_ms(SESSION_MS + 1)
    assert isinstance(table.group, ConsumerGroup)
    assert old.member_id not in table.group.members
    old.next = "join"
    old.act()
    assert old.errors[-1] is ErrorCode.UNKNOWN_MEMBER_ID
    assert not old.owned
    table.rounds(8)
    assert table.is_shared_out()
    assert old.owned


def test_refusals() -> None:
    table, old, new = mixed()
    old.epoch += 1
    old.act()
    assert old.errors[-1] is ErrorCode.ILLEGAL_GENERATION
    table.rounds(6)

    stranger = ClassicClient(table, "Z")
    stranger.protocol = "another"
    stranger.act()
    assert stranger.errors[-1] is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    stranger.next = "heartbeat"
    stranger.act()
    assert stranger.errors[-1] is ErrorCode.UNKNOWN_MEMBER_ID
    stranger.member_id, stranger.epoch, stranger.next = new.member_id, new.epoch, "heartbeat"
    stranger.act()
    assert stranger.errors[-1] is ErrorCode.UNKNOWN_MEMBER_ID, "it is a member, but not of this protocol"
    stranger.die()

    old.next, old.protocol = "sync", "another"
    old.act()
    assert old.errors[-1] is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_the_only_classic_member_may_change_its_protocol() -> None:
    table, old, _ = mixed()
    old.protocol, old.is_cooperative, old.next = "cooperative-sticky", True, "join"
    table.rounds(6)
    assert table.is_shared_out()


def test_a_full_group_takes_only_known_static_members() -> None:
    table = Table(consumer_group_size_max=2)
    ConsumerClient(table, "N")
    table.rounds(3)
    ClassicClient(table, "S1", instance_id="s")
    table.rounds(6)
    third = ClassicClient(table, "T")
    third.act()
    assert third.errors[-1] is ErrorCode.GROUP_MAX_SIZE_REACHED
    third.die()
    ClassicClient(table, "S2", instance_id="s")
    table.clients[1].die()
    table.rounds(6)
    assert table.is_shared_out()


# ---- time


def test_a_member_that_is_told_to_join_and_does_not_is_out_in_the_end() -> None:
    table, old, _ = mixed()
    joined = ConsumerClient(table, "M")
    joined.act()
    table.pass_ms(1_100)
    assert isinstance(table.group, ConsumerGroup)
    member_id = old.member_id
    for _ in range(REBALANCE_MS // 2_000):
        for client in table.clients:
            if client is old:
                old.next = "heartbeat"
            client.act()
        table.pass_ms(2_000)
        assert old.errors[-1] is ErrorCode.REBALANCE_IN_PROGRESS
    table.pass_ms(3_000)
    assert member_id not in table.group.members
    assert TimerKey(TimerKind.JOIN, GROUP, member_id) not in table.timers


def test_a_member_that_joins_and_never_asks_for_its_assignment_is_out_in_the_end() -> None:
    table, old, _ = mixed()
    old.next = "join"
    old.act()
    assert old.next == "sync"
    heard = []
    for _ in range(REBALANCE_MS // 2_000 + 3):
        old.next = "heartbeat"
        table.rounds(pause_ms=2_000)
        heard.append(old.errors[-1])
    assert set(heard[:10]) == {ErrorCode.NONE}
    assert ErrorCode.UNKNOWN_MEMBER_ID in heard


def test_members_do_not_join_again_and_again_while_the_next_target_has_to_wait() -> None:
    table, old, new = mixed()
    table.pass_ms(2_000)
    ConsumerClient(table, "M").act()
    table.rounds(1, pause_ms=10)
    another = ConsumerClient(table, "L")
    another.act()
    assert isinstance(table.group, ConsumerGroup)
    assert table.group.group_epoch > table.group.assignment_epoch, "the interval holds it back"
    before = len(table.told)
    for _ in range(20):
        old.act()
    joins = [line for line in table.told[before:] if line.startswith("O: joined")]
    assert len(joins) <= 2
    table.rounds(10)
    assert table.is_shared_out()
    assert new.owned


# ---- leaving


def leave_all(table: Table, *identities: MemberIdentity) -> None:
    admin = Client(table, "admin")
    admin.is_alive = False
    table.step(LeaveGroup(Asked(admin, 1), LeaveGroupRequest(group_id=GROUP, members=list(identities))))


def test_an_administrator_removes_members_of_both_kinds_at_once() -> None:
    table = Table()
    ConsumerClient(table, "N", instance_id="n")
    table.rounds(3)
    static = ClassicClient(table, "S", instance_id="s")
    dynamic = ClassicClient(table, "D")
    stays = ClassicClient(table, "T")
    table.rounds(12)
    assert table.is_shared_out()
    leave_all(
        table,
        MemberIdentity(member_id="", group_instance_id="n"),
        MemberIdentity(member_id="", group_instance_id="s"),
        MemberIdentity(member_id=dynamic.member_id),
        MemberIdentity(member_id=dynamic.member_id),
        MemberIdentity(member_id="nobody"),
        MemberIdentity(member_id="", group_instance_id="nobody"),
        MemberIdentity(member_id=stays.member_id, group_instance_id="s"),
    )
    group = table.group
    assert isinstance(group, ClassicGroup), "only one of the classic protocol is left"
    assert group.members.keys() == {stays.member_id}
    for client in (static, dynamic, table.clients[0]):
        client.die()
    table.rounds(6)
    assert stays.owned == EVERYTHING


def test_the_last_member_leaves_a_consumer_group_empty() -> None:
    table, old, new = mixed()
    old.leave()
    new.leave()
    assert isinstance(table.group, ConsumerGroup)
    assert table.group.state is ConsumerGroupState.EMPTY
    epoch = table.group.group_epoch
    again = ClassicClient(table, "E")
    table.rounds(6)
    assert isinstance(table.group, ClassicGroup), "an empty group is whatever its next member speaks"
    assert again.owned == EVERYTHING
    assert table.group.generation_id > epoch, "what was said in an epoch must not pass for something of today"


def test_the_epochs_of_a_consumer_group_go_on_from_the_generations_of_an_empty_classic_one() -> None:
    """Members keep their ids. If the epochs started over, an old commit would be accepted."""
    table = Table()
    client = ClassicClient(table, "A")
    classic_group_of(table, client)
    client.leave()
    table.rounds(3)
    assert isinstance(table.group, ClassicGroup)
    assert table.group.state is GroupState.EMPTY
    generation = table.group.generation_id
    ConsumerClient(table, "B")
    table.rounds(5)
    assert isinstance(table.group, ConsumerGroup)
    assert table.group.group_epoch > generation
    table.restart()
    assert isinstance(table.group, ConsumerGroup)
    assert table.group.group_epoch > generation


def test_new_partitions_are_seen_by_classic_members_alone_too() -> None:
    table, old, new = mixed(consumer_migration_policy=MigrationPolicy.UPGRADE)
    new.leave()
    table.rounds(6)
    assert old.owned == EVERYTHING
    more = FixedTopics([TopicFacts("t", TOPIC_T.id, 5), TOPIC_U])
    table.topics = table.shard.topics = more
    table.step(TopicsChanged(frozenset({"t"})))
    table.rounds(6)
    assert old.owned == EVERYTHING | {("t", 4)}
    assert isinstance(table.group, ConsumerGroup)
    assert table.group.members[old.member_id].state is MemberState.STABLE


def test_a_group_that_changes_again_before_it_has_rebalanced_takes_nothing_from_who_still_reads() -> None:
    """A has yet to hear that it is to give up a share, when the group goes back and forth again."""
    table = Table()
    old = ClassicClient(table, "A", cooperative=True)
    classic_group_of(table, old)
    first = ConsumerClient(table, "B")
    first.act()
    first.leave()
    assert isinstance(table.group, ClassicGroup)
    second = ConsumerClient(table, "C")
    for _ in range(3):
        second.act()
        table.pass_ms(1_100)
    assert isinstance(table.group, ConsumerGroup)
    assert old.owned == EVERYTHING
    assert not second.owned
    table.rounds(10)
    assert table.is_shared_out()
    assert second.owned


def test_the_history_tells_why_and_what_came_of_it() -> None:
    table = Table()
    old = [ClassicClient(table, name, cooperative=True) for name in ("A", "B")]
    classic_group_of(table, *old)
    new = ConsumerClient(table, "C")
    table.rounds(10)
    new.leave()
    table.rounds(10)
    there, back = table.shard.history.of(GROUP)[1:3]
    assert [note.what for note in there.notes] == [Happening.CONVERTED, Happening.JOINED]
    assert (there.group_type, there.members, len(there.changes)) == ("consumer", 3, 3)
    assert [note.what for note in back.notes][:2] == [Happening.LEFT, Happening.CONVERTED]
    assert (back.group_type, back.members) == ("classic", 2)
    assert back.ended_ms > back.began_ms, "it ends with the generation that the classic members agreed on"
    assert back.epoch > there.epoch


def test_a_group_whose_members_do_not_fit_into_one_record_stays_a_consumer_group() -> None:
    table = Table(group_record_bytes_max=100)
    new = ConsumerClient(table, "N")
    table.rounds(3)
    old = ClassicClient(table, "O")
    table.rounds(8)
    new.leave()
    table.rounds(8)
    assert isinstance(table.group, ConsumerGroup)
    assert old.owned == EVERYTHING

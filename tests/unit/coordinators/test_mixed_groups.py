"""Consumers of both protocols come, go, stop for a while and lose answers, and coordinators die: from many seeds.

What must hold is checked after every event by the table: no partition is ever owned by two that could commit for it,
and no timer or member is forgotten. In the end, when all is quiet, everything is owned by a live member, and the
group speaks the protocol that its members speak.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest
from tests.unit.coordinators.mixed_clients import ClassicClient, Client, ConsumerClient, Table

from strandline.coordinators.groups.classic.classic_group import ClassicGroup, GroupState
from strandline.coordinators.groups.consumer.consumer_group import ConsumerGroup, ConsumerGroupState

CLIENTS_MAX = 5
STEPS = 150


@dataclass(frozen=True)
class Mood:
    """What kind of newcomers there are in one run."""

    cooperative: bool
    """Classic members agree on one protocol, and it is the one or the other."""
    consumers: float
    """The share of those that speak the consumer protocol."""


def newcomer(table: Table, choice: Random, mood: Mood) -> Client:
    name = f"c{len(table.clients)}"
    instance_id = choice.choice((None, None, None, "s1", "s2"))
    if choice.random() < mood.consumers:
        return ConsumerClient(table, name, instance_id=instance_id)
    return ClassicClient(
        table,
        name,
        instance_id=instance_id,
        cooperative=mood.cooperative,
        metadata_version=choice.choice((1, 3) if mood.cooperative else (0, 1, 3)),
        join_version=choice.choice((3, 5, 9)),
    )


def disturb(table: Table, choice: Random, mood: Mood) -> None:
    living = [client for client in table.clients if client.is_alive]
    client = choice.choice(living) if living else None
    match choice.randrange(24):
        case 0 | 1 if len(living) < CLIENTS_MAX:
            newcomer(table, choice, mood)
        case 2 if client is not None:
            client.die()
        case 3 if client is not None:
            client.leave()  # type: ignore[attr-defined]
        case 4 if isinstance(client, ConsumerClient) and client.instance_id is not None:
            client.leave(for_good=False)
        case 5 | 6 if client is not None:
            client.is_paused = not client.is_paused
        case 7 if client is not None:
            client.is_deaf = True
        case 8:
            table.restart()
        case 9:
            table.pass_ms(choice.choice((500, 5_000, 12_000, 40_000)))
        case 10 if client is not None and client.instance_id is None:
            # The successor of a static member has to subscribe to the same: a classic group is not rebalanced for it.
            client.topics = choice.choice((("t", "u"), ("t", "u"), ("t",)))
        case 11 | 12:
            visit(table, choice)
        case _:
            if client is not None and not client.is_paused:
                client.act()
            table.pass_ms(choice.choice((1, 300, 1_500)))


def visit(table: Table, choice: Random) -> None:
    """A consumer looks in, changes the protocol of the group perhaps, and is gone before the others notice."""
    visitor = ConsumerClient(table, f"c{len(table.clients)}")
    for _ in range(choice.choice((1, 1, 3))):
        visitor.act()
    visitor.leave()
    if choice.random() < 0.4:
        table.restart()


def settle(table: Table) -> None:
    """Everybody wakes up and hears well; sessions of the dead end."""
    for client in table.clients:
        client.is_paused = client.is_deaf = False
        client.topics = ("t", "u")
    table.rounds(60, pause_ms=2_000)


def run(seed: int, steps: int = STEPS) -> Table:
    choice = Random(seed)
    mood = Mood(cooperative=choice.random() < 0.5, consumers=choice.choice((0.0, 0.2, 0.5)))
    table = Table(seed)
    for _ in range(2):
        newcomer(table, choice, mood)
    for _ in range(steps):
        disturb(table, choice, mood)
    if not any(client.is_alive for client in table.clients):
        newcomer(table, choice, mood)
    settle(table)
    return table


def check_end(table: Table, seed: int) -> None:
    living = [client for client in table.clients if client.is_alive]
    if not living:
        # Two processes had one instance id, and the last of them gave up.
        return
    assert table.is_shared_out(), (seed, table.owners(), table.told[-30:])
    group = table.group
    assert group is not None
    assert set(group.members) == {client.member_id for client in living}, seed
    if any(isinstance(client, ConsumerClient) for client in living):
        assert isinstance(group, ConsumerGroup), seed
        assert group.state is ConsumerGroupState.STABLE
    else:
        assert isinstance(group, ClassicGroup), seed
        assert group.state is GroupState.STABLE
    assert all(client.may_commit() for client in living if client.owned), seed


@pytest.mark.parametrize(
    "seed",
    [
        *range(5),
        *(pytest.param(seed, marks=pytest.mark.lengthy("random walks beside a model")) for seed in range(5, 60)),
    ],
)
def test_nothing_is_owned_twice_and_in_the_end_everything_once(seed: int) -> None:
    check_end(run(seed), seed)


@pytest.mark.slow
def test_the_same_from_many_more_seeds() -> None:
    for seed in range(1_000, 4_000):
        check_end(run(seed, steps=300), seed)

"""A broker whose process dies is missed at once; one that is cut off, or whose connections break, is not held for dead.

Times are those of the simulation, where the session lasts 6 s.
"""

from __future__ import annotations

import dataclasses

import pytest
from tests.simulation.stage import ORDERS, Play, stage
from tests.simulator.world.cluster import SimNode

ONE = dataclasses.replace(ORDERS, partitions=1)
SEEDS = [21, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (22, 23))]
SOON_S = 2.0
SESSION_S = 6.0


def led_elsewhere(play: Play, epoch: int) -> bool:
    image = play.image_of("orders")
    return image.leader >= 0 and image.leader_epoch > epoch


def another_than_the_controller(play: Play) -> SimNode:
    """The leader of the partition, which is moved there if it is on the active controller."""
    controller = play.controller()
    if play.leader("orders") is controller:
        epoch = play.image_of("orders").leader_epoch
        controller.stop()
        play.until(lambda: led_elsewhere(play, epoch), "another leads")
        play.until(lambda: not controller.is_up, "it has stopped")
        controller.start()
        play.wait_whole()
        return another_than_the_controller(play)
    return play.leader("orders")


@pytest.mark.parametrize("seed", SEEDS)
def test_the_partitions_of_a_dead_leader_are_led_elsewhere_long_before_its_session_ends(seed: int) -> None:
    with stage(seed, ONE) as play:
        play.work()
        play.wait(acknowledged=40)
        leader = another_than_the_controller(play)
        epoch = play.image_of("orders").leader_epoch
        leader.kill()
        play.until(lambda: led_elsewhere(play, epoch), "another leads", SOON_S)
        assert play.run.invariants.deaths == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_a_node_that_led_the_quorum_and_a_partition_is_missed_by_the_next_controller(seed: int) -> None:
    with stage(seed, ONE) as play:
        play.work()
        play.wait(acknowledged=40)
        # Both on one node: the leader of the partition gets the quorum.
        while play.controller() is not play.leader("orders"):
            play.controller().kill()
            play.until(lambda: play._controller() is not None, "there is another controller")
            for each in play.cluster.nodes.values():
                if not each.is_up:
                    each.start()
            play.wait_whole()
        node = play.controller()
        epoch = play.image_of("orders").leader_epoch
        deaths = play.run.invariants.deaths
        node.kill()
        play.until(lambda: play._controller() is not None, "there is another controller", SESSION_S)
        play.until(lambda: led_elsewhere(play, epoch), "another leads", SOON_S)
        assert play.run.invariants.deaths == deaths + 1


@pytest.mark.parametrize("seed", SEEDS)
def test_a_broker_that_comes_back_at_once_need_not_wait_for_the_session_of_its_former_life(seed: int) -> None:
    with stage(seed, ONE) as play:
        play.work()
        play.wait(acknowledged=40)
        leader = another_than_the_controller(play)
        before = play.run.invariants.image.brokers[leader.node_id].epoch
        leader.kill()
        leader.start()

        def is_back() -> bool:
            broker = play.run.invariants.image.brokers[leader.node_id]
            return broker.epoch > before and not broker.registration.fenced

        play.until(is_back, "it is registered again and unfenced", SOON_S)


@pytest.mark.parametrize("seed", SEEDS)
def test_connections_that_break_take_no_office_away(seed: int) -> None:
    with stage(seed, ONE) as play:
        play.work()
        play.wait(acknowledged=40)
        before = play.image_of("orders").leader_epoch
        for _ in range(10):
            for transport in list(play.network.transports.values()):
                play.network.reset(transport)
            play.rest(play.random.uniform(0.05, 1.0))
        assert play.image_of("orders").leader_epoch == before
        assert play.run.invariants.deaths == 0


@pytest.mark.parametrize("how", ["cut off", "paused", "dark"])
def test_who_cannot_be_asked_is_left_to_its_session(how: str) -> None:
    with stage(24, ONE) as play:
        play.work()
        play.wait(acknowledged=40)
        leader = another_than_the_controller(play)
        epoch = play.image_of("orders").leader_epoch
        if how == "cut off":
            # Its connections break first, so that it is asked after.
            for transport in [each for each in play.network.transports.values() if each.own_host == leader.name]:
                play.network.reset(transport)
            play.network.split([leader.name], [each.name for each in play.cluster.nodes.values() if each is not leader])
        elif how == "paused":
            leader.pause()
            for transport in [each for each in play.network.transports.values() if each.own_host == leader.name]:
                play.network.reset(transport)
        else:
            leader.power_cut()
        play.rest(SESSION_S / 2)
        assert play.image_of("orders").leader_epoch == epoch
        play.until(lambda: led_elsewhere(play, epoch), "another leads", SESSION_S)
        assert play.run.invariants.deaths == 0

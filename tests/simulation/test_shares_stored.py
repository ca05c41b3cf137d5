"""Share groups with the real share coordinator: what was acknowledged survives the leaders of both partitions."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from tests.simulation.share_stage import Worker, stored_stage, write
from tests.simulation.stage import Play
from tests.simulator.world.cluster import SimNode

from strandline.coordinators.shares.delivery.acknowledgements import ACCEPT, RELEASE
from strandline.errors import ErrorCode

STATE = "__share_group_state"


def test_a_new_leader_goes_on_with_what_was_stored() -> None:
    with stored_stage(11) as play:
        write(play, 3, 3)
        ann = Worker(play, play.leader("tasks"), "ann")
        assert ann.poll(max_wait_ms=10_000) == [(0, 5, 1)]
        assert ann.acknowledge((1, 2, [ACCEPT]), (3, 3, [RELEASE])) is ErrorCode.NONE
        lead_elsewhere(play, "tasks")
        bob = Worker(play, play.leader("tasks"), "bob")
        assert bob.poll(max_wait_ms=10_000) == [(0, 0, 1), (3, 3, 2), (4, 5, 1)]
        assert bob.acknowledge((0, 0, [ACCEPT]), (3, 5, [ACCEPT])) is ErrorCode.NONE
        assert bob.poll() == []


def test_acknowledgements_wait_for_a_coordinator_that_died() -> None:
    with stored_stage(12) as play:
        write(play, 4)
        ann = Worker(play, play.leader("tasks"), "ann")
        assert ann.poll(max_wait_ms=10_000) == [(0, 3, 1)]
        coordinator = play.leader(STATE)
        if coordinator is not play.leader("tasks"):
            coordinator.kill()
        assert ann.acknowledge((0, 3, [ACCEPT])) is ErrorCode.NONE
        assert ann.poll() == []


@pytest.mark.parametrize("seed", range(3))
def test_every_record_is_done_once_while_leaders_die(seed: int) -> None:
    """An accepted record never comes again, and every record is accepted in the end."""
    rng = random.Random(seed)
    with stored_stage(20 + seed) as play:
        sizes = [rng.randint(1, 5) for _ in range(12)]
        write(play, *sizes)
        end = sum(sizes)
        accepted: Counter[int] = Counter()
        down: SimNode | None = None
        for turn in range(200):
            if len(accepted) == end:
                break
            if turn in (4, 9, 14):
                if down is not None:
                    down.start()
                    play.wait_rejoined()
                down = rng.choice((play.leader("tasks"), play.leader(STATE)))
                down.kill()
                play.rest(10.0)
            worker = Worker(play, play.leader("tasks"), f"member-{turn}")
            got = worker.poll(max_records=rng.randint(1, 8), max_wait_ms=2_000)
            for first, last, count in got:
                assert count <= 5
                assert not any(accepted[each] for each in range(first, last + 1)), "an accepted record came again"
                kind = rng.choice((ACCEPT, ACCEPT, RELEASE)) if count < 4 else ACCEPT
                if worker.acknowledge((first, last, [kind])) is ErrorCode.NONE and kind == ACCEPT:
                    accepted.update(range(first, last + 1))
            worker.acknowledge(share_session_epoch=-1, topics=[])
        assert sorted(accepted) == list(range(end))


def lead_elsewhere(play: Play, topic: str) -> None:
    former = play.leader(topic)
    former.kill()
    play.until(lambda: play.image_of(topic).leader not in (-1, former.node_id), "another leads")

"""Requests of share consumers that end in the middle: of a batch, of a write, or before they ask for anything."""

from __future__ import annotations

from tests.simulation.share_stage import Worker, share_stage, write

from strandline.coordinators.shares.delivery.acknowledgements import ACCEPT
from strandline.errors import ErrorCode


def test_a_limit_of_bytes_may_end_anywhere_in_a_batch() -> None:
    with share_stage() as (play, _):
        write(play, 2, 2, 2, 2)
        leader = play.leader("tasks")
        first = Worker(play, leader, "ann", group_id="first").fetch(max_wait_ms=500, max_bytes=1)
        size = len(first.responses[0].partitions[0].records)
        for size_bytes_max in range(size, 3 * size, 5):
            ann = Worker(play, leader, "ann", group_id=f"up to {size_bytes_max}")
            assert ann.poll(max_bytes=size_bytes_max) == [(0, 2 * (size_bytes_max // size) - 1, 1)]


def test_a_release_does_not_count_records_below_a_start_that_is_being_stored() -> None:
    with share_stage() as (play, persister):
        write(play, 10)
        ann = Worker(play, play.leader("tasks"), "ann")
        assert ann.poll() == [(0, 9, 1)]
        assert ann.acknowledge((0, 0, [ACCEPT])) is ErrorCode.NONE
        # Closing, so that what is left is released by a second write, before the first one is stored.
        assert ann.acknowledge((1, 3, [ACCEPT]), share_session_epoch=-1) is ErrorCode.NONE
        play.rest(1.0)
        (kept,) = persister.kept.values()
        assert (kept.start_offset, kept.complete_count) == (4, 0)


def test_a_partition_without_acknowledgements_is_not_answered() -> None:
    with share_stage() as (play, _):
        write(play, 1)
        ann = Worker(play, play.leader("tasks"), "ann")
        assert ann.poll() == [(0, 0, 1)]
        answers = ann.begin_acknowledge()
        play.until(lambda: answers, "an answer")
        assert answers[0].responses == []

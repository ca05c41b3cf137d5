"""What a node counts of its share groups, as its page of metrics shows it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.simulation.share_stage import MemoryPersister, Worker, share_stage, write
from tests.simulation.stage import Play

from strandline.broker.metrics.families import page
from strandline.coordinators.shares.delivery.acknowledgements import ACCEPT, REJECT, RELEASE, RENEW
from strandline.errors import ErrorCode

LOCK_S = 30.0
IN_FLIGHT = 'kafka_server_sharepartitionmetrics_inflightmessagecount{group="workers",topic="tasks",partition="0"}'
SESSIONS = "kafka_server_sharesessioncache_numsharesessions"
TIMEOUTS = "strandline_share_lock_timeouts_total"
REDELIVERIES = "strandline_share_redeliveries_total"
EXHAUSTED = "strandline_share_exhausted_total"
OLDEST = 'strandline_share_oldest_unacknowledged_seconds{group="workers",topic="tasks",partition="0"}'


@pytest.fixture
def ground() -> Iterator[tuple[Play, MemoryPersister]]:
    with share_stage() as ground:
        yield ground


def shown(play: Play) -> dict[str, int]:
    """Return the lines about share groups."""
    node = play.leader("tasks").node
    assert node is not None
    lines = [line.rpartition(" ") for line in "".join(page(node, public=False)).splitlines() if line[0] != "#"]
    return {name: int(float(value)) for name, _, value in lines if "_share" in name}


def acknowledged(play: Play) -> dict[str, int]:
    """Return how many records were acknowledged, by type."""
    name = "kafka_server_sharegroupmetrics_recordacknowledgements_total"
    found = {line: value for line, value in shown(play).items() if line.startswith(name)}
    return {line.split('"')[1]: value for line, value in found.items() if value}


def test_a_node_without_share_groups_counts_nothing(ground: tuple[Play, MemoryPersister]) -> None:
    play, _ = ground
    assert shown(play)[SESSIONS] == shown(play)[TIMEOUTS] == 0
    assert not acknowledged(play)
    assert IN_FLIGHT not in shown(play)


def test_acknowledgements_count_by_type_and_when_they_are_stored(ground: tuple[Play, MemoryPersister]) -> None:
    play, persister = ground
    write(play, 10)
    ann = worker(play)
    assert ann.poll() == [(0, 9, 1)]
    assert shown(play)[IN_FLIGHT] == 10
    assert shown(play)[SESSIONS] == 1
    assert ann.acknowledge((0, 3, [ACCEPT])) is ErrorCode.NONE
    assert ann.acknowledge((4, 7, [ACCEPT, RELEASE, REJECT, ACCEPT])) is ErrorCode.NONE
    assert ann.acknowledge((8, 9, [RENEW]), is_renew_ack=True) is ErrorCode.NONE
    assert acknowledged(play) == {"Accept": 6, "Release": 1, "Reject": 1, "Renew": 2}
    assert shown(play)[IN_FLIGHT] == 5, "from the record that was released on"
    persister.refuses = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert ann.acknowledge((8, 9, [ACCEPT])) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert ann.acknowledge((0, 3, [ACCEPT]), member_id="bob") is ErrorCode.SHARE_SESSION_NOT_FOUND
    assert acknowledged(play)["Accept"] == 6


def test_a_lock_that_times_out_counts_for_each_record_and_stays_counted(ground: tuple[Play, MemoryPersister]) -> None:
    play, _ = ground
    write(play, 4)
    ann = worker(play)
    assert ann.poll() == [(0, 3, 1)]
    assert ann.acknowledge((0, 0, [ACCEPT])) is ErrorCode.NONE
    play.rest(LOCK_S + 1)
    assert shown(play)[TIMEOUTS] == 3
    ann.vanish()
    play.until(lambda: not shown(play)[SESSIONS], "the session ends with its connection")
    play.until(lambda: IN_FLIGHT not in shown(play), "no member reads the partition any more")
    assert shown(play)[TIMEOUTS] == 3


def test_redeliveries_count_and_the_age_of_the_first(ground: tuple[Play, MemoryPersister]) -> None:
    play, _ = ground
    write(play, 2)
    ann = worker(play)
    for number in range(1, 5):
        assert ann.poll(max_records=1, share_acquire_mode=1) == [(0, 0, number)]
        assert ann.acknowledge((0, 0, [RELEASE])) is ErrorCode.NONE
        play.rest(10)
    assert shown(play)[REDELIVERIES] == 3
    assert shown(play)[OLDEST] >= 40
    assert shown(play)[EXHAUSTED] == 0
    assert ann.poll(max_records=1, share_acquire_mode=1) == [(0, 0, 5)]
    assert ann.acknowledge((0, 0, [RELEASE])) is ErrorCode.NONE
    assert shown(play)[REDELIVERIES] == 4
    assert shown(play)[EXHAUSTED] == 1
    assert shown(play)[OLDEST] == 0, "nothing is in flight"


def worker(play: Play) -> Worker:
    return Worker(play, play.leader("tasks"), "ann")

"""Replicas are spread over racks, then hosts, then processes; and evenly."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.codec.messages.register_broker_record import BrokerEndpoint, RegisterBrokerRecord
from strandline.errors import ErrorCode, RequestError
from strandline.quorum.controller.placement import place_replicas
from strandline.quorum.image.cluster_image import BrokerImage

SEED = 11


def broker(broker_id: int, host: str, rack: str | None = None, *, fenced: bool = False) -> BrokerImage:
    endpoint = BrokerEndpoint(name="PLAINTEXT", host=host, port=9092)
    return BrokerImage(RegisterBrokerRecord(broker_id=broker_id, end_points=[endpoint], rack=rack, fenced=fenced))


def place(brokers: list[BrokerImage], partitions: int, replicas: int, seed: int = SEED) -> list[list[int]]:
    return place_replicas(brokers, partition_count=partitions, replication_factor=replicas, rng=random.Random(seed))


def test_no_host_has_two_replicas_while_another_is_free() -> None:
    brokers = [broker(each, f"host-{each % 3}") for each in range(9)]
    for replicas in place(brokers, 90, 3):
        assert len({each % 3 for each in replicas}) == 3


def test_one_big_host_and_two_small_ones() -> None:
    hosts = {1: "big", 2: "big", 3: "big", 4: "b", 5: "c"}
    brokers = [broker(each, host) for each, host in hosts.items()]
    for replicas in place(brokers, 50, 3):
        assert sorted({hosts[each] for each in replicas}) == ["b", "big", "c"]


def test_racks_come_before_hosts() -> None:
    brokers = [broker(each, f"host-{each}", f"rack-{each % 2}") for each in range(6)]
    for replicas in place(brokers, 60, 3):
        assert len({each % 2 for each in replicas}) == 2


def test_leaders_and_replicas_are_even() -> None:
    brokers = [broker(each, f"host-{each}") for each in range(5)]
    placed = place(brokers, 100, 3)
    assert set(Counter(replicas[0] for replicas in placed).values()) == {20}
    assert set(Counter(each for replicas in placed for each in replicas).values()) == {60}


def test_who_is_away_gets_a_replica_only_if_there_are_too_few() -> None:
    brokers = [broker(each, f"host-{each}", fenced=each == 1) for each in range(4)]
    assert all(1 not in replicas for replicas in place(brokers, 20, 3))
    for replicas in place(brokers, 20, 4):
        assert replicas[-1] == 1
    with pytest.raises(RequestError) as refusal:
        place([broker(1, "host", fenced=True)], 1, 1)
    assert refusal.value.code == ErrorCode.INVALID_REPLICATION_FACTOR
    with pytest.raises(RequestError):
        place(brokers, 1, 5)


@given(
    hosts=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.booleans()), min_size=1, max_size=8),
    replication_factor=st.integers(1, 8),
    seed=st.integers(0, 100),
)
def test_every_partition_has_different_replicas_and_a_leader_that_is_here(
    hosts: list[tuple[int, int, bool]], replication_factor: int, seed: int
) -> None:
    brokers = [
        broker(each, f"host-{host}", f"rack-{rack}", fenced=away) for each, (rack, host, away) in enumerate(hosts)
    ]
    try:
        placed = place(brokers, 10, replication_factor, seed)
    except RequestError:
        assert replication_factor > len(brokers) or not any(each.is_active for each in brokers)
        return
    for replicas in placed:
        assert len(set(replicas)) == replication_factor == len(replicas)
        assert brokers[replicas[0]].is_active
        racks = Counter(hosts[each][0] for each in replicas)
        all_racks = {rack for rack, _, _ in hosts}
        if all(each.is_active for each in brokers) and len(racks) < len(all_racks):
            assert max(racks.values()) == 1, "a rack is used twice only when all are used"

"""The cost of a topic a month: the figures of the price lists, worked out by hand, and how they must move."""

from __future__ import annotations

from dataclasses import replace

import pytest

from strandline.advice.storage_cost import GB, MONTH_S, Prices, TopicLoad, assumptions, changed_prices, costs

DAY_S = 86_400.0
LOAD = TopicLoad(
    bytes_per_s=10e6,
    records_per_s=10_000,
    retained_s=7 * DAY_S,
    stored_bytes=0,
    local_retained_s=DAY_S,
    partitions=12,
    replicas=3,
    segment_bytes=1 << 30,
    segment_s=7 * DAY_S,
    reads=0,
)


def test_a_local_topic_pays_for_disks_and_for_traffic_between_zones() -> None:
    local, _, _ = costs(LOAD, Prices())
    assert local.disk_bytes == pytest.approx(3 * 10e6 * 7 * DAY_S)
    assert local.disk_cost == pytest.approx(3 * 6048 * 0.08)
    assert local.inter_zone_cost == pytest.approx(2 * 26_280 * 0.02)
    assert (local.put_requests, local.get_requests, local.store_bytes) == (0, 0, 0)
    assert costs(replace(LOAD, zones=1), Prices())[0].inter_zone_cost == 0


def test_a_tiered_topic_keeps_a_day_on_disks_and_a_week_in_the_store() -> None:
    _, tiered, _ = costs(LOAD, Prices())
    assert tiered.disk_bytes == pytest.approx(3 * 10e6 * DAY_S)
    assert tiered.store_cost == pytest.approx(6048 * 0.023)
    assert tiered.put_requests == pytest.approx(2 * 10e6 * MONTH_S / (1 << 30))


def test_slow_partitions_seal_segments_by_age() -> None:
    slow = replace(LOAD, bytes_per_s=1000, records_per_s=1, segment_s=3600)
    assert costs(slow, Prices())[1].put_requests == pytest.approx(2 * 12 * 730)


def test_an_object_every_250_ms_costs_what_the_price_list_says() -> None:
    """10.5 million PUT a month of one node are 53 dollars."""
    small = replace(LOAD, bytes_per_s=1e5, records_per_s=100)
    found = costs(small, Prices())[2]
    alone = found.put_requests - 2 * 1e5 * MONTH_S / (64 << 20)
    assert alone == pytest.approx(10.512e6)
    assert alone / 1000 * 0.005 == pytest.approx(52.56)
    assert costs(replace(small, interval_s=1.0), Prices())[2].put_requests < found.put_requests / 3
    assert found.disk_cost == found.inter_zone_cost == 0


def test_much_data_makes_more_objects_and_an_idle_topic_none() -> None:
    much = replace(LOAD, bytes_per_s=100 * (8 << 20))
    assert costs(much, Prices())[2].put_requests > 100 * MONTH_S
    idle = replace(LOAD, bytes_per_s=0, records_per_s=0)
    assert [(each.put_requests, each.get_requests, each.total) for each in costs(idle, Prices())] == [(0, 0, 0)] * 3


def test_reads_of_the_store_are_cheap_in_large_requests() -> None:
    """4 MiB a GET make a TB cost 0.1 dollars."""
    before, after = (costs(replace(LOAD, reads=reads), Prices())[2] for reads in (0.0, 1.0))
    terabytes = 10e6 * MONTH_S / 1e12
    assert (after.request_cost - before.request_cost) / terabytes == pytest.approx(0.0954, rel=0.01)


def test_for_ever_means_what_there_is_and_a_month_more() -> None:
    for_ever = replace(LOAD, retained_s=None, stored_bytes=5 * GB)
    assert costs(for_ever, Prices())[1].store_bytes == pytest.approx(5 * GB + 10e6 * MONTH_S)


def test_prices_are_replaced_by_name() -> None:
    prices = changed_prices(Prices(), {"store.gb.month": "0.01", "disk_gb_month": "1"})
    assert (prices.store_gb_month, prices.disk_gb_month, prices.put_per_1000) == (0.01, 1.0, 0.005)
    assert costs(LOAD, prices)[0].disk_cost == pytest.approx(3 * 6048)
    for wrong in ({"egress": "1"}, {"disk_gb_month": "cheap"}, {"disk_gb_month": "-1"}, {"disk_gb_month": "nan"}):
        with pytest.raises(ValueError, match="is no price"):
            changed_prices(Prices(), wrong)


def test_assumptions_name_every_price() -> None:
    words = " ".join(assumptions(LOAD, Prices()))
    assert "put_per_1000=0.005" in words
    assert "inter_zone_gb=0.02" in words

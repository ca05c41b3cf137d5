"""Whether a disk is full before retention frees room."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.cli.doctor.disk_forecast import Growth, forecast, growth

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
MIB, GIB = 1 << 20, 1 << 30


def of(**facts: Any) -> Growth | None:
    known: dict[str, Any] = {
        "size_bytes": 0,
        "bytes_per_s": 1000.0,
        "cleanup_policy": "delete",
        "retention_ms": -1,
        "retention_bytes": -1,
        "segment_ms": 7 * DAY_MS,
        "segment_bytes": MIB,
    }
    return growth(**(known | facts))


def final(**facts: Any) -> float:
    found = of(**facts)
    assert found is not None
    return found.size_bytes_final


def test_where_a_log_stops_to_grow() -> None:
    assert final(retention_ms=HOUR_MS) == 3_600_000 + MIB
    assert final(retention_bytes=GIB) == GIB + MIB
    assert final(retention_ms=HOUR_MS, retention_bytes=GIB) == 3_600_000 + MIB
    assert final(retention_ms=100 * DAY_MS, retention_bytes=GIB) == GIB + MIB
    assert final() == math.inf
    assert final(cleanup_policy="", retention_ms=HOUR_MS) == math.inf
    assert final(retention_ms=HOUR_MS, segment_ms=1000) == 3_600_000 + 1000
    assert final(retention_ms=HOUR_MS, cleanup_policy="compact,delete") == 3_600_000 + MIB
    assert of(cleanup_policy="compact") is None
    assert of(bytes_per_s=0.0) is None
    assert final(retention_ms=HOUR_MS, size_bytes=GIB) == GIB, "it has more already, and that goes"


def test_a_disk_with_room_for_what_is_kept_is_never_full() -> None:
    assert forecast([Growth(0, 1000.0, 5000.0)], 5000) is None
    assert forecast([], 0) is None


def test_logs_that_stop_on_the_way_slow_it_down() -> None:
    first, second = Growth(0, 100.0, 1000.0), Growth(0, 100.0, math.inf)
    found = forecast([second, first], 3000)
    assert found is not None
    # Both for 10 s take 2,000, then the second alone needs 10 s more for the last 1,000.
    assert found.full_in_s == pytest.approx(20.0)
    assert (found.bytes_per_s, found.wanted_bytes) == (200.0, math.inf)


logs = st.builds(
    lambda size, rate, more: Growth(size, rate, size + more),
    st.integers(0, 10**9),
    st.floats(1.0, 10**6),
    st.floats(0.0, 10**12) | st.just(math.inf),
)


@given(st.lists(logs, max_size=20), st.integers(0, 10**12))
def test_at_the_moment_it_tells_the_disk_is_full(logs: list[Growth], usable_bytes: int) -> None:
    found = forecast(logs, usable_bytes)
    if found is None:
        assert sum(log.size_bytes_final - log.size_bytes for log in logs) <= usable_bytes
        return
    grown = sum(min(log.bytes_per_s * found.full_in_s, log.size_bytes_final - log.size_bytes) for log in logs)
    assert grown == pytest.approx(usable_bytes, rel=1e-6, abs=1.0)

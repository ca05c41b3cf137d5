"""The process that keeps a core busy beside a benchmark."""

import os
from pathlib import Path

import pytest
from bench.measure import cpu_seconds
from bench.neighbour import busy_core, spin


def is_there(process_id: int) -> bool:
    return Path(f"/proc/{process_id}").exists()


def test_neighbour_spins_until_the_block_ends():
    with busy_core() as process_id:
        while cpu_seconds(process_id) < 0.05:
            assert is_there(process_id)
    assert not is_there(process_id)


def test_neighbour_ends_with_a_scenario_that_breaks():
    with pytest.raises(ZeroDivisionError), busy_core() as process_id:
        raise ZeroDivisionError
    assert not is_there(process_id)


def test_neighbour_ends_by_itself_when_its_bench_is_gone():
    spin(parent=os.getpid())  # This process is not its own parent: the same as after a kill -9 of the bench.
